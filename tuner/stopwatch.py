"""`CudaStopwatch`: times batches of runs with CUDA events, captured into graphs or launched one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kt.tuner.cuda import CUDA_ERRORS, Gpu, cupy
from kt.tuner.sampling import Run, Sample
from kt.tuner.timing_rules import BatchShape

__all__ = ["CudaStopwatch"]


@dataclass(frozen=True)
class _DirectBatch:
    run: Run
    runs: int

    def enqueue(self) -> None:
        for _ in range(self.runs):
            self.run()


@dataclass(frozen=True)
class _GraphBatch:
    graph: Any
    stream: Any
    runs: int

    def enqueue(self) -> None:
        self.graph.launch(self.stream)


class CudaStopwatch:
    """The `Stopwatch` of a GPU. Events between samples mark the end of one and the start of the next."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._events: list[Any] = []

    def batch(self, run: Run, shape: BatchShape) -> _DirectBatch | _GraphBatch:
        """A batch of `shape.runs` runs; a graph is captured and sent to the GPU here."""
        if not shape.graph:
            return _DirectBatch(run, shape.runs)
        stream = self._gpu.stream
        graph = self._capture(run, shape.runs)
        graph.upload(stream)
        return _GraphBatch(graph, stream, shape.runs)

    def _capture(self, run: Run, runs: int) -> Any:
        stream = self._gpu.stream
        stream.begin_capture()
        try:
            for _ in range(runs):
                run()
        except BaseException:
            # End the capture, which the failed launch has made invalid, and report the launch, not its consequence.
            with suppress(*CUDA_ERRORS):
                stream.end_capture()
            raise
        return stream.end_capture()

    def time(self, samples: Sequence[Sample]) -> list[float]:
        """Microseconds of each sample; all are enqueued before any is waited for."""
        events = self._take_events(len(samples) + 1)
        stream = self._gpu.stream
        events[0].record(stream)
        for sample, event in zip(samples, events[1:], strict=True):
            for _ in range(sample.repeats):
                sample.batch.enqueue()
            event.record(stream)
        stream.synchronize()
        return [self._between(events[i], events[i + 1]) for i in range(len(samples))]

    def time_one(self, enqueue: Callable[[], None]) -> float:
        """Microseconds from the end of the work before `enqueue` to the end of what it enqueues."""
        start, stop = self._take_events(2)
        start.record(self._gpu.stream)
        enqueue()
        stop.record(self._gpu.stream)
        self._gpu.synchronize()
        return self._between(start, stop)

    def _take_events(self, count: int) -> list[Any]:
        while len(self._events) < count:
            self._events.append(cupy.cuda.Event())
        return self._events[:count]

    @staticmethod
    def _between(start: Any, stop: Any) -> float:
        return float(cupy.cuda.get_elapsed_time(start, stop)) * 1e3
