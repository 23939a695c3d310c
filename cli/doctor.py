"""`kt doctor`: whether this machine has all that kt needs, and the remedy where it has not."""

from typing import Annotated

import typer

from kt.cli import options
from kt.cli.outcome import end, teller
from kt.cli.printable import printable

__all__ = ["doctor"]

SCHEMA = "kt.doctor/1"


def doctor(
    cache_dir: options.CacheDir = None,
    as_json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is not ok.")] = False,
) -> None:
    """Check GPU, driver, compiler, headers and cache.

    Exit code 0 means that `kt tune --device auto` can work here, 1 that it cannot.
    """
    from kt.cache.location import cache_dir as cache_folder
    from kt.cli.output import print_json
    from kt.devices.local import local_device
    from kt.tuner.checkup import checkup, is_healthy

    checks = checkup(local_device, cache_folder(cache_dir), teller(quiet=quiet))
    healthy = is_healthy(checks)
    if as_json:
        print_json({"schema": SCHEMA, "ok": healthy, "checks": [vars(check) for check in checks]})
    else:
        for check in [check for check in checks if not quiet or check.state != "ok"]:
            print(f"{check.state:8} {check.name:12} {printable(check.detail)}")
            if check.remedy:
                print(f"{'':8} {'':12} remedy: {printable(check.remedy)}")
        if not quiet or not healthy:
            print("kt can work here" if healthy else "kt cannot work here: see what has failed above")
    end(0 if healthy else 1)
