"""`kt bench`: winners of the cache beside library times, with a worker that only answers."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt.cache.records import BestConfig, CacheKey, Measurement
from kt.cache.store import Store
from kt.devices.catalog import catalog
from kt.problems import Problem
from kt.search_spaces.loader import load_space
from kt.search_spaces.space import Launch, SearchSpace
from kt.templates.digest import template_digest
from kt.tuner import worker
from kt.tuner.bench import BenchReport, bench, geometric_mean
from kt.tuner.compilation import Compilation
from kt.tuner.compile_pool import CompilePool
from kt.tuner.cubin_cache import CubinCache
from kt.tuner.messages import Failure, Prepare, Prepared, Refine, RefineReply
from kt.tuner.method import METHOD_LABEL
from kt.tuner.request import TuneRequest
from kt.tuner.toolchain import toolchain
from kt.tuner.worker import WorkerDied

Command = Callable[..., Any]
H200 = catalog()["h200"]
PROBLEMS = [Problem(64, 64, 64), Problem(100, 64, 64), Problem(1, 64, 64)]


class FakeWorker:
    """Answers as the GPU worker would; `answers` by m of the problem replace the usual reply."""

    def __init__(self, answers: dict[int, Any] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[Refine] = []
        self.m = 0

    def request(self, message: Any, timeout_s: float) -> Any:
        assert timeout_s > 0
        if isinstance(message, Prepare):
            self.m = message.problem.m
            return Prepared(8, True, 1000, 10**9)
        assert isinstance(message, Refine)
        self.asked.append(message)
        answer = self.answers.get(self.m)
        if isinstance(answer, Exception):
            raise answer
        (candidate,) = message.candidates
        assert Path(candidate.cubin).stat().st_size > 0  # a real binary of the winner
        return answer or self.usual(candidate.name)

    def usual(self, name: str) -> RefineReply:
        return usual_reply(name)


def usual_reply(name: str) -> RefineReply:
    return RefineReply({name: Measurement("ok", 10.0, 0.01, 50)}, (), {"cublas": 12.0, "cublaslt": 9.0})


@pytest.fixture
def small(small_family: tuple[str, ...]) -> tuple[SearchSpace, Path]:
    return load_space(small_family[1]), Path(small_family[3])


@pytest.fixture
def request_(small: tuple[SearchSpace, Path]) -> TuneRequest:
    return TuneRequest(PROBLEMS, [small[0]], H200, template_dirs=(small[1],), peers=("cublas", "cublaslt"))


def _winner(request: TuneRequest, problem: Problem) -> BestConfig:
    (space,) = request.spaces
    key = CacheKey(problem, H200.identity, toolchain().label, METHOD_LABEL)
    sources = {space.family: template_digest(space, request.template_dirs)}
    launches = (Launch("small_gemm", 64, 64, 0),)
    return BestConfig(
        key, space.default_config, Measurement("ok", 11.0), sources, launches, tried=4, total=4, complete=True
    )


@pytest.fixture
def store(own_environment: Path, request_: TuneRequest) -> Iterator[Store]:
    """A cache with winners of the first two problems."""
    with Store.open(own_environment) as opened:
        for problem in PROBLEMS[:2]:
            opened.put_best(_winner(request_, problem))
        yield opened


@pytest.fixture
def run(request_: TuneRequest, store: Store, own_environment: Path) -> Iterator[Callable[..., BenchReport]]:
    compilation = Compilation(H200.arch, lambda: CompilePool(1, CubinCache(own_environment)), request_.template_dirs)

    def benched(fake: FakeWorker, request: TuneRequest = request_) -> BenchReport:
        return bench(request, store, fake, compilation)

    yield benched
    compilation.close()


def test_geometric_mean() -> None:
    """It is the root of the product, also where the product itself would overflow."""
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([1e200, 1e200]) == pytest.approx(1e200)


def test_rows_and_mean(run: Callable[..., BenchReport]) -> None:
    """Every shape is a row in the order of the file; ratios are the library's time divided by the winner's."""
    fake = FakeWorker()
    report = run(fake)
    assert [row.problem for row in report.rows] == PROBLEMS
    assert report.rows[0].ratio("cublas") == pytest.approx(1.2)
    assert report.rows[0].ratio("cublaslt") == pytest.approx(0.9)
    assert report.geometric_mean("cublas") == pytest.approx(1.2)
    assert all(asked.peers == ("cublas", "cublaslt") for asked in fake.asked)


def test_a_shape_without_a_winner_is_named(run: Callable[..., BenchReport]) -> None:
    """It is no row of zeros: it has a failure, and takes no part in the mean."""
    (failed,) = run(FakeWorker()).failures
    assert failed.problem == PROBLEMS[2]
    assert "no measured winner" in failed.failure
    assert failed.ratio("cublas") is None


def test_a_winner_of_an_unfinished_search_is_timed(
    run: Callable[..., BenchReport], request_: TuneRequest, store: Store
) -> None:
    """After a run with a budget, `kt bench` times what there is."""
    store.put_best(replace(_winner(request_, PROBLEMS[2]), complete=False, tried=1))
    assert run(FakeWorker()).failures == ()


def test_the_cache_is_left_as_it_is(run: Callable[..., BenchReport], store: Store) -> None:
    """A bench measures, and remembers nothing."""
    before = [row.best for row in store.stored()]
    run(FakeWorker())
    assert [row.best for row in store.stored()] == before


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (WorkerDied("timeout", "took longer than 120 s"), "timeout: took longer than 120 s"),
        (Failure("out_of_memory", "needs 9 GiB"), "out_of_memory: needs 9 GiB"),
        (RefineReply({"?": Measurement("wrong_result", detail="row 3")}, (), {}), "wrong_result: row 3"),
    ],
)
def test_a_failing_shape_does_not_stop_the_others(
    run: Callable[..., BenchReport], request_: TuneRequest, answer: Any, said: str
) -> None:
    """A fault, a lack of memory and a wrong result fail their own shape, by name."""
    if isinstance(answer, RefineReply):
        name = request_.spaces[0].default_config.identity
        answer = RefineReply({name: answer.measurements["?"]}, (), {})
    report = run(FakeWorker({64: answer}))
    assert report.rows[0].failure == said
    assert report.rows[1].failure == ""


def test_a_missing_library_is_no_failure(run: Callable[..., BenchReport], request_: TuneRequest) -> None:
    """Where a peer cannot be timed, its ratio is missing and the cause is kept; the shape is timed."""
    name = request_.spaces[0].default_config.identity
    reply = RefineReply({name: Measurement("ok", 10.0)}, (), {"cublas": 12.0}, {"cublaslt": "libcublasLt is missing"})
    row = run(FakeWorker({64: reply})).rows[0]
    assert (row.failure, row.ratio("cublaslt")) == ("", None)
    assert row.peer_errors == {"cublaslt": "libcublasLt is missing"}


def test_no_mean_of_nothing(run: Callable[..., BenchReport], request_: TuneRequest) -> None:
    """Without a single ratio the mean is missing, not 0, 1 or NaN."""
    report = run(FakeWorker(), replace(request_, problems=PROBLEMS[2:]))
    assert report.geometric_mean("cublas") is None


@pytest.fixture
def bench_command(
    kt: Command, small_family: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> Callable[..., Any]:
    """`kt bench gemm` as on an H200, with the worker replaced."""
    from kt.devices import local

    class Opened(FakeWorker):
        def __init__(self, index: int) -> None:
            super().__init__()

        def __enter__(self) -> FakeWorker:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(worker, "Worker", Opened)
    monkeypatch.setattr(local, "select_device", lambda text: H200)

    def command(sizes: str, *options: object) -> Any:
        (tmp_path / "shapes.yaml").write_text(f"shapes: [{{m: [{sizes}], n: 64, k: 64}}]\n")
        return kt("bench", "gemm", "--shapes", tmp_path / "shapes.yaml", *small_family, *options)

    return command


def test_the_command(bench_command: Callable[..., Any]) -> None:
    """The table has a line per shape and the geometric mean; the document has them as numbers."""
    outcome = bench_command("64, 100")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert len(lines) == 4
    assert lines[-1].split() == ["geometric", "mean", "1.200x", "0.900x"]
    document = bench_command("64, 100", "--json").json
    assert document["schema"] == "kt.bench/1"
    assert math.isclose(document["geometric_mean"]["cublas"], 1.2)
    assert [shape["peers_us"]["cublas"] for shape in document["shapes"]] == [12.0, 12.0]


def test_the_command_says_once_why_a_library_has_no_time(
    bench_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cause of all shapes stands in one line; the table has no ratio, and the exit code is 0."""
    errors = {"cublas": "libcublas is not installed"}
    monkeypatch.setattr(FakeWorker, "usual", lambda _, name: replace(usual_reply(name), peers={}, peer_errors=errors))
    outcome = bench_command("64, 100", "--peers", "cublas")
    assert outcome.code == 0
    assert outcome.err.count("libcublas is not installed") == 1
    assert outcome.out.splitlines()[-1].split() == ["geometric", "mean", "-"]


