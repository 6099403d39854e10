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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import START, Arrivals
from ncclscope.analysis.waiting.dependencies import LEAST_WAIT_NS, Dependencies
from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.usual_lengths import THREADS, UsualLengths
from ncclscope.arrays import _abi
from ncclscope.arrays.library import address, library
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_HORIZON_NS = 1_000_000_000  # before the start that waited
_WORTH_THREADS = 1_000_000  # waits; windows of long runs have fewer, and threads of their own


@dataclass(frozen=True, slots=True)
class Charges:
    """What waits were charged to, in ns; all of it together is the sum of the waits."""

    by_event: Ints  # the edge before each event
    by_ranks: Ints  # by rank of the origin and rank that waited; edges of ranks only
    caused_ns: Ints  # by rank: waits for it as the last arrival
    caused_own_ns: Ints  # of these, what is charged to its own edges
    times_last: Ints  # by rank: its kernels that others waited for
    waited_ns: Ints  # by rank: how long it waited
    structure_ns: int
    quicker_ns: int  # the side that waited was quicker than usual
    unknown_ns: int
    below_error_ns: int  # waits no longer than clocks agree
    total_ns: int


def _charged(
    graph: _abi.EventGraph, of: tuple[Numbers, Numbers, Ints], kernels: Kernels, by_ranks: Ints
) -> tuple[Ints, Ints, Ints]:
    """What some waits are charged to: by event, to the last arrival itself, and the rest. `of`: by
    wait the kernel that waited, the last arrival, and how long; `by_ranks`: is added to.
    """
    early, late, waits = of
    ranks = len(kernels.ranks)
    early_rank, late_rank = kernels.rank[early], kernels.rank[late]
    by_event = np.zeros(3 * len(kernels), np.int64)
    own_of_last, sums = np.zeros(ranks, np.int64), np.zeros(3, np.int64)
    for_c = _abi.Waits(
        len(early), address(early), address(late), address(waits), address(early_rank),
        address(late_rank), ranks,
    )  # fmt: skip
    out = _abi.Charges(address(by_event), address(by_ranks), address(own_of_last), address(sums))
    if library().ncclscope_charge_waits(
        ctypes.byref(graph), ctypes.byref(for_c), _HORIZON_NS, ctypes.byref(out)
    ):
        raise MemoryError
    return by_event, own_of_last, sums


def charge_waits(
    kernels: Kernels,
    arrivals: Arrivals,
    dependencies: Dependencies,
    usual: UsualLengths,
    chosen: Bools | None = None,
) -> Charges:
    """Charges the waits of these kernels; of all without `chosen`."""
    wait = arrivals.wait_ns if chosen is None else np.where(chosen, arrivals.wait_ns, 0)
    ranks = len(kernels.ranks)
    waited = np.flatnonzero(wait > 0)
    certain = wait[waited] > np.maximum(kernels.error_ns[waited], LEAST_WAIT_NS)
    below_error = int(wait[waited[~certain]].sum())
    total = int(wait.sum())
    early = waited[certain].astype(np.int32)
    # Waits that end together walk the same way back: one after the other, they find it in cache.
    early = early[np.argsort(arrivals.events_ns[arrivals.last[early], START], kind="stable")]
    late, waits = arrivals.last[early], np.asarray(wait[early], np.int64)
    late_rank = kernels.rank[late]
    origin = np.repeat(kernels.rank, 3)
    origin[2::3] = NONE  # transfers are nobody's own
    lengths = np.nan_to_num(usual.median_ns, nan=-1.0)
    graph = _abi.EventGraph(
        address(arrivals.events_ns), address(dependencies.before), address(lengths),
        address(dependencies.blocked), address(origin),
    )  # fmt: skip
    by_ranks = np.zeros((ranks, ranks), np.int64)
    parts = THREADS if len(early) > _WORTH_THREADS else 1
    edges = np.linspace(0, len(early), parts + 1).astype(np.int64).tolist()

    def charged(begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        of = early[begin:end], late[begin:end], waits[begin:end]
        return _charged(graph, of, kernels, by_ranks)

    with ThreadPoolExecutor(parts) as pool:  # sums of whole ns: their order does not matter
        (by_event, own_of_last, sums), *others = pool.map(charged, edges[:-1], edges[1:])
    for more in others:
        by_event += more[0]
        own_of_last += more[1]
        sums += more[2]
    return Charges(
        by_event,
        by_ranks,
        np.bincount(late_rank, waits, minlength=ranks).astype(np.int64),
        own_of_last,
        np.bincount(kernels.rank[np.unique(late)], minlength=ranks).astype(np.int64),
        np.bincount(kernels.rank, wait, minlength=ranks).astype(np.int64),
        int(sums[_abi.CHARGED_STRUCTURE]),
        int(sums[_abi.CHARGED_QUICKER]),
        int(sums[_abi.CHARGED_UNKNOWN]),
        below_error,
        total,
    )
