"""What costs how much, out of rounds in which every variant ran once: medians and their intervals.

Variants of one round are compared with each other, because machines drift from round to round. A
comparison's interval is that of the median over rounds, by bootstrap. The noise is what the same
comparison says of a variant against itself.
"""

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95
_DRAWS = 4000
FEWEST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Share:
    """How much more one variant costs than another: 0.01 is 1 %. The interval holds 95 %."""

    share: float
    low: float
    high: float

    @property
    def excludes_nothing(self) -> bool:
        """Whether no difference at all is outside the interval."""
        return self.low > 0 or self.high < 0

    def as_json(self) -> dict[str, float]:
        """Shares, not percent."""
        return {name: round(getattr(self, name), 6) for name in self.__slots__}


def share_of(costs: Sequence[float], against: Sequence[float], seed: int = 1) -> Share:
    """The median over rounds of cost / cost - 1, and its interval."""
    ratios = [cost / other - 1 for cost, other in zip(costs, against, strict=True)]
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_DRAWS)
    )
    tail = (1 - LEVEL) / 2
    low, high = medians[int(tail * _DRAWS)], medians[int((1 - tail) * _DRAWS) - 1]
    return Share(statistics.median(ratios), low, high)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All comparisons that could be made. None: a variant was not measured."""

    ours: Share  # the plugin over the empty one
    nccl: Share | None  # the empty plugin over none
    both: Share | None  # the plugin over none
    noise: Share  # a variant over itself

    @property
    def noise_share(self) -> float:
        """How far from nothing the noise reaches."""
        return max(abs(self.noise.low), abs(self.noise.high))

    def resolved(self, share: Share) -> bool:
        """Whether a share is more than noise."""
        return share.excludes_nothing and abs(share.share) > self.noise_share

    def as_json(self) -> dict[str, Any]:
        """With what can be said of it."""
        return {
            "ours": self.ours.as_json(),
            "nccl": self.nccl.as_json() if self.nccl else None,
            "both": self.both.as_json() if self.both else None,
            "noise": self.noise.as_json(),
            "noise_share": round(self.noise_share, 6),
            "resolved": self.resolved(self.ours),
        }


def verdict_of(costs: Mapping[str, Sequence[float]]) -> Verdict:
    """What rounds of `none`, `none again`, `empty` and `ours` say.

    Where nothing can be measured without a plugin, `empty again` takes the place of the first two.
    """
    ours = share_of(costs["ours"], costs["empty"])
    if "none" not in costs:
        return Verdict(ours, None, None, share_of(costs["empty again"], costs["empty"]))
    return Verdict(
        ours,
        share_of(costs["empty"], costs["none"]),
        share_of(costs["ours"], costs["none"]),
        share_of(costs["none again"], costs["none"]),
    )


def order_of_round(variants: Sequence[str], number: int, seed: int = 2) -> list[str]:
    """The variants of a round in an order of chance, the same each time it is asked for."""
    return random.Random(seed * 1_000_003 + number).sample(list(variants), len(variants))
