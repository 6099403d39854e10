"""A rank's measuring loops: each call between two CUDA events, and timed by the host's clock."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass
from time import perf_counter_ns, process_time_ns

import numpy as np
import numpy.typing as npt

from ncclscope.bench.cuda import Cuda, ReferenceWork

Call = Callable[[], None]
MeasureCalls = Callable[[Call, int], "Batch"]  # measures that many calls
Times = npt.NDArray[np.int64]
REFERENCE_LAUNCHES = 200


@dataclass(frozen=True, slots=True)
class Batch:
    """Times of calls that were made one after the other."""

    gpu_ns: Times  # between the events around each call
    call_ns: Times  # host: until the call returned
    host_ns: Times  # host: until the call's end was seen; -1 if it was not awaited
    loop_gpu_ns: int  # between an event before all calls and one after them
    loop_call_ns: int  # host: until the last call returned; 0 if the GPU was held until then
    loop_host_ns: int  # host: until all calls had ended
    loop_cpu_ns: int = 0  # CPU time of all threads of the process until then

    def __len__(self) -> int:
        return len(self.gpu_ns)


class Stopwatch:
    """Measures calls; its CUDA events are created once and used again."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._starts: list[c_void_p] = []
        self._stops: list[c_void_p] = []
        self._loop = cuda.events(2)

    def _reserve(self, count: int) -> None:
        missing = count - len(self._starts)
        if missing > 0:
            self._starts += self._cuda.events(missing)
            self._stops += self._cuda.events(missing)

    def back_to_back(self, call: Call, count: int) -> Batch:
        """Measures calls that are queued one after the other, as programs do."""
        begin_cpu_ns, begin_ns = process_time_ns(), perf_counter_ns()
        call_ns = self._queue(call, count)
        loop_call_ns = perf_counter_ns() - begin_ns
        self._cuda.synchronize()
        loop_host_ns = perf_counter_ns() - begin_ns
        loop_cpu_ns = process_time_ns() - begin_cpu_ns
        return self._batch(call_ns, [-1] * count, loop_call_ns, loop_host_ns, loop_cpu_ns)

    def held(self, call: Call, count: int) -> Batch:
        """The same, but the GPU begins when all are queued, so it never waits for the host."""
        begin_cpu_ns, begin_ns = process_time_ns(), perf_counter_ns()
        self._cuda.hold()
        try:
            call_ns = self._queue(call, count)
        finally:
            self._cuda.end_hold()
        self._cuda.synchronize()
        loop_host_ns = perf_counter_ns() - begin_ns
        loop_cpu_ns = process_time_ns() - begin_cpu_ns
        return self._batch(call_ns, [-1] * count, 0, loop_host_ns, loop_cpu_ns)

    def _queue(self, call: Call, count: int) -> list[int]:
        """Queues calls and events; returns the host's time of each call."""
        self._reserve(count)
        stream, record = self._cuda.stream, self._cuda.record
        starts, stops, call_ns = self._starts, self._stops, [0] * count
        record(self._loop[0], stream)
        for i in range(count):
            record(starts[i], stream)
            before_ns = perf_counter_ns()
            call()
            call_ns[i] = perf_counter_ns() - before_ns
            record(stops[i], stream)
        record(self._loop[1], stream)
        return call_ns

    def one_by_one(self, call: Call, count: int, barrier: Call) -> Batch:
        """Measures calls one by one: each after a barrier, on an idle stream, its end awaited."""
        self._reserve(count)
        cuda, stream, record = self._cuda, self._cuda.stream, self._cuda.record
        starts, stops, call_ns, host_ns = self._starts, self._stops, [0] * count, [0] * count
        record(self._loop[0], stream)
        begin_cpu_ns, begin_ns = process_time_ns(), perf_counter_ns()
        for i in range(count):
            barrier()
            before_ns = perf_counter_ns()
            record(starts[i], stream)
            call()
            call_ns[i] = perf_counter_ns() - before_ns
            record(stops[i], stream)
            cuda.synchronize()
            host_ns[i] = perf_counter_ns() - before_ns
        record(self._loop[1], stream)
        cuda.synchronize()
        spent_ns = perf_counter_ns() - begin_ns
        spent_cpu_ns = process_time_ns() - begin_cpu_ns
        return self._batch(call_ns, host_ns, spent_ns, spent_ns, spent_cpu_ns)

    def _batch(
        self,
        call_ns: list[int],
        host_ns: list[int],
        loop_call_ns: int,
        loop_host_ns: int,
        loop_cpu_ns: int,
    ) -> Batch:
        elapsed_ns = self._cuda.elapsed_ns
        gpu_ns = [elapsed_ns(self._starts[i], self._stops[i]) for i in range(len(call_ns))]
        return Batch(
            np.array(gpu_ns, np.int64),
            np.array(call_ns, np.int64),
            np.array(host_ns, np.int64),
            elapsed_ns(*self._loop),
            loop_call_ns,
            loop_host_ns,
            loop_cpu_ns,
        )

    def event_overhead_ns(self, measure: MeasureCalls, reference: ReferenceWork) -> tuple[int, int]:
        """The time that events add to the work between them, and the host's time of a launch.

        The first is part of every time that events measure.
        """
        for _ in range(2):  # the first batch warms up
            batch = measure(reference.launch, REFERENCE_LAUNCHES)
        beyond_ns = batch.gpu_ns - np.array(reference.own_ns, np.int64)
        return int(np.median(beyond_ns)), int(np.median(batch.call_ns))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keeps Python's garbage collector out of timed loops."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
