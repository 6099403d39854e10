"""What a report says about GPU timing, and the intervals of numbers that come from a sample."""

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

from ncclscope.analysis.groups import Group
from ncclscope.analysis.sampling import Estimate
from ncclscope.analysis.summary import Summary
from ncclscope.capture.timing_changes import off_in_words
from ncclscope.humanize import NOTHING, duration, percent, plural
from ncclscope.model.schema import TIMING_OFF
from ncclscope.report.estimates import AT_MOST, is_at_most
from ncclscope.report.tables import Cell, Column, Table, without_empty
from ncclscope.report.units import gigabytes, microseconds, size

_NOTE = (
    "95 % intervals of numbers for all operations, from those that were timed: the first calls of "
    "each size, then one of each block of calls; …: nothing longer was seen, but may have been"
)
_MAY_BE_MISSING = ("algbw", "busbw", "wire", "wait", "run")
_AT_MOST_NOTE = "≤b: at most so much: the upper end of the interval of upper bounds"


def timing_policy(summary: Summary) -> list[str]:
    """Where GPU times came from, by the processes that say so; nothing of older captures."""
    policies = Counter(
        (row.gpu_timing, row.gpu_timing_asked, row.gpu_timing_reason)
        for row in summary.model.processes
        if row.gpu_timing
    )
    texts = []
    for (policy, asked, reason), processes in policies.most_common():
        some = f" in {plural(processes, 'process', 'processes')}" if len(policies) > 1 else ""
        because = f": {reason}" if reason and asked != policy else ""
        texts.append(f"GPU timing {policy}{some} (asked for {asked}){because}")
    return [*texts, *_switched_off(summary), *_event_error(summary)]


def _switched_off(summary: Summary) -> list[str]:
    """When `ctl` had switched GPU timing off, and what that leaves uncovered."""
    rows = [row for row in summary.model.processes if row.gpu_timing_off_ns > 0]
    if not rows:
        return []
    alike: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for row in rows:
        names, seconds = zip(*row.timing_changes, strict=True) if row.timing_changes else ((), ())
        alike.setdefault(names, []).append(seconds)
    periods = [
        off_in_words(list(zip(names, map(median, zip(*seconds, strict=True)), strict=True)))
        for names, seconds in sorted(alike.items(), key=lambda item: -len(item[1]))
    ]
    some = plural(len(rows), "process", "processes")
    text = f"GPU timing was switched off by ctl in {some}"
    if any(periods):
        text += f": {'; '.join(filter(None, periods))}"
    uncovered = plural(summary.untimed.get(TIMING_OFF, 0), "operation")
    return [f"{text}; no number covers the GPU times of the {uncovered} of that time"]


def _event_error(summary: Summary) -> list[str]:
    rows = [row for row in summary.model.processes if row.event_error_ns]
    if not rows:
        return []
    excess = sorted(row.event_excess_ns for row in rows)[len(rows) // 2]
    error = max(row.event_error_ns for row in rows)
    return [f"CUDA events: {duration(excess)} taken off, exact to ±{duration(error)}"]


def interval(
    estimate: Estimate | None, text: Callable[[float | None], str], at_most: bool = False
) -> str:
    """[low, high]; an end that is not known is left open. `at_most`: of upper bounds, which say
    nothing about the lower end: ≤high.
    """
    if estimate is None:
        return NOTHING
    low, high = text(estimate.low) if estimate.low is not None else "0", "…"
    if estimate.high is not None:
        high = text(estimate.high)
    if not at_most:
        return f"[{low}, {high}]"
    return high if estimate.high is None else AT_MOST + high


def share_with_interval(
    share: float | None, estimate: Estimate | None, at_most: bool = False
) -> str:
    """37 % [35 %, 40 %]; of upper bounds: at most 40 %"""
    if estimate is None:
        return f"at most {percent(share)}" if at_most else percent(share)
    if at_most and estimate.high is not None:
        return f"at most {percent(estimate.high)}"
    return f"{percent(share)} {interval(estimate, percent)}"


def _key_text(key: str, value: object) -> str:
    if value is None:
        return NOTHING
    return size(value) if key == "size" and isinstance(value, int) else str(value)


def _row(name: tuple[str, ...], group: Group) -> tuple[Cell, ...]:
    sample, at_most = group.sample, is_at_most(group)
    assert sample
    return (
        *name,
        f"{sample.timed:,} of {sample.operations:,}",
        interval(sample.total_ns, duration, at_most),
        interval(sample.median_ns, microseconds, at_most),
        interval(sample.mean_ns, microseconds, at_most),
        interval(sample.p99_ns, microseconds, at_most),
        interval(sample.algbw_gbs, gigabytes),
        interval(sample.busbw_gbs, gigabytes),
        interval(sample.busbw_wire_gbs, gigabytes),
        interval(sample.wait_share or sample.relative_wait_share, percent),
        interval(sample.run_share, percent, at_most),
    )


def _key_column(key: str, keys: tuple[str, ...], groups: list[Group]) -> Column:
    """A column of what groups differ in. On a narrow terminal the datatype goes, where groups
    differ in something else, too.
    """
    others = [other for other in keys if other != key]
    distinct = {tuple(group.keys.get(other) for other in others) for group in groups}
    can_go = key == "datatype" and len(distinct) == len(groups)
    return Column(key, right=key in ("size", "rank", "tag"), drop=int(can_go))


def _totals(summary: Summary, most: int) -> Iterator[tuple[str, Group]]:
    """Sums that other tables show, by what they are of."""
    yield "all", summary.total
    if summary.by[0] == "communicator" and len(summary.communicators) > 1:
        yield from ((row.name, row.total) for row in summary.communicators[:most])
    if len(summary.scopes) > 1:
        yield from ((row.scope, row.total) for row in summary.scopes)
    for key, groups in (("module", summary.modules), ("dimension", summary.dimensions)):
        yield from ((f"{key} {group.keys[key]}", group) for group in groups[:most])


def intervals(summary: Summary, groups: tuple[Group, ...], most: int) -> Table | None:
    """Intervals of the whole, of communicators and of groups; None where all was timed."""
    if summary.total.sample is None:
        return None
    keys = summary.by
    own = [group for group in groups[:most] if group.sample]
    columns = (
        *(_key_column(key, keys, own) for key in keys),
        Column("timed"), Column("GPU time"), Column("median", drop=3), Column("mean", drop=6),
        Column("p99", drop=4), Column("algbw", drop=8), Column("busbw"), Column("wire", drop=7),
        Column("wait", drop=2), Column("run", drop=5),
    )  # fmt: skip
    blank = ("",) * (len(keys) - 1)
    totals = [(name, group) for name, group in _totals(summary, most) if group.sample]
    rows = [_row((name, *blank), group) for name, group in totals]
    rows += [
        _row(tuple(_key_text(key, group.keys.get(key)) for key in keys), group) for group in own
    ]
    left = sum(group.sample is not None for group in groups) - len(own)
    notes = [_NOTE, *([f"{plural(left, 'more row')}: --json shows them"] if left > 0 else [])]
    if any(map(is_at_most, (*own, *(group for _, group in totals)))):
        notes.append(_AT_MOST_NOTE)
    rest = summary.total.operations - summary.total.sample.operations
    if rest > 0:
        some = plural(rest, "operation")
        notes.append(f"{some} could not be sampled, and no number above covers their time")
    table = Table("from a sample", columns, tuple(rows), tuple(notes))
    return without_empty([table], _MAY_BE_MISSING)[0]
