"""Where a call stands in its rank's repeating sequence of calls.

Jobs repeat steps. The kinds of a call and of the calls before it tell where in a step it is, so no
step needs to be found: the same position on other ranks, and in other steps, is what a call is
compared with.

    calls of a rank      G R A A G R A A G …
    position (3 calls)   . . a b c d a b c

Ranks of different programs are no peers, as the stages of a pipeline: "receive, six AllReduces,
send" is a forward pass on one and a backward pass on the next. The first and the last stage make
the same calls in a circle, and are told apart by whether their only partner is a later rank or an
earlier one:

    first stage   S S R R S S R R …     S: forward     R: backward
    last stage    R R S S R R S S …     S: backward    R: forward
"""

from dataclasses import dataclass, replace

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.library import length_arg, library, pointer
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_CONTEXTS = (12, 4, 1)  # calls
LEAST_REPEATS = 8  # of a position: fewer show nothing
_SAME_PROGRAM = 0.9  # of the usual positions of two ranks in common
_MOST_PROGRAMS = 64
_MOST_CELLS = 1 << 27
_LEAST_BURSTS = 16  # calls
_MOST_DIFFERENT = 0.02  # of the calls of ranks
_BURST_GAP = 5  # times the median time from call to call
_LEAST_GAP_NS = 200_000
_SAME_LENGTH = 0.7  # of all bursts
_FAR_AHEAD = 0.5  # of all calls: made before the burst before had ended
_LATER_PERIODS = 3
_MUCH_LONGER = 1.5
_LITTLE_NS = 200_000  # more than in later periods: no start-up
_FEW_RANKS = 0.25  # of those that make a call
LEAST_PEERS = 3  # ranks that make the same call


def positions_of(kernels: Kernels) -> tuple[Numbers, int]:
    """By kernel the number of its position, and how many positions there are. Where the calls
    before do not repeat, fewer of them tell the position.
    """
    key = np.full(len(kernels), NONE, np.int64)
    for level, context in enumerate(_CONTEXTS):
        open_ = np.flatnonzero(key == NONE)
        if not len(open_):
            break
        position, positions = _positions(kernels, context)
        repeats = np.bincount(position, minlength=positions)
        enough = repeats[position[open_]] >= LEAST_REPEATS
        if context == _CONTEXTS[-1]:
            enough[:] = True
        chosen = open_[enough]
        key[chosen] = position[chosen].astype(np.int64) * len(_CONTEXTS) + level
    return _by_program(kernels, *factorize(key))


def _positions(kernels: Kernels, context: int) -> tuple[Numbers, int]:
    hashes = np.empty(len(kernels), np.int64)
    library().ncclscope_call_contexts(
        pointer(kernels.rank), pointer(kernels.kind), length_arg(kernels), context, pointer(hashes)
    )
    return factorize(hashes)


def makes_equal_calls(kernels: Kernels) -> bool:
    """Whether all ranks make the same calls in the same order, but for a few."""
    counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
    if int(counts.min()) != int(counts.max()):
        return False
    kind = kernels.kind.reshape(len(counts), -1)
    return bool((kind != kind[0]).mean() <= _MOST_DIFFERENT)


def with_burst_places(kernels: Kernels) -> Kernels:
    """Kernels whose kinds tell their places in a burst, where calls that look alike come in bursts
    of equal length: the buckets of a backward pass.
    """
    place = _burst_places(kernels)
    if place is None:
        return kernels
    number = place[kernels.call_number]
    key = kernels.kind.astype(np.int64) * (int(number.max()) + 1) + number
    return replace(kernels, kind=factorize(key)[0])


def _burst_places(kernels: Kernels) -> Ints | None:
    """By number of a call its place in a burst; None where calls do not come in bursts, or where
    ranks make different calls. A burst begins where most ranks make a call late, or start one.

        calls of most ranks    ||||      ||||      ||||
        place                  0123      0123      0123
    """
    calls = len(kernels) // len(kernels.ranks)
    if calls < _LEAST_BURSTS or not makes_equal_calls(kernels):
        return None
    call, start, end = (kernels.events_ns[:, event].reshape(-1, calls) for event in range(3))
    bursts = _bursts(np.diff(call, axis=1, prepend=0))
    if _look_alike(kernels):
        # Hosts that a full launch queue holds back call whenever a kernel of the step before has
        # ended. On the GPU nothing of NCCL runs between bursts.
        busy_until = np.maximum.accumulate(end, axis=1)
        of_starts = _bursts(start - np.roll(busy_until, 1, axis=1))
        if of_starts is not None and of_starts.show_more_than(bursts):
            ahead = call[:, of_starts.usual :] < busy_until[:, : -of_starts.usual]
            bursts = of_starts if ahead.mean() > _FAR_AHEAD else bursts
    return None if bursts is None else bursts.places(calls)


