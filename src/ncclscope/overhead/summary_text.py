"""The table and the verdict of `ncclscope overhead`, as text and JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclscope._version import __version__
from ncclscope.humanize import three_digits
from ncclscope.json_answers import VERSION
from ncclscope.overhead.advice import advice_lines
from ncclscope.overhead.event_steps import STEPS, steps_of
from ncclscope.overhead.statistics import OverheadShares, Share, overhead_shares
from ncclscope.overhead.trials import OverheadTrial

_MORE_ROUNDS = 4  # times as many halve an interval
Costs = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class OverheadResult:
    """What all rounds cost by variant, and what follows from it."""

    trial: OverheadTrial
    mask: int  # the events that the recorder asks for
    costs: Costs
    wall: OverheadShares  # or that of a number that the command prints
    cpu_costs: Costs
    cpu: OverheadShares | None  # None: the ranks are not descendants of the command

    @property
    def rounds(self) -> int:
        """The rounds that count."""
        return len(self.costs["ours"])


def overhead_result(
    trial: OverheadTrial, mask: int, costs: Costs, cpu_costs: Costs
) -> OverheadResult:
    """The shares of all parts, from costs by variant and round."""
    steps = [step.name for step in steps_of(mask)]
    measurable = trial.cpu_is_known and all(min(values) > 0 for values in cpu_costs.values())
    cpu = overhead_shares(cpu_costs, steps) if measurable else None
    return OverheadResult(trial, mask, costs, overhead_shares(costs, steps), cpu_costs, cpu)


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


def _median_text(trial: OverheadTrial, costs: Sequence[float]) -> str:
    median = statistics.median(costs)
    if trial.counts_calls:
        return f"{1 / median:,.0f} calls/s"
    if trial.metric is not None:
        return f"{1 / median:g}" if trial.metric_is_rate else f"{median:g}"
    return _cost(median)


def variant_name(trial: OverheadTrial, variant: str) -> str:
    """A variant's name in the table."""
    ours = f"ncclscope ({trial.settings.mode})"
    if trial.plugin.name != "libnccl-profiler-ncclscope.so":
        ours = trial.plugin.name
    names = {"none": "no plugin", "empty": "empty plugin", "ours": ours}
    return names.get(variant, variant)


def verdict_line(result: OverheadResult) -> str:
    """What the plugin costs against none; no verdict where the noise is larger."""
    name = variant_name(result.trial, "ours")
    against = "no plugin" if result.wall.total else "an empty plugin"
    parts = [_verdict(result.wall, result.trial.quantity)]
    if result.cpu:
        parts.append(_verdict(result.cpu, "CPU time"))
    line = f"verdict: {name} against {against}: {'; '.join(parts)}"
    unclear = not result.wall.resolved(result.wall.answer)
    more = f". --rounds {result.rounds * _MORE_ROUNDS} would halve the interval"
    return line + (more if unclear else "")


def _verdict(shares: OverheadShares, quantity: str) -> str:
    share = shares.answer
    if shares.resolved(share):
        return f"{quantity} {percent(share.share)} {_interval(share)}"
    return (
        f"{quantity} cannot be told from noise, ±{100 * shares.noise_share:.2g} % here, and is at "
        f"most {percent(max(share.high, 0.0))}"
    )


def _row(name: str, *columns: tuple[str, Share | None]) -> str:
    """A line: its name, and a median with what it adds for each quantity."""
    text = f"{name:<34}"
    for median, share in columns:
        adds = f"{percent(share.share):>9}  {_interval(share):<18}" if share else " " * 29
        text += f"{median:>14}  {adds}"
    return text.rstrip()


def lines(result: OverheadResult) -> list[str]:
    """The answer, NCCL's own share event by event, the verdict, and what to set."""
    return [
        f"{result.rounds} rounds, {result.trial.measures}; "
        "every line with the 95 % interval of what it adds",
        "",
        *_answer_lines(result),
        "",
        *_part_lines(result),
        "",
        verdict_line(result),
        *advice_lines(result.trial, result.wall, result.cpu),
    ]


def _columns(
    result: OverheadResult, variant: str, wall: Share | None, cpu: Share | None
) -> list[tuple[str, Share | None]]:
    """A row's medians and shares; without a variant the medians are empty."""
    median = _median_text(result.trial, result.costs[variant]) if variant else ""
    columns = [(median, wall)]
    if result.cpu:
        cpu_median = _cost(statistics.median(result.cpu_costs[variant])) if variant else ""
        columns.append((cpu_median, cpu))
    return columns


def _answer_lines(result: OverheadResult) -> list[str]:
    """The plugin against none, and the noise."""
    trial, wall, cpu = result.trial, result.wall, result.cpu
    heading = f"{'':<34}{trial.quantity:>14}{'adds':>11}{'':<20}"
    heading += f"{'CPU time':>14}{'adds':>11}" if cpu else ""
    base = "none" if wall.total else "empty"
    rows = [
        heading.rstrip(),
        _row(variant_name(trial, base), *_columns(result, base, None, None)),
        _row(
            variant_name(trial, "ours"),
            *_columns(result, "ours", wall.answer, cpu.answer if cpu else None),
        ),
        _row(
            f"noise: {variant_name(trial, base)} again",
            *_columns(result, "", wall.noise, cpu.noise if cpu else None),
        ),
    ]
    if not wall.total:
        rows.append(
            "against no plugin it is not known: without one nobody counts calls; --rate or --time "
            "would tell"
        )
    if not cpu:
        rows.append("CPU time is not known: the ranks do not run as children of the command")
    return rows


def _part_lines(result: OverheadResult) -> list[str]:
    """NCCL's own share by steps of events, and the recorder's over an empty plugin."""
    wall, cpu = result.wall, result.cpu
    texts = {step.name: step.text for step in STEPS}
    rows = [f"of this, NCCL itself for events {result.mask:#x}, asked for by an empty plugin:"]
    rows += [
        _row(f"  {texts[name]}", *_columns(result, "", share, cpu.step(name) if cpu else None))
        for name, share in wall.events
    ]
    if wall.nccl:
        rows.append(_row("  together", *_columns(result, "", wall.nccl, cpu.nccl if cpu else None)))
    own = f"{variant_name(result.trial, 'ours')} itself"
    return [*rows, _row(own, *_columns(result, "", wall.ours, cpu.ours if cpu else None))]


def as_json(result: OverheadResult) -> dict[str, Any]:
    """The result as a JSON object; costs are seconds, or seconds for a unit of work."""
    trial = result.trial
    return {
        "version": VERSION,
        "ncclscope": __version__,
        "command": list(trial.command),
        "mode": trial.settings.mode,
        "plugin": str(trial.plugin),
        "events": result.mask,
        "measures": trial.measures,
        "rounds": result.rounds,
        "costs": {name: list(values) for name, values in result.costs.items()},
        "shares": result.wall.as_json(),
        "cpu_costs": {name: list(values) for name, values in result.cpu_costs.items()},
        "cpu_shares": result.cpu.as_json() if result.cpu else None,
        "advice": advice_lines(trial, result.wall, result.cpu),
    }
