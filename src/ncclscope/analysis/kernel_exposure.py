"""Exposed communication, exactly: what a CUDA profiler saw of some training steps.

A kernel belongs to the step in which the host launched it. On the GPU a step lasts from the start
of its first kernel to the start of the next step's first kernel, or to the end of its own last one
where the trace ends before that.

    compute      a kernel runs that is none of NCCL's
    nccl         a kernel of NCCL's runs
    overlapped   both do
    exposed      nccl without overlapped
    idle         nothing runs, no copy either

Example: compute runs from 0 to 10 and from 14 to 20, an AllReduce from 8 to 15. nccl is 7,
overlapped 2 + 1, exposed 4; of a step from 0 to 20 nothing is idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.kernel_join import (
    JoinedTrace,
    StampCheck,
    check_stamps,
    join,
    process_of,
)
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.kernel_trace import COMPUTE, KernelTrace
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE

_EDGE = 0.05  # of a step that may lie outside of what was taken: clocks differ a little
_NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class StepExposure:
    """One step on one process, in ns of its GPU."""

    process: int
    step: int
    start_ns: int
    end_ns: int
    compute_ns: int
    nccl_ns: int
    overlapped_ns: int
    idle_ns: int

    @property
    def length_ns(self) -> int:
        """From the start of its first kernel to that of the next step."""
        return self.end_ns - self.start_ns

    @property
    def exposed_ns(self) -> int:
        """NCCL runs, and the GPU computes nothing."""
        return self.nccl_ns - self.overlapped_ns


@dataclass(frozen=True, slots=True)
class PartExposure:
    """NCCL's kernels of one module or communicator, in all these steps together."""

    name: str
    kernels: int
    nccl_ns: int
    exposed_ns: int


@dataclass(frozen=True, slots=True)
class KernelExposure:
    """What the traces of a capture say."""

    traces: int
    steps: tuple[StepExposure, ...]
    modules: tuple[PartExposure, ...]
    communicators: tuple[PartExposure, ...]
    check: StampCheck
    notes: tuple[str, ...] = ()

    def mean_ns(self, name: str) -> float:
        """The mean of one of the steps' numbers."""
        return float(np.mean([getattr(step, name) for step in self.steps])) if self.steps else 0.0


def kernel_exposure(model: Model, traces: Sequence[KernelTrace]) -> KernelExposure | None:
    """Exposed communication of the steps in these traces; None where there are none."""
    joined, notes = [], list[str]()
    for trace in traces:
        process = process_of(model, trace)
        if process == NONE:
            notes.append(f"{trace.name} is of no process of this capture")
        else:
            joined.append(join(model, process, trace))
    if not joined:
        return None
    steps, parts = list[StepExposure](), _Parts(model)
    for own in joined:
        gpu = _GpuActivity(own)
        for step in _steps(model, own, gpu):
            steps.append(step)
            parts.add(own, gpu, step)
    if not steps:
        notes.append("the traces hold no whole training step")
    return KernelExposure(
        len(joined), tuple(steps), parts.of("module"), parts.of("communicator"),
        check_stamps(model, joined), tuple(notes),
    )  # fmt: skip


class _Cover:
    """The union of intervals, and how much of a stretch of time it covers."""

    def __init__(self, start: Ints, end: Ints) -> None:
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        first = np.flatnonzero(np.append(True, start[1:] > end[:-1])[: len(start)])
        last = np.append(first[1:] - 1, len(start) - 1)[: len(first)]
        self.start, self.end = start[first], end[last]
        self._before = np.concatenate([[0], np.cumsum(self.end - self.start)])

    def before(self, times: Ints) -> Ints:
        """How long it lasted until each time."""
        place = np.searchsorted(self.start, times, side="right")
        if not len(self.end):
            return np.zeros(len(times), np.int64)
        late = np.maximum(self.end[np.maximum(place - 1, 0)] - times, 0)
        return self._before[place] - np.where(place > 0, late, 0)

    def within(self, start: int, end: int) -> int:
        """How much of a stretch it covers."""
        first, last = self.before(np.array([start, end], np.int64)).tolist()
        return int(last - first)


class _GpuActivity:
    """What ran when, in one trace."""

    def __init__(self, own: JoinedTrace) -> None:
        compute = own.trace.of_kind(COMPUTE)
        self.compute = _Cover(own.start_ns[compute], own.end_ns[compute])
        self.nccl = _Cover(own.start_ns[own.nccl], own.end_ns[own.nccl])
        either = compute | own.nccl
        self.either = _Cover(own.start_ns[either], own.end_ns[either])
        self.all = _Cover(own.start_ns, own.end_ns)


