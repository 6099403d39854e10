"""What each variant costs, from rounds in which every variant ran once: medians and intervals.

Variants are compared within a round, because machines drift from round to round. The interval of a
comparison is that of the median over rounds, by bootstrap. The noise is the same comparison of a
variant with itself.
"""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95
_DRAWS = 4000
FEWEST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Share:
    """How much more one variant costs than another, 0.01 for 1 %, with its 95 % interval."""

    share: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    def as_json(self) -> dict[str, float]:
        """The share and its interval as fractions, not percent."""
        return {name: round(getattr(self, name), 6) for name in self.__slots__}


def bootstrap_interval(
    resample: Callable[[random.Random], float], draws: int = _DRAWS, seed: int = 1
) -> tuple[float, float]:
    """The interval that holds `LEVEL` of the results of `resample`, which draws anew each time."""
    chance = random.Random(seed)
    results = sorted(resample(chance) for _ in range(draws))
    tail = (1 - LEVEL) / 2
    return results[int(tail * draws)], results[int((1 - tail) * draws) - 1]


def share_of(costs: Sequence[float], against: Sequence[float], seed: int = 1) -> Share:
    """The median over rounds of cost / other cost - 1, and its interval."""
    ratios = [cost / other - 1 for cost, other in zip(costs, against, strict=True)]
    low, high = bootstrap_interval(
        lambda chance: statistics.median(chance.choices(ratios, k=len(ratios))), seed=seed
    )
    return Share(statistics.median(ratios), low, high)


@dataclass(frozen=True, slots=True)
class OverheadShares:
    """What each part of profiling adds, in wall time or in CPU time. None: not measured."""

    ours: Share  # the plugin, relative to the empty one
    nccl: Share | None  # the empty plugin, relative to none
    total: Share | None  # the plugin, relative to none
    noise: Share  # a variant, relative to itself
    events: tuple[tuple[str, Share], ...] = ()  # NCCL's share by step, relative to the step before

    @property
    def answer(self) -> Share:
        """What the plugin adds, relative to none if that was measured."""
        return self.total or self.ours

    @property
    def noise_share(self) -> float:
        """The largest share that can be noise."""
        return max(abs(self.noise.low), abs(self.noise.high))

    def resolved(self, share: Share) -> bool:
        """Whether a share is more than noise."""
        return share.excludes_zero and abs(share.share) > self.noise_share

    def step(self, name: str) -> Share | None:
        """NCCL's share for a step of events; None if it was not measured."""
        return dict(self.events).get(name)

    def as_json(self) -> dict[str, Any]:
        """All shares, and whether the answer is resolved."""
        return {
            "total": self.total.as_json() if self.total else None,
            "nccl": self.nccl.as_json() if self.nccl else None,
            "events": {name: share.as_json() for name, share in self.events},
            "ours": self.ours.as_json(),
            "noise": self.noise.as_json(),
            "noise_share": round(self.noise_share, 6),
            "resolved": self.resolved(self.answer),
        }


def overhead_shares(
    costs: Mapping[str, Sequence[float]], steps: Sequence[str] = ()
) -> OverheadShares:
    """The shares from the costs of `none`, `none again`, `empty` and `ours`, round by round.

    `steps` are the steps of events in order; the last one's cost is that of `empty`, and steps
    without a cost are left out. If nothing can be measured without a plugin, `empty again` takes
    the place of the first two.
    """
    ours, events = share_of(costs["ours"], costs["empty"]), _event_shares(costs, steps)
    if "none" not in costs:
        noise = share_of(costs["empty again"], costs["empty"])
        return OverheadShares(ours, None, None, noise, events)
    return OverheadShares(
        ours,
        share_of(costs["empty"], costs["none"]),
        share_of(costs["ours"], costs["none"]),
        share_of(costs["none again"], costs["none"]),
        events,
    )


def _event_shares(
    costs: Mapping[str, Sequence[float]], steps: Sequence[str]
) -> tuple[tuple[str, Share], ...]:
    """What each step of events adds to the one before it, the first to no plugin."""
    before, shares = costs.get("none"), []
    for name in steps:
        cost = costs["empty"] if name == steps[-1] else costs.get(step_variant(name))
        if cost is not None and before is not None:
            shares.append((name, share_of(cost, before)))
        before = cost if cost is not None else before
    return tuple(shares)


def step_variant(step: str) -> str:
    """The variant whose empty plugin asks for the events up to a step."""
    return f"empty up to {step}"


def order_of_round(variants: Sequence[str], number: int, seed: int = 2) -> list[str]:
    """The variants in the random order of a round; a round always has the same order."""
    return random.Random(seed * 1_000_003 + number).sample(list(variants), len(variants))
