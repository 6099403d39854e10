"""The report as one self-contained page: the same tables, findings, pictures, light and dark."""

import base64
import hashlib
import json
from importlib.resources import files

from ncclscope._version import __version__
from ncclscope.analysis.groups import Group
from ncclscope.analysis.summary import Summary
from ncclscope.humanize import printable
from ncclscope.model.topology import Topology
from ncclscope.report import (
    operation_sections,
    sample_sections,
    sections,
    waiting_sections,
)
from ncclscope.report.kernel_exposure import exposure_tables
from ncclscope.report.page_details import PageDetails, Picture, pictures
from ncclscope.report.page_sections import findings_section, html_text, section, time_sections
from ncclscope.report.plots import PlotSeries, areas, dots, spark
from ncclscope.report.tables import Bar, Cell, Spark, Table, sort_value
from ncclscope.report.topology import topology_tables, warning_lines
from ncclscope.report.training import training_tables
from ncclscope.report.what_if import path_table

_MOST_ROWS, _MOST_OTHERS, _MOST_MATRIX, _MOST_SERIES = 2000, 200, 64, 7


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        width = 100 * min(max(cell.share, 0.0), 1.0)
        return f'<span class="cell"><span class="bar" style="width:{width:.1f}%"></span></span>'
    return spark(cell.values) if isinstance(cell, Spark) else html_text(cell)


def _number(cell: Cell) -> str:
    """The attribute that a column is sorted by."""
    value = sort_value(cell)
    return "" if value is None else f' data-n="{value:.12g}"'


def _table(table: Table) -> str:
    sides = [' class="right"' if column.right else "" for column in table.columns]
    sortable = ' class="sortable"' if len(table.rows) > 1 else ""
    head = "".join(
        f"<th{side}>{html_text(column.title)}</th>"
        for side, column in zip(sides, table.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{side}{_number(cell)}>{_cell(cell)}</td>"
            for side, cell in zip(sides, row, strict=True)
        )
        + "</tr>\n"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{html_text(note)}</p>' for note in table.notes)
    return section(
        table.title,
        f'<div class="scroll"><table{sortable}><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>{notes}\n",
    )


def _over_time(summary: Summary) -> str:
    """Bytes a second by communicator: the largest ones, and all others together."""
    span_s = summary.span_ns / 1e9
    if not summary.slices or not span_s:
        return ""
    width_s = span_s / len(summary.slices)
    largest = sorted(summary.communicators, key=lambda row: -sum(row.slices))
    shown, rest = largest[:_MOST_SERIES], largest[_MOST_SERIES:]
    named = [(row.name, row.slices) for row in shown]
    if rest:
        sums = tuple(map(sum, zip(*(row.slices for row in rest), strict=True)))
        named.append((f"{len(rest)} others", sums))
    series = [
        PlotSeries(printable(name), tuple((i, v / width_s / 1e9) for i, v in enumerate(values)))
        for name, values in named
    ]
    return section("bytes over time, all ranks", areas(series, span_s, "GB/s"))


def _by_size(groups: tuple[Group, ...]) -> str:
    """Bus bandwidth over message size, by function."""
    points_of: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        size, function = group.keys.get("size"), group.keys.get("function")
        if isinstance(size, int) and function is not None and group.busbw_gbs is not None:
            points_of.setdefault(str(function), []).append((float(size), group.busbw_gbs))
    series = [
        PlotSeries(printable(name), tuple(points)) for name, points in sorted(points_of.items())
    ]
    if not series:
        return ""
    estimated = any(group.sample for group in groups)
    note = '<p class="note">estimates from a sample: intervals are below</p>' if estimated else ""
    return section("bus bandwidth by message size", dots(series, "GB/s") + note)


def as_html(
    summary: Summary,
    groups: tuple[Group, ...],
    topology: Topology | None = None,
    details: PageDetails | None = None,
) -> str:
    """The whole page, with groups in the given order."""
    tables = operation_sections.operation_tables(summary, groups, _MOST_ROWS)
    notes = operation_sections.operation_notes(groups, sum(len(table.rows) for table in tables))
    missing = [sections.needs_trace(summary)] if summary.from_counters else []
    others = (
        sample_sections.intervals(summary, groups, _MOST_ROWS),
        waiting_sections.origins(summary, _MOST_OTHERS),
        waiting_sections.ranks(summary, _MOST_OTHERS),
        path_table(summary.model, summary.path),
        sections.traffic(summary, _MOST_OTHERS, _MOST_MATRIX),
        sections.sizes(summary),
        sections.untimed(summary),
        *topology_tables(topology, summary.model, _MOST_OTHERS),
    )
    body = [
        *_opening(summary, topology),
        findings_section(details) if details else "",
        *(_table(table) for table in training_tables(summary, _MOST_OTHERS)),
        time_sections(summary, details) if details else "",
        *(_table(table) for table in (sections.roles(summary),) if table),
        _table(sections.communicators(summary, _MOST_OTHERS)),
        *(_table(table) for table in (sections.scopes(summary),) if table),
        *map(_table, exposure_tables(summary.exposure, summary.model, _MOST_OTHERS)),
        _over_time(summary),
        _by_size(groups),
        *(_table(table) for table in tables),
        *(f'<p class="note">{html_text(note)}</p>' for note in notes),
        *(_table(table) for table in others if table),
        *(f'<p class="note">wait, wire, ranks, traffic: {html_text(note)}</p>' for note in missing),
        f'<p class="note">ncclscope {__version__}</p>',
    ]
    data = pictures(summary, details) if details else {}
    return page(f"{summary.model.path.name}: NCCL report", "\n".join(body), data)


def _opening(summary: Summary, topology: Topology | None) -> list[str]:
    warnings = (*warning_lines(topology), *summary.completeness.notes, *summary.notes)
    return [
        "<header><h1>NCCL report</h1>",
        '<input id="filter" type="search" placeholder="filter rows: /" aria-label="filter" hidden>',
        '<span id="filter-count" class="note"></span></header>',
        f"<p><b>{html_text(summary.completeness.line())}</b></p>",
        *(f'<p class="warning">{html_text(note)}</p>' for note in warnings),
        f"<p>{html_text(' · '.join(sections.identity(summary)))}</p>",
        f"<p>{html_text(sections.headline(summary))}</p>",
        *(f"<p>{html_text(line)}</p>" for line in sample_sections.timing_policy(summary)),
    ]


def page(title: str, body: str, data: dict[str, Picture] | None = None) -> str:
    """A page with the report's style; `body` is HTML. With `data`, which its script draws, it is
    interactive.
    """
    folder = files("ncclscope.report")
    style = folder.joinpath("page.css").read_text("utf-8")
    # Nothing may be fetched and no other script may run, whatever names in the capture contain.
    policy, scripts = "default-src 'none'; style-src 'unsafe-inline'", ""
    if data is not None:
        script = folder.joinpath("page.js").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        numbers = json.dumps(data, separators=(",", ":"), allow_nan=False)
        numbers = numbers.replace("<", "\\u003c")
        scripts = f'<script type="application/json" id="pictures">{numbers}</script>\n'
        scripts += f"<script>{script}</script>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{html_text(title)}</title>\n"
        f"<style>{style}</style></head><body>\n{body}\n{scripts}</body></html>\n"
    )