def _look_alike(kernels: Kernels) -> bool:
    """Whether calls are all of one kind, so that those before a call do not tell its position."""
    found = period_of(kernels)
    return found is not None and found[1] == 1


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Bursts of calls, most of one length."""

    first: Ints  # by burst the number of its first call
    usual: int  # calls in most of them
    count: int  # of that length

    def show_more_than(self, others: "_Bursts | None") -> bool:
        """Whether more bursts of the same length are seen here."""
        return others is None or (self.usual == others.usual and self.count > others.count)

    def places(self, calls: int) -> Ints:
        """By number of a call its place in a burst. Gaps between bursts may be too short to see, as
        before a rank became late.
        """
        lengths = np.diff(np.append(self.first, calls))
        return np.asarray((np.arange(calls) - np.repeat(self.first, lengths)) % self.usual)


def _bursts(gap_ns: Ints) -> _Bursts | None:
    """Bursts by the gaps before calls, of each rank; None where most are not of one length."""
    calls = gap_ns.shape[1]
    limit = np.maximum(_BURST_GAP * np.median(gap_ns, axis=1, keepdims=True), _LEAST_GAP_NS)
    begins = (gap_ns > limit).mean(axis=0) > 0.5
    begins[0] = True
    first = np.flatnonzero(begins)
    lengths = np.diff(np.append(first, calls))
    usual = int(np.bincount(lengths).argmax())
    count = int((lengths == usual).sum())
    if usual < 2 or count < max(_SAME_LENGTH * len(lengths), LEAST_REPEATS):
        return None
    return _Bursts(first, usual, count)


def _by_program(kernels: Kernels, position: Numbers, positions: int) -> tuple[Numbers, int]:
    """Positions of each program apart from those of others."""
    ranks = len(kernels.ranks)
    if ranks * positions > _MOST_CELLS:
        return position, positions
    key = kernels.rank.astype(np.int64) * positions + position
    times = np.bincount(key, minlength=ranks * positions).reshape(ranks, positions)
    program = _programs(kernels, position, times)
    if program is None or not program.any():
        return position, positions
    return factorize(program[kernels.rank] * positions + position)


@dataclass(frozen=True, slots=True)
class _Program:
    """Where a rank's calls usually are, and when."""

    usual: Bools  # by position
    first_ns: Ints  # by position, of its calls there
    last_ns: Ints
    span_ns: tuple[int, int]  # of all its calls
    side: int  # of its only partner

    def is_like(self, other: "_Program") -> bool:
        """Whether nearly all usual positions are the same, while both ranks were there: others may
        join an elastic job later. Their only partners are on one side.
        """
        own = self.usual & self._while(other)
        others = other.usual & other._while(self)
        either, in_both = int((own | others).sum()), int((own & others).sum())
        return self.side == other.side and (either == 0 or in_both >= _SAME_PROGRAM * either)

    def _while(self, other: "_Program") -> Bools:
        begin, end = other.span_ns
        return np.asarray((self.last_ns >= begin) & (self.first_ns <= end))


