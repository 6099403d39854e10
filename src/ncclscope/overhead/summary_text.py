"""The verdict in words."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ncclscope._version import __version__
from ncclscope.humanize import three_digits
from ncclscope.overhead.statistics import Share, Verdict
from ncclscope.overhead.trials import Trial

_MORE_ROUNDS = 4  # times as many halve an interval


def percent(share: float) -> str:
    """0.0123 -> +1.2 %, with more places where it is small."""
    value = 100 * share
    return f"{value:+.2f} %" if abs(value) < 1 else f"{value:+.1f} %"


def _interval(share: Share) -> str:
    return f"[{percent(share.low)[:-2]}, {percent(share.high)[:-2]}] %"


def _cost(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{three_digits(seconds * scale)} {unit}"
    return f"{three_digits(seconds * 1e6)} µs"


def _middle(trial: Trial, costs: Sequence[float]) -> str:
    middle = statistics.median(costs)
    if trial.seconds and trial.metric is None:
        return f"{1 / middle:,.0f} calls/s"
    if trial.metric is not None:
        return f"{1 / middle:g}" if trial.metric_is_rate else f"{middle:g}"
    return _cost(middle)


def name_of(trial: Trial, variant: str) -> str:
    """A variant in words."""
    ours = f"ncclscope ({trial.settings.mode})"
    if trial.plugin.name != "libnccl-profiler-ncclscope.so":
        ours = trial.plugin.name
    names = {"none": "no plugin", "empty": "empty plugin", "ours": ours}
    return names.get(variant, variant)


def verdict_line(trial: Trial, verdict: Verdict, rounds: int) -> str:
    """What may be said; no verdict where noise is larger."""
    ours, noise = verdict.ours, verdict.noise_share
    name = name_of(trial, "ours")
    if verdict.resolved(ours):
        how = "costs" if ours.share > 0 else "seems to save"
        return f"verdict: {name} {how} {percent(abs(ours.share))[1:]} {_interval(ours)}"
    return (
        f"verdict: none. The share of {name} cannot be told from noise, ±{100 * noise:.2g} % "
        f"here. It is at most {percent(max(ours.high, 0.0))}. "
        f"--rounds {rounds * _MORE_ROUNDS} would halve the interval"
    )


def lines(
    trial: Trial, mask: int, costs: Mapping[str, Sequence[float]], verdict: Verdict
) -> list[str]:
    """The table and the verdict."""
    rounds = len(costs["ours"])
    heading = f"{'':<28}{'median':>16}  {'adds':>9}  {'95 % interval':<20}"
    rows = [(name, costs[name], share, what) for name, share, what in (
        ("none", None, ""),
        ("empty", verdict.nccl, "NCCL's own share for having a profiler"),
        ("ours", verdict.ours, "its own share, over the empty plugin"),
    ) if name in costs]  # fmt: skip
    found = [
        f"{rounds} rounds, {trial.measures}; the empty plugin asks for the same events, {mask:#x}",
        "",
        heading.rstrip(),
    ]
    for name, values, share, what in rows:
        shown = f"{percent(share.share):>9}  {_interval(share):<20}  {what}" if share else ""
        found.append(f"{name_of(trial, name):<28}{_middle(trial, values):>16}  {shown}".rstrip())
    if verdict.both:
        both = verdict.both
        found.append(
            f"{'both together':<28}{'':>16}  {percent(both.share):>9}  {_interval(both):<20}  "
            "over no plugin"
        )
    else:
        found.append(
            "NCCL's own share is not known: without a plugin nobody counts calls; --rate or --time "
            "would tell"
        )
    noise = verdict.noise
    same = "no plugin" if verdict.nccl else "the empty plugin"
    found.append(
        f"{'noise':<28}{'':>16}  {percent(noise.share):>9}  {_interval(noise):<20}  "
        f"{same} against itself"
    )
    return [*found, "", verdict_line(trial, verdict, rounds)]


def as_json(
    trial: Trial, mask: int, costs: Mapping[str, Sequence[float]], verdict: Verdict
) -> dict[str, Any]:
    """For machines; costs are seconds, or seconds for a unit of work."""
    return {
        "ncclscope": __version__,
        "command": list(trial.command),
        "mode": trial.settings.mode,
        "plugin": str(trial.plugin),
        "events": mask,
        "measures": trial.measures,
        "rounds": len(costs["ours"]),
        "costs": {name: list(values) for name, values in costs.items()},
        "shares": verdict.as_json(),
    }