def test_the_command_names_missing_winners(bench_command: Callable[..., Any], tmp_path: Path) -> None:
    """A shape that was not tuned: exit 5, and -o leaves the file; with all shapes tuned it is written."""
    target = tmp_path / "bench.json"
    outcome = bench_command("64, 1", "-o", target)
    assert outcome.code == 5
    assert "fp32 nn 1x64x64: no measured winner" in outcome.err
    assert not target.exists()
    assert bench_command("64", "-o", target).code == 0
    assert json.loads(target.read_text())["schema"] == "kt.bench/1"


def test_a_shape_that_fails_is_not_one_that_was_not_tuned(
    bench_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another shape that has no winner, tuning alone would not help: exit 3."""
    monkeypatch.setattr(FakeWorker, "usual", lambda _, name: Failure("launch_error", "701"))
    assert bench_command("64, 1").code == 3


def test_the_command_times_the_sizes_of_a_range(bench_command: Callable[..., Any]) -> None:
    """As `kt tune --range` has tuned them, in place of the file's."""
    assert "fp32 nn 33x64x64: no measured winner" in bench_command("64", "--range", "m=33:33").err


def test_a_modelled_device_cannot_be_benched(kt: Command, no_gpu: None, tmp_path: Path) -> None:
    """A bench measures: a model is no GPU, exit 4, and no model is offered in place of a GPU."""
    (tmp_path / "shapes.yaml").write_text("shapes: [{m: 4, n: 4, k: 4}]\n")
    for device in ("model:h200", "auto", "local"):
        outcome = kt("bench", "gemm", "--shapes", tmp_path / "shapes.yaml", "--device", device)
        assert outcome.code == 4
        assert "hint: a bench measures: run it where the GPU is" in outcome.err
        assert "--device auto" not in outcome.err
