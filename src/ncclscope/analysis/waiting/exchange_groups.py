"""Communicators whose exchanges take longer than those of equal communicators.

In an exchange each rank sends to all others and receives from all: an AlltoAll of sends and
receives. Each of its kernels ends with its own transfers. One slow link makes two of them long, a
slow adapter those on other hosts. Where even the shortest is long, the whole group is slow:

    transfers in µs       of ranks                shortest
    ep0                   19   20   18   19       18
    ep1                   18   21   19   18       18
    ep2                  230  241  226  238       226

Equal communicators are of one class, have as many ranks on each of as many hosts, and make as many
exchanges, so that the n-th of one can be compared with the n-th of the others. A group that moves
more is not slow: experts that are popular take more tokens.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.run import Run
from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.kernels import Kernels
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE

_LEAST_MEMBERS = 3  # of two there is one link, which is compared with other links
_LEAST_EXCHANGES = 10
# Times the usual group, or link: with many to compare with, with few, or with one of two.
SLOWER, SLOWER_OF_FEW, SLOWER_OF_TWO = 1.5, 2.5, 4.0
_MANY_GROUPS = 5


@dataclass(frozen=True, slots=True)
class ExchangeGroups:
    """By row of `communicators` how its exchanges compare with those of equal ones.

    slowness   times what the usual equal group takes, in the median; NaN where none is equal
    slow       whether that is far more, however wrong clocks are
    """

    slowness: Floats
    slow: Bools


def exchange_groups(waiting: Waiting) -> ExchangeGroups:
    """The exchanges of all communicators against those of equal ones."""
    kernels, count = waiting.kernels, len(waiting.kernels.communicator_class)
    found = ExchangeGroups(np.full(count, np.nan), np.zeros(count, bool))
    for equal in _equal_groups(waiting.run, kernels, _exchanges(waiting)):
        rows = np.stack([rows for _, rows in equal])  # by communicator, rank and exchange
        steady = ~waiting.start_up[rows].any(axis=(0, 1))
        if steady.sum() < _LEAST_EXCHANGES:
            continue
        own = [communicator for communicator, _ in equal]
        found.slowness[own], surely = _slowness(waiting, rows[:, :, steady])
        least = SLOWER if len(own) >= _MANY_GROUPS else SLOWER_OF_FEW
        found.slow[own] = surely >= (least if len(own) > 2 else SLOWER_OF_TWO)
    return found


def _exchanges(waiting: Waiting) -> dict[int, Ints]:
    """By communicator its kernels that exchange with all ranks, by rank and exchange; none of one
    whose ranks have different numbers of them: then it is not known which belong together.
    """
    kernels = waiting.kernels
    ranks = np.asarray(waiting.run.model.tables["communicators"]["ranks"], np.int64)
    members = ranks[kernels.communicator]
    all_ranks = np.diff(kernels.partner_first) == 2 * (members - 1)  # to each and from each
    rows = np.flatnonzero(kernels.pair & all_ranks & (members >= _LEAST_MEMBERS))
    rows = rows[np.argsort(kernels.communicator[rows], kind="stable")]  # kernels are by rank
    parts = np.split(rows, np.flatnonzero(np.diff(kernels.communicator[rows])) + 1)
    tables = {}
    for part in parts if len(rows) else []:
        communicator = int(kernels.communicator[part[0]])
        of_rank = np.unique(kernels.rank[part], return_counts=True)[1]
        if len(of_rank) == ranks[communicator] and (of_rank == of_rank[0]).all():
            tables[communicator] = part.reshape(len(of_rank), -1)
    return tables


def _equal_groups(
    run: Run, kernels: Kernels, tables: dict[int, Ints]
) -> list[list[tuple[int, Ints]]]:
    """Communicators that can be compared, with their exchanges; several in each list."""
    alike: dict[tuple[int, tuple[int, ...], int], list[tuple[int, Ints]]] = {}
    for communicator, rows in tables.items():
        hosts = Counter(run.node_of[kernels.ranks[kernels.rank[rows[:, 0]]]].tolist())
        placed = tuple(sorted(hosts.values()))
        key = int(kernels.communicator_class[communicator]), placed, rows.shape[1]
        alike.setdefault(key, []).append((communicator, rows))
    return [equal for equal in alike.values() if len(equal) > 1]


def _slowness(waiting: Waiting, rows: Ints) -> tuple[Floats, Floats]:
    """By communicator how many times as long as the usual one its shortest kernels take, and how
    many times they do if its clocks are as wrong as they may be. `rows`: kernels by communicator,
    rank and exchange.
    """
    length = waiting.dependencies.length_ns[END::3][rows].astype(np.float64)
    error = waiting.kernels.error_ns[rows].astype(np.float64)
    long, short = np.maximum(length - error, 0.0), length + error
    slowness, surely = _against_usual(length, length), _against_usual(long, short)
    if (surely < SLOWER).all():  # by bytes it is less
        return slowness, surely
    for moved in _moved_bytes(waiting, rows):
        slowness = np.minimum(slowness, _against_usual(length / moved, length / moved))
        surely = np.minimum(surely, _against_usual(long / moved, short / moved))
    return slowness, surely


def _against_usual(long: Floats, short: Floats) -> Floats:
    """By communicator the median over exchanges of how many times as long as the usual one it is.
    Of two in the middle the quicker one is usual, so that one of two can be slow.
    """
    least, usual = long.min(axis=1), np.sort(short.min(axis=1), axis=0)[(len(short) - 1) // 2]
    return np.asarray(np.median(least / np.maximum(usual, 1e-9), axis=1))


def _moved_bytes(waiting: Waiting, rows: Ints) -> tuple[Floats, Floats]:
    """By kernel the bytes of all that it sends and receives, and of the largest part: one popular
    rank makes the exchange of all others longer than their sums say.
    """
    run = waiting.run
    chosen = np.flatnonzero(run.p2p & (np.asarray(run.operations["group_call"]) != NONE))
    if not len(chosen):  # damaged: exchanges are groups of calls
        return np.ones(rows.shape), np.ones(rows.shape)
    columns = [run.column(name, chosen) for name in ("global_rank", "communicator", "group_call")]
    _, group = distinct_rows(columns)
    size = np.maximum(run.column("size_bytes", chosen), 0)
    total = np.bincount(group, size)
    largest = np.zeros(len(total))
    np.maximum.at(largest, group, size)
    place = np.minimum(np.searchsorted(chosen, waiting.kernels.row[rows]), len(chosen) - 1)
    own = group[place]
    return np.maximum(total[own], 1.0), np.maximum(largest[own], 1.0)
