"""Values with their 95 % intervals, by resampling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
_DRAWS = 1000
_TAILS = (2.5, 97.5)  # percent
_SEED = 1


@dataclass(frozen=True, slots=True)
class ResampledValue:
    """A value with its interval."""

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
    """The median of rounds, and its interval by resampling rounds."""
    array = np.asarray(values, np.float64)
    draws = np.random.default_rng(_SEED).choice(array, (_DRAWS, len(array)))
    return _estimate(float(np.median(array)), np.median(draws, axis=1))


def median_ratio(above: Times, below: Times, paired: bool) -> ResampledValue:
    """The ratio of medians of two sets of calls; pairs of calls stay together."""
    chance = np.random.default_rng(_SEED)
    first = chance.integers(0, len(above), (_DRAWS, len(above)))
    second = first if paired else chance.integers(0, len(below), (_DRAWS, len(below)))
    draws = np.median(above[first], axis=1) / np.median(below[second], axis=1)
    return _estimate(float(np.median(above) / np.median(below)), draws)
