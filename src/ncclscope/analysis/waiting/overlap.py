"""Whether a rank's own work before a kernel runs beside the NCCL kernel that it follows.

Gradients are reduced while the backward pass goes on: the next reduction does not need the end of
the one before. A start that needs the end of a kernel comes the same time after it, however long
that kernel waited for other ranks. Work beside it goes on while it waits, so the gap shrinks:

    needs the end    wait 0, gap 3    wait 2, gap 3    wait 9, gap 3
    runs beside it   wait 0, gap 3    wait 2, gap 1    wait 9, gap 0: held back
    its last part    wait 0, gap 3    wait 2, gap 1    wait 9, gap 1: held back
    needs the end
"""

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.distinct import distinct_numbers
from ncclscope.analysis.waiting.arrivals import Arrivals
from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.analysis.waiting.slopes import slopes, slopes_from_next
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints

TIGHT_NS = 60_000  # seen on H200: 8 to 55 µs between serialised kernels of two streams
LITTLE_WAIT = 0.1  # of the work behind it: hides none of it
_LONG_WAIT = 0.7  # of the usual gap: a wait that shows whether the gap shrinks by it
LONGER_WAIT = 1.2  # times the gap of other ranks: less may leave some of it, as work varies
_SHRUNK = 0.6  # of the usual gap
LEAST_TELLING = 3
_OWN_GAPS = (
    0.2  # of the starts of a rank: fewer that did not wait are of other steps, as evaluation
)
_ALIKE = 1.3  # how far gaps may differ that are the part of the work which needs the end
_AGREE = 0.5  # slopes
_FEW_RANKS = 2  # that wait: one of them may be the only one whose waits vary
_Gaps = tuple[Ints, Ints, Ints, Ints]  # by start: cell, rank, gap, wait


