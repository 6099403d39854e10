"""NCCL's kernels in a profiler's trace, joined with the operations of a capture of the same run.

The profiler's clock is the wall clock of the host, which may be off by some ms. Launches settle it:
the recorder and the profiler both saw them, and all pairs that belong together have one difference.

Example: ours at 100, 140 and 190, the profiler's at 61, 101 and 151. Pairs differ by 39, 79, 129,
-1, 39, 89, -51, -11 and 39: the difference is 39.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.kernel_trace import NCCL, KernelTrace
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_CODES, NONE

_WINDOW_NS = 20_000_000  # how far the wall clock may be off
_BIN_NS = 50_000
_MOST_PROBES = 512  # launches that are compared with all of the other side
_NEAR_ENOUGH = 0.9  # of the most pairs: among equally spaced calls the smallest difference is right
_TOLERANCE_NS = 100_000  # between two sights of one launch


@dataclass(frozen=True, slots=True)
class JoinedTrace:
    """A trace on the capture's clock, and the operations that its kernels carried out."""

    trace: KernelTrace
    process: int  # row of `processes`
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints  # NONE where it is not known
    step_ends_ns: Ints  # that the job noted while the trace was taken
    operation: Ints  # of NCCL's kernels: row of the first operation of its launch; else NONE
    alone: Bools  # that operation was the only one of its launch

    @property
    def nccl(self) -> Bools:
        """Which kernels are NCCL's."""
        return self.trace.of_kind(NCCL)


def process_of(model: Model, trace: KernelTrace) -> int:
    """The row of the process that a trace is of; NONE where none fits."""
    rows = range(len(model.processes))
    if trace.folder:
        return next((row for row in rows if model.processes[row].folder == trace.folder), NONE)
    by_pid = [
        row
        for row in rows
        if trace.pid != NONE and model.processes[row].pid == trace.pid
        and trace.host in ("", model.processes[row].host)
    ]  # fmt: skip
    by_rank = [row for row in rows if model.processes[row].global_rank == trace.global_rank != NONE]
    both = [row for row in by_pid if row in by_rank]
    return max((*both, *(() if both else by_pid or by_rank)), default=NONE)


def join(model: Model, process: int, trace: KernelTrace) -> JoinedTrace:
    """Puts a trace of a process on the capture's clock, and finds the operations of its kernels."""
    nccl = trace.of_kind(NCCL)
    rows, ours, alone, by_launch = _launches(model, process, trace)
    theirs = trace.launch_ns if by_launch else trace.start_ns
    known = np.flatnonzero(nccl & (theirs != NONE))
    coarse = -model.realtime_offset_ns
    difference = _difference(ours, theirs[known] + coarse)
    offset = coarse + difference
    operation = np.full(len(trace), NONE, np.int64)
    is_alone = np.zeros(len(trace), bool)
    place = _nearest(ours, theirs[known] + offset)
    near = place != NONE
    operation[known[near]], is_alone[known[near]] = rows[place[near]], alone[place[near]]
    launch = np.where(trace.launch_ns == NONE, NONE, trace.launch_ns + offset)
    ends = np.array(trace.step_ends_ns, np.int64) + offset
    moved = trace.start_ns + offset, trace.end_ns + offset
    return JoinedTrace(trace, process, *moved, launch, ends, operation, is_alone)


def _launches(model: Model, process: int, trace: KernelTrace) -> tuple[Ints, Ints, Bools, bool]:
    """The first operation of each launch of a process, by time: its row, the time, whether it was
    the only one; and whether these are times of launches. Before NCCL 2.28 they are starts of
    kernels.
    """
    operations = model.tables["operations"]
    own = np.asarray(operations["process"]) == process
    own &= np.asarray(operations["part_of"]) == NONE
    launch = np.asarray(operations["launch_ns"])
    by_launch = bool((own & (launch != NONE)).any() and (trace.launch_ns != NONE).any())
    times = launch if by_launch else np.asarray(operations["start_ns"])
    rows = np.flatnonzero(own & (times != NONE))
    rows = rows[np.argsort(times[rows], kind="stable")]
    ours, first, count = np.unique(times[rows], return_index=True, return_counts=True)
    return rows[first], ours, count == 1, by_launch


