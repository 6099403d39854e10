"""Results as a table with nccl-tests' columns, and the distribution of times after them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ncclscope._version import __version__
from ncclscope.bench.plan import Plan
from ncclscope.bench.results import Result, Session, TimeStatistics, time_statistics
from ncclscope.humanize import percent, plural, printable
from ncclscope.nccl.releases import release_of_code, text_of

SIMULATED = "SIMULATION: no GPU and no NCCL were used; these times are no measurement"
_PLACES = ("out-of-place", "in-place")
_STATISTICS = ("median", "p99", "min", "max")


def _number(value: float | None, width: int) -> str:
    """A number in a column of that width, with as many decimals as fit."""
    if value is None:
        return "N/A".rjust(width)
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) < width:
            return text.rjust(width)
    return f"{value:.1e}".rjust(width)


def heading_lines(session: Session, plan: Plan) -> list[str]:
    """The lines above the table: versions, GPUs, and how it is measured."""
    release = text_of(release_of_code(session.nccl))
    cuda = f", CUDA {session.cuda // 1000}.{session.cuda % 1000 // 10}" if session.cuda else ""
    ends = [plural(plan.calls, "call")] if plan.calls is not None else []
    ends += [f"{plan.seconds:g} s"] if plan.seconds is not None else []
    how = [
        plural(plan.runs, "run") + " of " + " or ".join(ends),
        f"warm-up {max(plan.warm_up, 1)}",
        "each call awaited, after a barrier"
        if plan.blocking
        else "calls queued before the GPU begins"
        if plan.held
        else "calls back to back",
    ]
    how += [f"groups of {plan.grouped}"] if plan.grouped > 1 else []
    how += ["CUDA graph replays"] if plan.graph else []
    lines = [
        f"# ncclscope bench {__version__}, NCCL {release}{cuda}, {plural(session.ranks, 'rank')}",
        *([f"# {SIMULATED}"] if session.simulation else []),
        f"# {', '.join(how)}",
        *(f"# note: {printable(note)}" for note in session.notes),
        "# Using devices",
    ]
    for device in session.devices:
        bus = device.bus_id.rpartition(".")[0] or device.bus_id
        lines.append(
            f"#  Rank {device.rank:2} Group  0 Pid {device.pid:6} on {printable(device.host):>10} "
            f"device {device.device:2} [{printable(bus).lower()}] {printable(device.name)}"
        )
    return lines


def column_lines() -> list[str]:
    """The three lines of column titles: nccl-tests' columns, then the distributions."""
    left = ("size", "count", "type", "redop", "root")
    widths = (10, 12, 8, 6, 6)
    names = [text.rjust(width) for text, width in zip(left, widths, strict=True)]
    units = [
        text.rjust(width)
        for text, width in zip(("(B)", "(elements)", "", "", ""), widths, strict=True)
    ]
    body = [("time", 7, "(us)"), ("algbw", 6, "(GB/s)"), ("busbw", 6, "(GB/s)"), ("#wrong", 6, "")]
    for name, width, unit in body * 2:
        names.append(name.rjust(width))
        units.append(unit.rjust(width))
    for name in _STATISTICS * 2:
        names.append(name.rjust(8))
        units.append("(us)".rjust(8))
    over = " " * 50 + "out-of-place".center(35) + "in-place".center(31)
    over += "out-of-place".center(42) + "in-place".center(38)
    return [f"# {over}".rstrip(), f"# {'  '.join(names)}", f"# {'  '.join(units)}"]


def _body(result: Result | None) -> list[str]:
    if result is None:
        return ["N/A".rjust(7), *["N/A".rjust(6)] * 3]
    wrong = "N/A" if result.wrong is None else f"{result.wrong:g}"
    return [
        _number(result.time_ns / 1e3, 7),
        _number(result.algbw_gbs, 6),
        _number(result.busbw_gbs, 6),
        wrong.rjust(6),
    ]


def _statistics(statistics: TimeStatistics | None) -> list[str]:
    if statistics is None:
        return ["N/A".rjust(8)] * len(_STATISTICS)
    return [_number(getattr(statistics, f"{name}_ns") / 1e3, 8) for name in _STATISTICS]


