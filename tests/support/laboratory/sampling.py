"""Which collectives the plugin times by CUDA events: as native/src/sampling.c chooses them.

Of each key (communicator, function, size) the first _FIRST calls, then one in each block of
`every` calls, at a place that a hash moves from block to block: the same calls on all ranks.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from tests.support.laboratory.events import Kernel

_FIRST = 8
_WORD = (1 << 64) - 1


def sampled(kernels: list[Kernel], every: int) -> npt.NDArray[np.bool_]:
    """By kernel of one rank, in their order, whether it is timed."""
    calls: Counter[tuple[int, str, int]] = Counter()
    chosen = np.zeros(len(kernels), bool)
    for row, kernel in enumerate(kernels):
        part, communicator = kernel.parts[0], kernel.communicator
        assert communicator is not None
        if part.peer < 0:
            key = communicator.number, part.function, part.size_bytes
            chosen[row] = _is_chosen(communicator.number, part.size_bytes, calls[key], every)
            calls[key] += 1
    return chosen


def _is_chosen(communicator: int, size: int, calls: int, every: int) -> bool:
    if calls < _FIRST:
        return True
    block, place = divmod(calls - _FIRST, every)
    mixed = _mixed(_mixed(communicator + 0x9E3779B97F4A7C15 * block) ^ size)
    return mixed % every == place


def _mixed(value: int) -> int:
    """splitmix64."""
    value &= _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31