def _difference(ours: Ints, theirs: Ints) -> int:
    """What must be added to their times; 0 where nothing fits."""
    probes = theirs[:: max(len(theirs) // _MOST_PROBES, 1)]
    first = np.searchsorted(ours, probes - _WINDOW_NS)
    count = np.searchsorted(ours, probes + _WINDOW_NS) - first
    if not count.sum():
        return 0
    of_probe = np.repeat(np.arange(len(probes)), count)
    within = np.arange(len(of_probe)) - np.repeat(np.cumsum(count) - count, count)
    differences = ours[first[of_probe] + within] - probes[of_probe]
    bins, pairs = np.unique(differences // _BIN_NS, return_counts=True)
    next_pairs = np.where(np.diff(bins, append=bins[-1] + 2) == 1, np.append(pairs[1:], 0), 0)
    score = pairs + next_pairs  # a difference may lie at the edge of a bin
    likely = bins[score >= _NEAR_ENOUGH * score.max()]
    best = likely[np.argmin(np.abs(likely))]
    own = differences // _BIN_NS
    return int(np.median(differences[(own == best) | (own == best + 1)]))


def _nearest(ours: Ints, theirs: Ints) -> Ints:
    """The place of the nearest of our times; NONE where it is not near, or nearer to another."""
    if not len(ours) or not len(theirs):
        return np.full(len(theirs), NONE, np.int64)
    after = np.clip(np.searchsorted(ours, theirs), 0, len(ours) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(ours[before] - theirs) <= np.abs(ours[after] - theirs)
    place = np.where(nearer, before, after)
    distance = np.abs(ours[place] - theirs)
    order = np.lexsort((distance, place))
    taken = np.diff(place[order], prepend=-1) == 0
    place[order[taken]] = NONE
    return np.where(distance <= _TOLERANCE_NS, place, NONE)


@dataclass(frozen=True, slots=True)
class StampCheck:
    """Times of the recorder against the profiler's, of kernels that both saw."""

    kernels: int  # of NCCL's in the traces
    joined: int  # with an operation
    compared: int  # whose operation has a GPU time, and its launch for itself
    longer_ns: float  # the profiler's duration beyond the recorder's, median
    spread_ns: float  # 95 of 100 durations differ from that by at most
    later_ns: float  # the profiler's start after the recorder's, median
    start_spread_ns: float


def check_stamps(model: Model, traces: list[JoinedTrace]) -> StampCheck:
    """Compares the recorder's GPU times with the profiler's."""
    operations = model.tables["operations"]
    longer, later, kernels, joined = [], [], 0, 0
    for trace in traces:
        kernels += int(trace.nccl.sum())
        joined += int((trace.operation != NONE).sum())
        places = np.flatnonzero((trace.operation != NONE) & trace.alone)
        rows = trace.operation[places]
        timed = np.isin(np.asarray(operations["source"])[rows], GPU_CODES)
        places, rows = places[timed], rows[timed]
        start, end = (np.asarray(operations[name])[rows] for name in ("start_ns", "end_ns"))
        longer.append((trace.end_ns - trace.start_ns)[places] - (end - start))
        later.append(trace.start_ns[places] - start)
    lengths, starts = (
        np.concatenate(parts or [np.empty(0, np.int64)]) for parts in (longer, later)
    )
    return StampCheck(kernels, joined, len(lengths), *_middle(lengths), *_middle(starts))


def _middle(values: Ints) -> tuple[float, float]:
    """The median, and how far 95 of 100 values are from it."""
    if not len(values):
        return 0.0, 0.0
    median = float(np.median(values))
    return median, float(np.quantile(np.abs(values - median), 0.95))