def _steps(model: Model, own: JoinedTrace, gpu: _GpuActivity) -> Iterator[StepExposure]:
    numbers, starts, ends = _host_steps(model, own)
    if not len(numbers):
        return
    when = np.where(own.launch_ns == NONE, own.start_ns, own.launch_ns)
    place = np.searchsorted(starts, when, side="right") - 1
    inside = (place >= 0) & (when <= ends[np.maximum(place, 0)])
    first, last = dict[int, int](), dict[int, int]()
    for step in np.unique(place[inside]).tolist():
        of_step = inside & (place == step)
        first[step] = int(own.start_ns[of_step].min())
        last[step] = int(own.end_ns[of_step].max())
    for step in np.flatnonzero(_is_whole(own, when, starts, ends)).tolist():
        if step not in first:
            continue
        a, b = first[step], first.get(step + 1, last[step])
        if b <= a:
            continue
        compute, nccl = gpu.compute.within(a, b), gpu.nccl.within(a, b)
        yield StepExposure(
            own.process, int(numbers[step]), a, b, compute, nccl,
            compute + nccl - gpu.either.within(a, b), b - a - gpu.all.within(a, b),
        )  # fmt: skip


def _host_steps(model: Model, own: JoinedTrace) -> tuple[Ints, Ints, Ints]:
    """Numbers, starts and ends of the process's steps on the host; without ranges on record, those
    that the job noted while the trace was taken.
    """
    table = model.tables["steps"]
    rows = np.flatnonzero(np.asarray(table["process"]) == own.process)
    if len(rows):
        start, end = (np.asarray(table[name])[rows] for name in ("start_ns", "end_ns"))
        far = np.iinfo(np.int64).max
        return (
            np.asarray(table["step"])[rows].astype(np.int64),
            start,
            np.where(end == NONE, far, end),
        )
    ends = own.step_ends_ns
    return np.arange(max(len(ends) - 1, 0)), ends[:-1], ends[1:]


def _is_whole(own: JoinedTrace, when: Ints, starts: Ints, ends: Ints) -> Bools:
    """Which steps the trace holds from begin to end."""
    if len(own.step_ends_ns) > 1:
        begin, end = own.step_ends_ns[[0, -1]].tolist()
    else:
        begin, end = int(when.min()), int(when.max())
    edge = (_EDGE * np.minimum(ends - starts, 10**12)).astype(np.int64)
    whole: Bools = (starts >= begin - edge) & (ends <= end + edge)
    return whole


class _Parts:
    """NCCL's kernels by module and by communicator, step by step."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sums: dict[tuple[str, int], Floats] = {}  # kernels, time, exposed time

    def add(self, own: JoinedTrace, gpu: _GpuActivity, step: StepExposure) -> None:
        """Adds one step of one trace."""
        in_step = (own.start_ns < step.end_ns) & (own.end_ns > step.start_ns) & own.nccl
        places = np.flatnonzero(in_step)
        operations, rows = self._model.tables["operations"], own.operation[places]
        for sort in ("module", "communicator"):
            values = np.asarray(operations[sort])[np.maximum(rows, 0)].astype(np.int64)
            values[rows == NONE] = NONE
            for value in np.unique(values).tolist():
                self._add(sort, value, own, gpu, step, places[values == value])

    def _add(
        self,
        sort: str,
        value: int,
        own: JoinedTrace,
        gpu: _GpuActivity,
        step: StepExposure,
        places: Ints,
    ) -> None:
        start = np.maximum(own.start_ns[places], step.start_ns)
        cover = _Cover(start, np.minimum(own.end_ns[places], step.end_ns))
        time = int((cover.end - cover.start).sum())
        hidden = int((gpu.compute.before(cover.end) - gpu.compute.before(cover.start)).sum())
        sums = self._sums.setdefault((sort, value), np.zeros(3))
        sums += (len(places), time, time - hidden)

    def of(self, sort: str) -> tuple[PartExposure, ...]:
        """All of one sort, the most exposed first."""
        model = self._model
        names = model.module_names if sort == "module" else model.communicator_names
        parts = [
            PartExposure(_NOT_KNOWN if value == NONE else names[value], *map(int, sums))
            for (of, value), sums in self._sums.items()
            if of == sort
        ]
        return tuple(sorted(parts, key=lambda part: (-part.exposed_ns, part.name)))
