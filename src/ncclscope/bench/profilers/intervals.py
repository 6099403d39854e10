"""Values with their 95 % intervals by resampling, or with the range of a few rounds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
_DRAWS = 1000
_TAILS = (2.5, 97.5)  # percent
_SEED = 1
# The median lies outside of the range of five rounds in 1 of 16 cases, of six in 1 of 32: fewer
# cannot give an interval of 95 %.
_FEWEST_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class ResampledValue:
    """A value with its interval; of fewer than six rounds with their range."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """The value and its interval."""
        return {name: round(getattr(self, name), 6) for name in self.__slots__}


def _estimate(value: float, draws: npt.NDArray[Any]) -> ResampledValue:
    low, high = np.percentile(draws, _TAILS)
    return ResampledValue(float(value), float(low), float(high))


def median_of(values: Sequence[float]) -> ResampledValue:
    """The median of rounds with its interval by resampling rounds; of a few, with their range."""
    array = np.asarray(values, np.float64)
    if len(array) < _FEWEST_ROUNDS:
        return ResampledValue(float(np.median(array)), float(array.min()), float(array.max()))
    draws = np.random.default_rng(_SEED).choice(array, (_DRAWS, len(array)))
    return _estimate(float(np.median(array)), np.median(draws, axis=1))


def label_of(rounds: Collection[int]) -> str:
    """What the brackets of a table hold, by the rounds of its rows. range of 2 to 3 rounds"""
    several = [number for number in rounds if number > 1]  # a single round has no brackets
    if not several:
        return ""
    fewest, most = min(several), max(several)
    if fewest >= _FEWEST_ROUNDS:
        return "95 %"
    if most >= _FEWEST_ROUNDS:
        return f"95 %, range below {_FEWEST_ROUNDS} rounds"
    return f"range of {fewest} rounds" if fewest == most else f"range of {fewest} to {most} rounds"


def median_ratio(above: Times, below: Times, paired: bool) -> ResampledValue:
    """The ratio of medians of two sets of calls; pairs of calls stay together."""
    chance = np.random.default_rng(_SEED)
    first = chance.integers(0, len(above), (_DRAWS, len(above)))
    second = first if paired else chance.integers(0, len(below), (_DRAWS, len(below)))
    draws = np.median(above[first], axis=1) / np.median(below[second], axis=1)
    return _estimate(float(np.median(above) / np.median(below)), draws)
