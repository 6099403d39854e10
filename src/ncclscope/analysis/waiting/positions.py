"""Where a call stands in its rank's repeating sequence of calls.

Jobs repeat steps. The kinds of a call and of the calls before it tell where in a step it is, so no
step needs to be found: the same position on other ranks, and in other steps, is what a call is
compared with.

    calls of a rank      G R A A G R A A G …
    position (3 calls)   . . a b c d a b c

Ranks of different programs are no peers, as the stages of a pipeline: "receive, six AllReduces,
send" is a forward pass on one and a backward pass on the next.
"""

import numpy as np

from ncclscope.analysis.waiting.kernels import Kernels, Numbers
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.library import length_arg, library, pointer
from ncclscope.arrays.types import Bools, Ints
from ncclscope.model.schema import NONE

_CONTEXTS = (12, 4, 1)  # calls
_LEAST_REPEATS = 8
_SAME_PROGRAM = 0.9  # of the usual positions of two ranks in common
_MOST_PROGRAMS = 64
_MOST_CELLS = 1 << 27


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
        enough = repeats[position[open_]] >= _LEAST_REPEATS
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


def _by_program(kernels: Kernels, position: Numbers, positions: int) -> tuple[Numbers, int]:
    """Positions of each program apart from those of others."""
    ranks = len(kernels.ranks)
    if ranks * positions > _MOST_CELLS:
        return position, positions
    key = kernels.rank.astype(np.int64) * positions + position
    times = np.bincount(key, minlength=ranks * positions).reshape(ranks, positions)
    program = _programs(times)
    if program is None or not program.any():
        return position, positions
    return factorize(program[kernels.rank] * positions + position)


def _programs(times: Ints) -> Ints | None:
    """By rank the number of its program; None where there are too many."""
    most = times.max(axis=1, keepdims=True)
    usual = times >= np.maximum(most // 8, 3)  # most positions of a step occur once in it
    distinct, of_rank = np.unique(usual, axis=0, return_inverse=True)
    programs: list[Bools] = []
    program_of = np.zeros(len(distinct), np.int64)
    for number, own in enumerate(distinct):
        for program, others in enumerate(programs):
            either = int((own | others).sum())
            if either == 0 or int((own & others).sum()) >= _SAME_PROGRAM * either:
                program_of[number] = program
                break
        else:
            program_of[number] = len(programs)
            programs.append(own)
        if len(programs) > _MOST_PROGRAMS:
            return None
    return program_of[of_rank.reshape(-1)]


def start_up_of(kernels: Kernels) -> Bools:
    """By kernel whether it belongs to the start-up: what comes before the calls of the usual rank
    repeat, and two periods of them; a tenth of its calls at most.
    """
    counts = np.bincount(kernels.rank, minlength=len(kernels.ranks))
    number = kernels.call_number
    most = np.maximum(counts // 10, 1)[kernels.rank]
    found = period_of(kernels)
    if found is None:
        return np.asarray(number < 1)
    begin, period = found
    return np.asarray(number < np.minimum(begin + 2 * period, most))


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