def _programs(kernels: Kernels, position: Numbers, times: Ints) -> Ints | None:
    """By rank the number of its program; None where there are too many."""
    most = times.max(axis=1, keepdims=True)
    usual = times >= np.maximum(most // 8, 3)  # most positions of a step occur once in it
    first = np.append(kernels.first_of_rank, len(kernels))
    programs: list[_Program] = []
    program_of = np.zeros(len(usual), np.int64)
    program_by_pattern: dict[tuple[bytes, int], int] = {}
    sides = _sides(kernels)
    for rank, own in enumerate(usual):
        pattern = np.packbits(own).tobytes(), int(sides[rank])
        program = program_by_pattern.get(pattern)
        if program is None:
            rows = slice(first[rank], first[rank + 1])
            made = _program(kernels, position, own, int(sides[rank]), rows)
            alike = (number for number, other in enumerate(programs) if other.is_like(made))
            program = next(alike, len(programs))
            if program == len(programs):
                programs.append(made)
            program_by_pattern[pattern] = program
        if len(programs) > _MOST_PROGRAMS:
            return None
        program_of[rank] = program
    return program_of


def _sides(kernels: Kernels) -> Ints:
    """By rank with one partner, to which it sends or from which it receives in a kernel, whether
    that is a later rank (1) or an earlier one (-1); 0 for others. Who does both at the same time
    does what its partner does.
    """
    own = np.repeat(np.arange(len(kernels)), np.diff(kernels.partner_first))
    pairs = kernels.pair[own]
    own, other = own[pairs], kernels.rank[kernels.partner[pairs]].astype(np.int64)
    sends, rank, ranks = kernels.partner_sends[pairs], kernels.rank[own], len(kernels.ranks)
    least, most = np.full(ranks, ranks), np.full(ranks, NONE)
    np.minimum.at(least, rank, other)
    np.maximum.at(most, rank, other)
    both = (
        np.bincount(own, sends, len(kernels))
        % np.maximum(np.bincount(own, minlength=len(kernels)), 1)
        > 0
    )
    has_both = np.bincount(kernels.rank, both, ranks) > 0
    return np.where((least == most) & ~has_both, np.sign(least - np.arange(ranks)), 0)


def _program(kernels: Kernels, position: Numbers, usual: Bools, side: int, rows: slice) -> _Program:
    call, place = kernels.events_ns[rows, 0], position[rows]
    first, last = np.full(len(usual), np.iinfo(np.int64).max), np.zeros(len(usual), np.int64)
    np.minimum.at(first, place, call)
    np.maximum.at(last, place, call)
    return _Program(usual, first, last, (int(call.min()), int(call.max())), side)


def start_up_of(kernels: Kernels, events_ns: Ints, own_ns: Ints) -> Bools:
    """By kernel whether it belongs to the start-up: what comes before the calls of the usual rank
    repeat, and two periods of them; a tenth of its calls at most. What takes as long there as in
    later periods is not start-up, and neither is what takes longer on few ranks alone: all ranks
    start up, and a rank whose cache is cold is late. `own_ns`: by kernel the rank's own time before
    its call, and before its start.
    """
    counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
    number = kernels.call_number
    most = np.maximum(counts // 10, 1)[kernels.rank]
    found = period_of(kernels)
    if found is None:
        return np.asarray(number < 1)
    begin, period = found
    early = number < np.minimum(begin + 2 * period, most)
    rows = np.flatnonzero(early & (number >= begin))
    call, start = events_ns[:, 0], events_ns[:, 1]
    took = np.stack([np.diff(call, prepend=call[:1]), start - call])
    as_later = _as_later(kernels, took, period, rows)
    as_later |= _is_of_few_ranks(kernels, rows, ~_as_later(kernels, own_ns.T, period, rows))
    early[rows[as_later]] = False
    return early


def _as_later(kernels: Kernels, took: Ints, period: int, rows: Ints) -> Bools:
    """By kernel of `rows` whether its rank took about as long to call and to start it as in the
    median of the next periods. `took`: how long to call all kernels, and to start them.
    """
    count = len(kernels)
    places = rows[:, None] + period * np.arange(1, 1 + _LATER_PERIODS)
    inside = places < count
    inside &= kernels.rank[np.minimum(places, count - 1)] == kernels.rank[rows, None]
    whole = inside.all(axis=1)
    places = np.minimum(places, count - 1)
    later = np.median(took[:, places], axis=2)
    alike = took[:, rows] <= _MUCH_LONGER * later + _LITTLE_NS
    return np.asarray(whole & alike.all(axis=0))


def _is_of_few_ranks(kernels: Kernels, rows: Ints, long: Bools) -> Bools:
    """By kernel of `rows` whether it is `long`, and nearly no other rank's is that makes the same
    call there.
    """
    if not long.any():
        return long
    kinds = int(kernels.kind.max()) + 1
    call, calls = factorize(kernels.call_number[rows] * kinds + kernels.kind[rows])
    ranks = np.bincount(call, minlength=calls)
    of_few = np.bincount(call, long, minlength=calls) <= _FEW_RANKS * ranks
    return np.asarray(long & (of_few & (ranks >= LEAST_PEERS))[call])


def period_of(kernels: Kernels) -> tuple[int, int] | None:
    """Of the rank with the median number of calls: from which call on they repeat, and after how
    many; None where they do not.
    """
    counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
    rank = int(np.argsort(counts, kind="stable")[len(counts) // 2])
    first = int(kernels.first_of_rank[rank])
    kinds = kernels.kind[first : first + int(counts[rank])]
    steady = kinds[len(kinds) // 4 :]  # without the beginning
    for period in _candidates(steady):
        if np.mean(steady[period:] == steady[:-period]) > 0.97:
            same = kinds[period:] == kinds[:-period]
            broken = np.flatnonzero(~same[: len(same) // 2])
            return (int(broken[-1]) + 1 if len(broken) else 0), period
    return None


def _candidates(kinds: Numbers) -> list[int]:
    """Distances between occurrences of the rarest kind, the shortest first."""
    names, count = np.unique(kinds, return_counts=True)
    if not len(names) or count.max() < 4:
        return []
    rare = names[np.argmin(np.where(count >= 4, count, np.iinfo(np.int64).max))]
    places = np.flatnonzero(kinds == rare)
    distances = [places[back:] - places[:-back] for back in range(1, min(9, len(places)))]
    periods = np.unique(np.concatenate(distances))
    return [int(period) for period in periods if 0 < period <= len(kinds) // 3]
