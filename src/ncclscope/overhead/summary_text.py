"""The table and the verdict of `ncclscope overhead`, as text and JSON."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ncclscope._version import __version__
from ncclscope.humanize import three_digits
from ncclscope.overhead.statistics import OverheadShares, Share
from ncclscope.overhead.trials import Trial

_MORE_ROUNDS = 4  # times as many halve an interval


def percent(share: float) -> str:
    """A share in percent with its sign, with more decimals if it is small. 0.0123 -> +1.2 %"""
    value = 100 * share
    return f"{value:+.2f} %" if abs(value) < 1 else f"{value:+.1f} %"


def _interval(share: Share) -> str:
    return f"[{percent(share.low)[:-2]}, {percent(share.high)[:-2]}] %"


def _cost(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{three_digits(seconds * scale)} {unit}"
    return f"{three_digits(seconds * 1e6)} µs"


def _median_text(trial: Trial, costs: Sequence[float]) -> str:
    median = statistics.median(costs)
    if trial.seconds and trial.metric is None:
        return f"{1 / median:,.0f} calls/s"
    if trial.metric is not None:
        return f"{1 / median:g}" if trial.metric_is_rate else f"{median:g}"
    return _cost(median)


def variant_name(trial: Trial, variant: str) -> str:
    """A variant's name in the table."""
    ours = f"ncclscope ({trial.settings.mode})"
    if trial.plugin.name != "libnccl-profiler-ncclscope.so":
        ours = trial.plugin.name
    names = {"none": "no plugin", "empty": "empty plugin", "ours": ours}
    return names.get(variant, variant)


def verdict_line(trial: Trial, shares: OverheadShares, rounds: int) -> str:
    """What the shares show; no verdict if the noise is larger."""
    ours, noise = shares.ours, shares.noise_share
    name = variant_name(trial, "ours")
    if shares.resolved(ours):
        how = "costs" if ours.share > 0 else "seems to save"
        return f"verdict: {name} {how} {percent(abs(ours.share))[1:]} {_interval(ours)}"
    return (
        f"verdict: none. The share of {name} cannot be told from noise, ±{100 * noise:.2g} % "
        f"here. It is at most {percent(max(ours.high, 0.0))}. "
        f"--rounds {rounds * _MORE_ROUNDS} would halve the interval"
    )


def lines(
    trial: Trial, mask: int, costs: Mapping[str, Sequence[float]], shares: OverheadShares
) -> list[str]:
    """The lines of the table and the verdict."""
    rounds = len(costs["ours"])
    heading = f"{'':<28}{'median':>16}  {'adds':>9}  {'95 % interval':<20}"
    rows = [(name, costs[name], share, what) for name, share, what in (
        ("none", None, ""),
        ("empty", shares.nccl, "NCCL's own share for having a profiler"),
        ("ours", shares.ours, "its own share, over the empty plugin"),
    ) if name in costs]  # fmt: skip
    output = [
        f"{rounds} rounds, {trial.measures}; the empty plugin asks for the same events, {mask:#x}",
        "",
        heading.rstrip(),
    ]
    for name, values, share, what in rows:
        adds = f"{percent(share.share):>9}  {_interval(share):<20}  {what}" if share else ""
        median = _median_text(trial, values)
        output.append(f"{variant_name(trial, name):<28}{median:>16}  {adds}".rstrip())
    if shares.both:
        both = shares.both
        output.append(
            f"{'both together':<28}{'':>16}  {percent(both.share):>9}  {_interval(both):<20}  "
            "over no plugin"
        )
    else:
        output.append(
            "NCCL's own share is not known: without a plugin nobody counts calls; --rate or --time "
            "would tell"
        )
    noise = shares.noise
    same = "no plugin" if shares.nccl else "the empty plugin"
    output.append(
        f"{'noise':<28}{'':>16}  {percent(noise.share):>9}  {_interval(noise):<20}  "
        f"{same} against itself"
    )
    return [*output, "", verdict_line(trial, shares, rounds)]


def as_json(
    trial: Trial, mask: int, costs: Mapping[str, Sequence[float]], shares: OverheadShares
) -> dict[str, Any]:
    """The result as a JSON object; costs are seconds, or seconds for a unit of work."""
    return {
        "ncclscope": __version__,
        "command": list(trial.command),
        "mode": trial.settings.mode,
        "plugin": str(trial.plugin),
        "events": mask,
        "measures": trial.measures,
        "rounds": len(costs["ours"]),
        "costs": {name: list(values) for name, values in costs.items()},
        "shares": shares.as_json(),
    }
