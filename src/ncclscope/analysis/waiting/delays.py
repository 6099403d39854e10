"""Waits charged to the edges that were longer than usual.

A wait is the difference of two starts. Both are followed back, always from the later event, until
they meet in one event: what is before it cancels out. On the way each edge of the late side that
is longer than usual takes a share of the wait, and so does the difference of the usual lengths of
both sides, which is the structure of the job.

    rank 0   ──[AllReduce ······waits for rank 1······]     wait 30
    rank 1   ──── own time 25 longer than usual ────[█]     30 = 25 + 4 + 1: rank 1, structure …

Charges are whole ns, never negative, and sum to the wait. A rank that waited for another one
elsewhere takes no share of that: the walk goes on at the other one.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.waiting.arrivals import START, Arrivals
from ncclscope.analysis.waiting.dependencies import LEAST_WAIT_NS, Dependencies
from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.usual_lengths import THREADS, UsualLengths
from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library
from ncclscope.arrays.types import Ints
from ncclscope.model.schema import NONE
from ncclscope.threads import Threads

_HORIZON_NS = 1_000_000_000  # before the start that waited
WORTH_THREADS = 1_000_000  # waits or kernels; windows of long runs have fewer, and own threads


@dataclass(frozen=True, slots=True)
class Charges:
    """What waits were charged to, in ns; all of it together is the sum of the waits."""

    by_event: Ints  # the edge before each event
    caused_ns: Ints  # by rank: waits for it as the last arrival
    caused_own_ns: Ints  # of these, what is charged to its own edges
    times_last: Ints  # by rank: its kernels that others waited for
    waited_ns: Ints  # by rank: how long it waited
    structure_ns: int
    quicker_ns: int  # the side that waited was quicker than usual
    unknown_ns: int
    below_error_ns: int  # waits no longer than clocks agree
    total_ns: int


@dataclass(frozen=True, slots=True)
class CertainWaits:
    """Waits longer than clocks are off."""

    early: Numbers  # kernels that waited
    late: Numbers  # the last arrivals
    wait_ns: Ints
    below_error_ns: int  # the sum of all other waits

    def __len__(self) -> int:
        return len(self.early)


def _charged(
    graph: _abi.EventGraph,
    waits: CertainWaits,
    part: slice,
    kernels: Kernels,
    by_ranks: Ints | None,
) -> tuple[Ints, Ints, Ints]:
    """What some waits are charged to: by event, to the last arrival itself, and the rest.
    `by_ranks`: is added to, by number of the origin and rank that waited.
    """
    early, late, wait = waits.early[part], waits.late[part], waits.wait_ns[part]
    ranks = len(kernels.ranks)
    early_rank, late_rank = kernels.rank[early], kernels.rank[late]
    by_event = np.zeros(3 * len(kernels), np.int64)
    own_of_last, sums = np.zeros(ranks, np.int64), np.zeros(3, np.int64)
    for_c = _abi.Waits(
        len(early), address(early), address(late), address(wait), address(early_rank),
        address(late_rank), ranks,
    )  # fmt: skip
    out = _abi.Charges(address(by_event), address(by_ranks), address(own_of_last), address(sums))
    if library().ncclscope_charge_waits(
        ctypes.byref(graph), ctypes.byref(for_c), _HORIZON_NS, ctypes.byref(out)
    ):
        raise MemoryError
    return by_event, own_of_last, sums


def certain_waits(kernels: Kernels, arrivals: Arrivals, wait: Ints) -> CertainWaits:
    """Waits that are longer than clocks are off. `wait`: by kernel how long it waited."""
    waited = np.flatnonzero(wait > 0)
    certain = wait[waited] > np.maximum(kernels.error_ns[waited], LEAST_WAIT_NS)
    below_error = int(wait[waited[~certain]].sum())
    early = waited[certain].astype(np.int32)
    # Waits that end together walk the same way back: one after the other, they find it in cache.
    early = early[np.argsort(arrivals.events_ns[arrivals.last[early], START], kind="stable")]
    return CertainWaits(early, arrivals.last[early], np.asarray(wait[early], np.int64), below_error)


def _charge_in_threads(
    kernels: Kernels,
    arrivals: Arrivals,
    dependencies: Dependencies,
    usual: UsualLengths,
    waits: CertainWaits,
    origin_of: Numbers,
    by_ranks: Ints | None = None,
) -> tuple[Ints, Ints, Ints]:
    """What all waits are charged to. `origin_of`: by rank its number as an origin, or NONE."""
    origin = np.repeat(origin_of[kernels.rank], 3)
    origin[2::3] = NONE  # transfers are nobody's own
    lengths = np.nan_to_num(usual.median_ns, nan=-1.0)  # -1: nothing is usual
    graph = _abi.EventGraph(
        address(arrivals.events_ns), address(dependencies.before), address(lengths),
        address(dependencies.blocked), address(origin),
    )  # fmt: skip
    parts = THREADS if len(waits) > WORTH_THREADS else 1
    edges = np.linspace(0, len(waits), parts + 1).astype(np.int64).tolist()

    def charged(begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        return _charged(graph, waits, slice(begin, end), kernels, by_ranks)

    with Threads(parts) as threads:  # sums of whole ns: their order does not matter
        (by_event, own_of_last, sums), *others = threads.map(charged, edges[:-1], edges[1:])
    for more in others:
        by_event += more[0]
        own_of_last += more[1]
        sums += more[2]
    return by_event, own_of_last, sums


def charge_waits(
    kernels: Kernels,
    arrivals: Arrivals,
    dependencies: Dependencies,
    usual: UsualLengths,
    waits: CertainWaits,
    wait: Ints,
) -> Charges:
    """Charges waits. `wait`: by kernel how long it waited; `waits`: those that are certain."""
    ranks = len(kernels.ranks)
    by_event, own_of_last, sums = _charge_in_threads(
        kernels, arrivals, dependencies, usual, waits, np.arange(ranks, dtype=np.int32)
    )
    late_rank = kernels.rank[waits.late]
    return Charges(
        by_event,
        np.bincount(late_rank, waits.wait_ns, minlength=ranks).astype(np.int64),
        own_of_last,
        np.bincount(
            kernels.rank[distinct_numbers(waits.late.astype(np.int64))], minlength=ranks
        ).astype(np.int64),
        np.bincount(kernels.rank, wait, minlength=ranks).astype(np.int64),
        int(sums[_abi.CHARGED_STRUCTURE]),
        int(sums[_abi.CHARGED_QUICKER]),
        int(sums[_abi.CHARGED_UNKNOWN]),
        waits.below_error_ns,
        int(wait.sum()),
    )


def waits_because_of(
    kernels: Kernels,
    arrivals: Arrivals,
    dependencies: Dependencies,
    usual: UsualLengths,
    waits: CertainWaits,
    places: Sequence[int],
) -> Ints:
    """By rank at these places, and by rank, how long the latter waited because of edges of the
    former. A pass of its own for those that are asked about: of all ranks it would be a table of
    ranks times ranks.
    """
    origin_of = np.full(len(kernels.ranks), NONE, np.int32)
    origin_of[list(places)] = np.arange(len(places))
    by_ranks = np.zeros((len(places), len(kernels.ranks)), np.int64)
    _charge_in_threads(kernels, arrivals, dependencies, usual, waits, origin_of, by_ranks)
    return by_ranks
