#!/usr/bin/env python3
"""Measure kt itself on the GPU of this machine: tune a suite, tune it again, and time the winners beside the library.

    python3 benchmarks/measure.py --out results --commit "$(git rev-parse HEAD)" tune --dtype fp32
    python3 benchmarks/measure.py --out results --commit "$(git rev-parse HEAD)" speed

`tune` empties its own cache first and records: seconds of tuning from an empty cache (with `--further`, also of a run
that finishes the searches that a `--budget` left), seconds of tuning again, the most host memory of all processes
together, the table of winners, and `kt bench` beside cuBLAS. `speed` records the seconds
of one space of 96 SGEMM candidates at 4096x4096x4096 from the start of the process. Modules are compiled to bytecode
beforehand, as an installation does, whatever the environment says of it. Each result is one JSON file that names
device, driver and commit.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KT = [sys.executable, "-m", "kt"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SAMPLE_S = 0.2


def processes_below(root: int) -> list[int]:
    """`root` and all processes that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def proportional_bytes(pid: int) -> int:
    """Memory of a process; pages shared with others count in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def run(command: list[str], watch_memory: bool = False) -> dict[str, Any]:
    """Run a command; returns its exit code, seconds, output, and the most memory that it and its children held."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    most = [0]

    def watch() -> None:
        while process.poll() is None:
            most[0] = max(most[0], sum(proportional_bytes(pid) for pid in processes_below(process.pid)))
            time.sleep(SAMPLE_S)

    watcher = threading.Thread(target=watch, daemon=True)
    if watch_memory:
        watcher.start()
    out, err = process.communicate()
    seconds = time.perf_counter() - began
    return {"code": process.returncode, "seconds": round(seconds, 3), "out": out, "err": err, "peak_bytes": most[0]}


def identity(commit: str) -> dict[str, Any]:
    query = "--query-gpu=name,driver_version,memory.total"
    answer = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=True)
    name, driver, memory = (part.strip() for part in answer.stdout.splitlines()[0].split(","))
    return {"device": name, "driver": driver, "memory": memory, "cores": os.cpu_count(), "commit": commit}


def compile_modules() -> None:
    """Bytecode of kt's modules: folders below kt/ are links in a checkout, so each is compiled where it lies."""
    for folder in (HERE.parent / "kt").iterdir():
        compileall.compile_dir(folder.resolve(), quiet=2)


def tune(args: argparse.Namespace, about: dict[str, Any]) -> None:
    cache = args.cache or Path(tempfile.mkdtemp(prefix="kt-measure-"))
    shutil.rmtree(cache, ignore_errors=True)
    table = args.out / f"{args.name}-{args.dtype}-table.json"
    shared = ["--shapes", str(args.shapes), "--dtype", args.dtype, "--cache-dir", str(cache)]
    command = [*KT, "tune", "gemm", *shared, "-o", str(table), "--progress", "plain", "--peers", "cublas"]
    first = run([*command, *args.options], True)
    (args.out / f"{args.name}-{args.dtype}-tune.log").write_text(first["err"] + first["out"])
    print(
        first["out"][-6000:], first["err"][-2500:], f"tuned in {first['seconds']} s, exit {first['code']}", flush=True
    )
    # A budget leaves searches that a further run finishes; only then is tuning again nothing but looking up.
    further = [run([*KT, "tune", "gemm", *shared, "-q"])] if args.further else []
    again = [run([*KT, "tune", "gemm", *shared, "-q"]) for _ in range(args.again)]
    for name, runs in (("further", further), ("again", again)):
        print(name, [(one["seconds"], one["code"], one["err"][-250:]) for one in runs], flush=True)
    bench = run([*KT, "bench", "gemm", *shared, "--peers", args.peers, "--json"])
    print("bench", bench["seconds"], bench["code"], bench["err"][-1500:], flush=True)
    document = {
        "schema": "kt.measure/1", **about, "dtype": args.dtype, "shapes": args.shapes.name,
        "tune_seconds": first["seconds"], "tune_exit": first["code"],
        "further_seconds": [one["seconds"] for one in further],
        "again_seconds": [one["seconds"] for one in again], "again_exits": [one["code"] for one in again],
        "peak_host_bytes": first["peak_bytes"], "bench": json.loads(bench["out"] or "null"),
    }  # fmt: skip
    (args.out / f"{args.name}-{args.dtype}.json").write_text(json.dumps(document, indent=1) + "\n")


def speed(args: argparse.Namespace, about: dict[str, Any]) -> None:
    seconds = []
    for _ in range(args.repeats):
        cache = Path(tempfile.mkdtemp(prefix="kt-speed-"))
        command = [*KT, "tune", "gemm", "--shapes", str(HERE / "speed.yaml"), "--space", str(HERE / "speed-space.yaml")]
        one = run([*command, "--strategy", "exhaustive", "--cache-dir", str(cache), "--progress", "plain"])
        print(one["seconds"], one["code"], one["out"][-1500:], one["err"][-1500:], flush=True)
        seconds.append(one["seconds"])
        shutil.rmtree(cache, ignore_errors=True)
    document = {"schema": "kt.measure/1", **about, "candidates": 96, "seconds": seconds}
    (args.out / f"{args.name}-speed.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--commit", required=True, help="commit that is measured")
    parser.add_argument("--name", default="bench")
    commands = parser.add_subparsers(required=True)
    tuning = commands.add_parser("tune")
    tuning.add_argument("--shapes", type=Path, default=HERE / "bench.yaml")
    tuning.add_argument("--dtype", default="fp32")
    tuning.add_argument("--peers", default="cublas,cublaslt")
    tuning.add_argument("--further", action="store_true", help="after a budget: finish the searches before the bench")
    tuning.add_argument("--again", type=int, default=3, help="how often it is tuned again")
    tuning.add_argument("--cache", type=Path, help="cache folder, emptied first; default: a temporary one")
    tuning.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="all that follows: of `kt tune gemm`")
    tuning.set_defaults(action=tune)
    speeding = commands.add_parser("speed")
    speeding.add_argument("--repeats", type=int, default=3)
    speeding.set_defaults(action=speed)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    compile_modules()
    args.action(args, identity(args.commit))


if __name__ == "__main__":
    main()