def overlaps_wait(
    kernels: Kernels, arrivals: Arrivals, before: Numbers, edge: npt.NDArray[np.int8],
    length: Ints, place: tuple[Ints, npt.NDArray[np.int8]],
) -> Bools:  # fmt: skip
    """By kernel whether work before it runs beside the kernel that it follows. `place`: position
    with calls back, and calls back. Where a position shows too little, others decide at which such
    a kernel follows such a kernel: what runs beside a reduction may need what was received.
    """
    follows = np.flatnonzero(edge[1::3] == _abi.EDGE_GPU)
    overlapped = np.zeros(len(edge) // 3, bool)
    if not len(follows):
        return overlapped
    cell, back = place[0][follows].astype(np.int64), place[1][follows].astype(np.int64)
    behind = before[1::3][follows] // 3
    kinds = int(kernels.kind.max()) + 1
    both = kernels.kind[follows].astype(np.int64) * kinds + kernels.kind[behind]
    kind = factorize(both * (int(back.max()) + 1) + back)[0].astype(np.int64)
    gap, wait = length[1::3][follows], arrivals.wait_ns[behind]
    rank = kernels.rank[follows].astype(np.int64)
    call = follows - kernels.first_of_rank[rank]
    share = _shrinks(cell, rank, gap, wait)
    share = np.where(np.isnan(share), -gap_slopes(cell, rank, gap, wait, call), share)
    # Where nobody waits, a transfer that takes long on one rank shows the same.
    transfer = length[2::3][behind]
    usual = quantile_by_group(cell, int(cell.max(initial=0)) + 1, transfer, 0.5)[cell]
    longer = np.maximum(transfer - usual, 0.0).astype(np.int64)
    share = np.where(np.isnan(share), _shrinks(cell, rank, gap, longer), share)
    for by_kind in (_of_others(kind, share), _shrinks(kind, None, gap, wait)):
        share = np.where(np.isnan(share), by_kind, share)
    overlapped[follows] = share > 0.5
    return overlapped


def held_by_its_end(cell: Ints, gap: Ints, wait: Ints, took: Ints) -> Bools:
    """By start beside a kernel whether that one ended so late that the last part of the work, which
    needs the end, decided when the start came. That part is what is left behind waits that are
    longer than all of the work. `took`: how long the kernel lasted.
    """
    held = np.zeros(len(gap), bool)
    rows = np.flatnonzero(gap > TIGHT_NS)
    if not len(rows):
        return held
    of, cells = cell[rows], int(cell.max()) + 1
    short = wait[rows] < LITTLE_WAIT * gap[rows]
    whole = quantile_by_group(of[short], cells, (took + gap)[rows[short]], 0.5)
    telling = rows[wait[rows] > whole[of]]
    seen = np.bincount(cell[telling], minlength=cells)
    least, last, most = (
        quantile_by_group(cell[telling], cells, gap[telling], share) for share in (0.1, 0.5, 0.9)
    )
    shown = (seen >= LEAST_TELLING) & (most <= _ALIKE * least) & (last < _SHRUNK * whole)
    held[rows] = shown[of] & (took[rows] + last[of] > whole[of]) & (gap[rows] <= _ALIKE * last[of])
    return held


def _of_others(kind: Ints, share: Floats) -> Floats:
    """By start the share of starts of its kind, at positions that show it, whose gaps shrink; NaN
    where no position does. Positions of the first steps occur once on each rank, and show nothing.
    """
    kinds = int(kind.max(initial=0)) + 1
    known = ~np.isnan(share)
    seen = np.bincount(kind[known], minlength=kinds)
    shrink = np.bincount(kind[known], share[known] > 0.5, minlength=kinds)
    return np.where(seen >= LEAST_TELLING, shrink / np.maximum(seen, 1), np.nan)[kind]


def _shrinks(cell: Ints, rank: Ints | None, gap: Ints, wait: Ints) -> Floats:
    """By start the share of long waits after which gaps of its cell shrank; NaN: too few. Gaps of a
    rank that nearly always waits are compared with those of others, and without ranks all are:
    there may be less work than at those, so only a gap that is gone has shrunk. Of a rank, one that
    is left says something after a wait longer than the gap: a shorter one leaves a part of it, and
    where others are slow it looks alike.
    """
    cells = int(cell.max(initial=0)) + 1
    short = (wait < LITTLE_WAIT * gap) & (gap > TIGHT_NS)
    usual_gap = quantile_by_group(cell[short], cells, gap[short], 0.5)[cell]
    own_gap = np.full(len(cell), np.nan)
    if rank is not None:
        own = cell * (int(rank.max(initial=0)) + 1) + rank
        count = int(own.max(initial=0)) + 1
        own_gap = quantile_by_group(own[short], count, gap[short], 0.5)
        free = np.bincount(own[short], minlength=count)
        own_gap[free < _OWN_GAPS * np.bincount(own, minlength=count)] = np.nan
        own_gap = own_gap[own]
    limit = np.where(
        np.isnan(own_gap), np.minimum(TIGHT_NS, _SHRUNK * usual_gap), _SHRUNK * own_gap
    )
    telling = wait > _LONG_WAIT * np.where(np.isnan(own_gap), usual_gap, own_gap)
    if rank is not None:
        telling &= ~np.isnan(own_gap) | (gap < limit) | (wait > LONGER_WAIT * usual_gap)
    seen = np.bincount(cell[telling], minlength=cells)
    shrank = np.bincount(cell[telling & (gap < limit)], minlength=cells)
    return np.where(seen >= LEAST_TELLING, shrank / np.maximum(seen, 1), np.nan)[cell]


def gap_slopes(cell: Ints, rank: Ints, gap: Ints, wait: Ints, call: Ints) -> Floats:
    """By start how gaps of its cell change with waits, on the same rank: -1 beside, 0 behind, NaN
    unknown. A gap that is gone says nothing. A step that is long on all ranks has longer gaps and
    other waits, whatever the work needs, so ranks are compared within a call first. Where that
    shows nothing, as where all wait alike, calls are compared. `call`: numbers of the starts, equal
    on ranks that make the same calls.

        step    rank 1: wait, gap    rank 2: wait, gap
        1       1.6, 1.1             1.3, 1.4             2.7 of work beside the kernel
        2       1.4, 2.1             0.9, 2.6             3.5
    """
    loose = gap > TIGHT_NS
    cells = int(cell.max(initial=0)) + 1
    own = cell[loose], rank[loose], gap[loose], wait[loose]
    within_calls = _slopes_of_several(own, cells, call[loose])
    slope = np.where(np.isnan(within_calls), _slopes_of_several(own, cells, None), within_calls)
    return np.asarray(slope[cell])


def _slopes_of_several(own: _Gaps, cells: int, call: Ints | None) -> Floats:
    """By cell how its gaps change with waits; NaN where one rank of several would say it alone: one
    that is slow for a while waits less then, and its gaps are longer. Where waits of the others
    vary less than their gaps do for other reasons, nobody says it: who is quick in a step waits
    longer and has a shorter gap, too. `call`: to compare within calls.
    """
    if call is not None:
        several = _made_by_several(own, call)
        own, call = _chosen(own, several), call[several]
    if not len(own[0]):
        return np.full(cells, np.nan)
    within = _within_calls(own, call)
    slope = slopes(within[0], cells, *within[1:])
    slope[_of_slow_times(slope, within)] = np.nan
    alone = _decides_alone(*within[:2], within[3])
    if alone.any():
        decided = np.zeros(cells, bool)
        decided[own[0][alone]] = True
        others = _within_calls(_chosen(own, ~alone), None if call is None else call[~alone])
        of_others = slopes(others[0], cells, *others[1:])
        of_others[~_varies_enough(*others, of_others)] = np.nan
        slope = np.where(decided, of_others, slope)
    slope[~_varies_enough(*within, slope)] = np.nan
    if call is not None:  # clocks of ranks do not agree to less
        squares = _squares(*within[:2], within[3], cells)
        slope[squares < np.bincount(own[0], minlength=cells) * float(TIGHT_NS) ** 2] = np.nan
    return slope


def _chosen(own: _Gaps, rows: Bools) -> _Gaps:
    cell, rank, gap, wait = own
    return cell[rows], rank[rows], gap[rows], wait[rows]


def _made_by_several(own: _Gaps, call: Ints) -> Bools:
    """By gap whether several ranks have one behind its call."""
    key, keys = factorize(own[0] * (int(call.max(initial=0)) + 1) + call)
    return np.asarray(np.bincount(key, minlength=keys)[key] > _FEW_RANKS)


def _within_calls(own: _Gaps, call: Ints | None) -> _Gaps:
    """Gaps and waits less the means of their calls; as they are without calls."""
    if call is None:
        return own
    cell, rank, gap, wait = own
    key, keys = factorize(cell * (int(call.max(initial=0)) + 1) + call)
    count = np.maximum(np.bincount(key, minlength=keys), 1)
    gap_mean, wait_mean = (
        (np.bincount(key, values, minlength=keys) / count).astype(np.int64)
        for values in (gap, wait)
    )
    return cell, rank, gap - gap_mean[key], wait - wait_mean[key]


def _of_slow_times(slope: Floats, own: _Gaps) -> Bools:
    """By cell whether its slope is that of a time in which its one or two ranks were slow: from
    each gap to the next one it is another. `own`: cells, ranks, gaps and waits.
    """
    cell, rank, gap, wait = own
    ranks = int(rank.max(initial=0)) + 1
    members = distinct_numbers(cell * ranks + rank)
    of_few = np.bincount(members // ranks, minlength=len(slope)) <= _FEW_RANKS
    of_few &= ~np.isnan(slope)
    rows = np.flatnonzero(of_few[cell])
    from_next = slopes_from_next(cell[rows], len(slope), rank[rows], gap[rows], wait[rows])
    return of_few & ~(np.abs(slope - from_next) < _AGREE)


def _varies_enough(cell: Ints, rank: Ints, gap: Ints, wait: Ints, slope: Floats) -> Bools:
    """By cell whether waits of its ranks vary as much as what its slope leaves of their gaps."""
    left = _squares(cell, rank, gap - np.nan_to_num(slope)[cell] * wait, len(slope))
    return np.asarray(_squares(cell, rank, wait, len(slope)) >= left)


def _squares(cell: Ints, rank: Ints, values: Ints | Floats, cells: int) -> Floats:
    """By cell the sum of the squares of values, less the means of its ranks."""
    key, keys = factorize(cell * (int(rank.max(initial=0)) + 1) + rank)
    count = np.maximum(np.bincount(key, minlength=keys), 1)
    apart = values - (np.bincount(key, values, minlength=keys) / count)[key]
    return np.asarray(np.bincount(cell, apart * apart, minlength=cells).astype(np.float64))


def _decides_alone(cell: Ints, rank: Ints, wait: Ints) -> Bools:
    """By gap whether most of what waits of its cell vary is that of its rank, where several other
    ranks wait as well.
    """
    ranks = int(rank.max(initial=0)) + 1
    key, keys = factorize(cell * ranks + rank)
    key = key.astype(np.int64)
    mean = np.bincount(key, wait, minlength=keys) / np.bincount(key, minlength=keys)
    squares = np.bincount(key, (wait - mean[key]) ** 2, minlength=keys)
    of_key = np.zeros(keys, np.int64)
    of_key[key] = cell
    total = np.bincount(of_key, squares)[of_key]
    waiting = np.bincount(of_key, squares > 0)[of_key]
    return np.asarray(((2 * squares > total) & (waiting > _FEW_RANKS))[key])