def row_line(row: Sequence[Result | None]) -> str:
    """The line of one size, out of place and in place."""
    either = next(result for result in row if result is not None)
    case = either.case
    columns = [
        f"{either.size_bytes:12}",
        f"{either.count:12}",
        case.datatype.rjust(8),
        case.reduction.rjust(6),
        f"{case.root:6}",
    ]
    for result in row:
        columns += _body(result)
    for result in row:
        columns += _statistics(time_statistics(result.slowest_ns) if result else None)
    return "  ".join(columns)


@dataclass(slots=True)
class RowBuilder:
    """Joins the results out of place and in place into one row, as they come."""

    plan: Plan
    _waiting: Result | None = None

    def add(self, result: Result) -> tuple[Result | None, Result | None] | None:
        """The row that this result completes; None if it waits for the one in place."""
        if not result.case.in_place:
            if "in-place" in self.plan.places and result.case.spec.in_place:
                self._waiting = result
                return None
            return (result, None)
        out_of_place, self._waiting = self._waiting, None
        return (out_of_place, result)


def rows_of(results: Sequence[Result], plan: Plan) -> list[tuple[Result | None, Result | None]]:
    """All rows."""
    rows = RowBuilder(plan)
    return [row for result in results if (row := rows.add(result))]


def average_busbw(results: Sequence[Result]) -> float:
    """nccl-tests' last line: the mean over all results, out of place and in place."""
    bandwidths = [result.busbw_gbs or 0.0 for result in results]
    return sum(bandwidths) / len(bandwidths) if bandwidths else 0.0


def closing_lines(results: Sequence[Result], session: Session) -> list[str]:
    """The lines below the table: wrong elements, mean bandwidth, and notes."""
    wrong = sum(result.wrong or 0 for result in results)
    unchecked = sum(result.wrong is None for result in results)
    checked = "OK" if not wrong else "FAILED"
    if unchecked == len(results):
        checked = "not checked"
    lines = [
        f"# {'Out of bounds values':<20} : {wrong} {checked}",
        f"# {'Avg bus bandwidth':<20} : {average_busbw(results):g}",
    ]
    slow = [result for result in results if result.host_bound]
    if slow:
        sizes = sorted({result.size_bytes for result in slow})
        lines.append(
            f"# note: up to {sizes[-1]} bytes the GPUs waited for calls: the host makes them no "
            "faster; --held and --graph show what the GPUs can do"
        )
    gaps = [result for result in results if not result.blocking and result.gap_share > 0.01]
    if gaps:
        worst = max(gaps, key=lambda result: result.gap_share)
        lines.append(
            f"# note: up to {percent(worst.gap_share)} of a loop's time ({worst.size_bytes} bytes) "
            "lies between calls: in time, not in median, p99, min, max"
        )
    if session.simulation:
        lines.append(f"# {SIMULATED}")
    return lines


def scaling_lines(results: Sequence[Result]) -> list[str]:
    """The table of bus bandwidths by number of ranks, relative to the fewest ranks."""
    lines = [
        "# scaling: efficiency is bus bandwidth by that of the fewest ranks",
        "#        operation          size  place         ranks      time   algbw   busbw  "
        "efficiency",
    ]
    for key, group in scaling_groups(results).items():
        for result, efficiency in group:
            efficiency_text = percent(efficiency) if efficiency is not None else "N/A"
            lines.append(
                f"{key[0]:>18}  {result.size_bytes:12}  {result.case.place:<12}  "
                f"{result.case.ranks:5}  {_number(result.time_ns / 1e3, 8)}  "
                f"{_number(result.algbw_gbs, 6)}  {_number(result.busbw_gbs, 6)}  "
                f"{efficiency_text:>10}"
            )
    return lines


Key = tuple[str, int, str, str, str, int]


def scaling_groups(results: Sequence[Result]) -> dict[Key, list[tuple[Result, float | None]]]:
    """Results that differ only in the number of ranks, with their efficiencies."""
    groups: dict[Key, list[tuple[Result, float | None]]] = {}
    for result in results:
        case = result.case
        key = (
            case.spec.title,
            case.size_bytes,
            case.place,
            case.datatype,
            case.reduction,
            case.root,
        )
        group = groups.setdefault(key, [])
        first = group[0][0].busbw_gbs if group else result.busbw_gbs
        now = result.busbw_gbs
        group.append((result, now / first if first and now is not None else None))
    return groups
