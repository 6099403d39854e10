"""The report in plain text, for a terminal or a file."""

from collections.abc import Iterator
from dataclasses import dataclass

from ncclscope.analysis.groups import Group
from ncclscope.analysis.summary import Summary
from ncclscope.humanize import printable, wrapped
from ncclscope.model.topology import Topology
from ncclscope.report import (
    operation_sections,
    sample_sections,
    sections,
    waiting_sections,
)
from ncclscope.report.kernel_exposure import exposure_tables
from ncclscope.report.tables import Table, align, plain_lines
from ncclscope.report.topology import topology_tables, warning_lines
from ncclscope.report.training import training_tables
from ncclscope.report.units import sparkline
from ncclscope.report.what_if import path_table

_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Style:
    """How wide and long the text may be, and whether it may have colours."""

    width: int = 80
    colour: bool = False
    most_rows: int = 60
    most_others: int = 12


def _bold(text: str, style: Style) -> str:
    return f"{_BOLD}{text}{_RESET}" if style.colour else text


def _dim(text: str, style: Style) -> str:
    return f"{_DIM}{text}{_RESET}" if style.colour else text


def _rule(title: str, width: int) -> str:
    return f"── {title} " + "─" * max(width - len(title) - 4, 2)


def _join(pieces: list[str], width: int) -> list[str]:
    """Lines of pieces with dots between them; no piece is broken."""
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + 3 + len(piece) <= width:
            lines[-1] += f" · {piece}"
        else:
            lines.append(piece)
    return lines


def _table(table: Table, style: Style, missing: list[str]) -> Iterator[str]:
    heading, lines, left_out = plain_lines(table, style.width)
    missing.extend(title for title in left_out if title not in missing)
    yield ""
    yield _bold(_rule(printable(table.title), style.width), style)
    yield _dim(heading, style)
    yield from lines
    for note in table.notes:
        yield from (_dim(line, style) for line in wrapped(note, style.width))


def _opening(summary: Summary, style: Style, topology: Topology | None) -> Iterator[str]:
    completeness = summary.completeness
    lines = wrapped(completeness.line(), style.width)
    yield from (_bold(line, style) for line in lines)
    for note in (*warning_lines(topology), *completeness.notes, *summary.notes):
        yield from wrapped(f"! {note}", style.width, "  ")
    yield from _join([printable(word) for word in sections.identity(summary)], style.width)
    yield from wrapped(sections.headline(summary), style.width, "  ")
    for line in sample_sections.timing_policy(summary):
        yield from wrapped(line, style.width, "  ")
    if summary.slices and any(summary.slices):
        room = min(style.width - len("bytes over time "), len(summary.slices))
        yield f"bytes over time {sparkline(summary.slices, room)}"


def _operations(
    summary: Summary, groups: tuple[Group, ...], style: Style, missing: list[str]
) -> Iterator[str]:
    tables = operation_sections.operation_tables(summary, groups, style.most_rows)
    tables, left_out = align(tables, style.width)
    missing += left_out
    for table in tables:
        yield from _table(table, style, missing)
    notes = operation_sections.operation_notes(groups, sum(len(table.rows) for table in tables))
    same = all(group.calls == group.operations for group in groups)
    columns = [title for title in missing if title != "ops" or not same]
    if columns:
        notes.append(f"a wider terminal shows {', '.join(columns)}")
    yield ""
    for note in notes if groups else ["no operations"]:
        yield from (_dim(line, style) for line in wrapped(note, style.width, "  "))


def terminal_lines(
    summary: Summary,
    groups: tuple[Group, ...],
    style: Style,
    topology: Topology | None = None,
) -> Iterator[str]:
    """The whole report, with groups in the given order."""
    yield from _opening(summary, style, topology)
    missing: list[str] = []
    roles = sections.roles(summary)
    if roles:
        yield from _table(roles, style, [])
    if summary.communicators:
        yield from _table(sections.communicators(summary, style.most_others), style, [])
    scopes = sections.scopes(summary)
    if scopes:
        yield from _table(scopes, style, [])
    for section in training_tables(summary, style.most_others):
        yield from _table(section, style, [])
    for section in exposure_tables(summary.exposure, summary.model, style.most_others):
        yield from _table(section, style, [])
    yield from _operations(summary, groups, style, missing)
    yield from _intervals(summary, groups, style)
    others = (
        waiting_sections.origins(summary, style.most_others),
        waiting_sections.ranks(summary, style.most_others),
        path_table(summary.model, summary.path),
        sections.traffic(summary, style.most_others, (style.width - 11) // 7),
        sections.sizes(summary),
        sections.untimed(summary),
        *topology_tables(topology, summary.model, style.most_others),
    )
    for table in others:
        if table:
            yield from _table(table, style, [])
    if summary.from_counters:
        yield from _needs_trace(summary, style)


def _intervals(summary: Summary, groups: tuple[Group, ...], style: Style) -> Iterator[str]:
    table, missing = sample_sections.intervals(summary, groups, style.most_rows), list[str]()
    if table:
        yield from _table(table, style, missing)
    if missing:
        note = f"a wider terminal shows intervals of {', '.join(missing)}"
        yield from (_dim(line, style) for line in wrapped(note, style.width))


def _needs_trace(summary: Summary, style: Style) -> Iterator[str]:
    yield ""
    yield _bold(_rule("waiting, wire, ranks, traffic, bytes over time", style.width), style)
    yield sections.needs_trace(summary)
