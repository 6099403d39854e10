"""The report as one self-contained page: the same tables, plots, light and dark."""

from html import escape

from ncclscope._version import __version__
from ncclscope.analysis.groups import Group
from ncclscope.analysis.summary import Summary
from ncclscope.humanize import printable
from ncclscope.model.topology import Topology
from ncclscope.report import sample_sections, sections
from ncclscope.report.kernel_exposure import exposure_tables
from ncclscope.report.plots import Series, areas, dots, spark
from ncclscope.report.tables import Bar, Cell, Spark, Table
from ncclscope.report.topology import topology_tables, warning_lines
from ncclscope.report.training import training_tables
from ncclscope.report.what_if import path_table

_MOST_ROWS, _MOST_OTHERS, _MOST_MATRIX, _MOST_SERIES = 2000, 200, 64, 7
# Nothing may be fetched, whatever names in the capture contain.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --fg: #1b1f24; --bg: #fff; --dim: #66707b; --line: #d9dee3;
  --c0: #2f6fde; --c1: #d9822b; --c2: #2e9e6b; --c3: #c23b5a; --c4: #7b5cd6; --c5: #1c9aa8;
  --c6: #9a7b1f; --c7: #6b7785; }
@media (prefers-color-scheme: dark) { :root { --fg: #dfe4ea; --bg: #14181d; --dim: #8a95a1;
  --line: #2b323a; --c0: #6b9bf2; --c1: #eba55c; --c2: #5cc596; --c3: #e8738d; --c4: #a48cf0;
  --c5: #55c3d0; --c6: #cfae4d; --c7: #98a4b1; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.05em; margin: 2em 0 .4em; }
p { margin: .3em 0; } .note { color: var(--dim); } .warning { color: var(--c3); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--dim); font-weight: 500; } th, td { padding: .15em .7em; text-align: left; }
th.right, td.right { text-align: right; } tr { border-bottom: 1px solid var(--line); }
.bar { display: inline-block; height: .8em; background: var(--c0); min-width: 1px; }
.cell { display: inline-block; width: 8em; }
.spark { width: 10em; height: 1.4em; fill: var(--c0); vertical-align: middle; }
.plot { width: 100%; max-width: 800px; font-size: 11px; fill: var(--dim); }
.grid { stroke: var(--line); } .median { stroke: var(--fg); } .p99 { stroke: var(--c3); }
.legend span { margin-right: 1.2em; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
""" + "".join(f".c{n} {{ fill: var(--c{n}); background: var(--c{n}); }}\n" for n in range(8))


def _text(text: str) -> str:
    return escape(printable(text))


def _cell(cell: Cell) -> str:
    if isinstance(cell, Bar):
        width = 100 * min(max(cell.share, 0.0), 1.0)
        return f'<span class="cell"><span class="bar" style="width:{width:.1f}%"></span></span>'
    return spark(cell.values) if isinstance(cell, Spark) else _text(cell)


def _table(table: Table) -> str:
    sides = [' class="right"' if column.right else "" for column in table.columns]
    head = "".join(
        f"<th{side}>{_text(column.title)}</th>"
        for side, column in zip(sides, table.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{side}>{_cell(cell)}</td>" for side, cell in zip(sides, row, strict=True))
        + "</tr>\n"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in table.notes)
    title = f"<h2>{_text(table.title)}</h2>"
    return f'{title}<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>{notes}\n'


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
        Series(printable(name), tuple((i, v / width_s / 1e9) for i, v in enumerate(values)))
        for name, values in named
    ]
    return f"<h2>bytes over time, all ranks</h2>{areas(series, span_s, 'GB/s')}"


def _by_size(groups: tuple[Group, ...]) -> str:
    """Bus bandwidth over message size, by function."""
    points_of: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        size, function = group.keys.get("size"), group.keys.get("function")
        if isinstance(size, int) and function is not None and group.busbw_gbs is not None:
            points_of.setdefault(str(function), []).append((float(size), group.busbw_gbs))
    series = [Series(printable(name), tuple(points)) for name, points in sorted(points_of.items())]
    return f"<h2>bus bandwidth by message size</h2>{dots(series, 'GB/s')}" if series else ""


def as_html(summary: Summary, groups: tuple[Group, ...], topology: Topology | None = None) -> str:
    """The whole page, with groups in the given order."""
    tables = sections.operation_tables(summary, groups, _MOST_ROWS)
    notes = sections.operation_notes(groups, sum(len(table.rows) for table in tables))
    warnings = (*warning_lines(topology), *summary.completeness.notes, *summary.notes)
    missing = [sections.needs_trace(summary)] if summary.from_counters else []
    others = (
        sections.origins(summary, _MOST_OTHERS),
        sample_sections.intervals(summary, groups, _MOST_ROWS),
        sections.ranks(summary, _MOST_OTHERS),
        path_table(summary.model, summary.path),
        sections.traffic(summary, _MOST_OTHERS, _MOST_MATRIX),
        sections.sizes(summary),
        sections.untimed(summary),
        *topology_tables(topology, summary.model, _MOST_OTHERS),
    )
    body = [
        "<h1>NCCL report</h1>",
        f"<p><b>{_text(summary.completeness.line())}</b></p>",
        *(f'<p class="warning">{_text(note)}</p>' for note in warnings),
        f"<p>{_text(' · '.join(sections.identity(summary)))}</p>",
        f"<p>{_text(sections.headline(summary))}</p>",
        *(f"<p>{_text(line)}</p>" for line in sample_sections.timing_policy(summary)),
        _table(sections.communicators(summary, _MOST_OTHERS)),
        *(_table(table) for table in (sections.scopes(summary),) if table),
        *(_table(table) for table in training_tables(summary, _MOST_OTHERS)),
        *map(_table, exposure_tables(summary.exposure, summary.model, _MOST_OTHERS)),
        _over_time(summary),
        _by_size(groups),
        *(_table(table) for table in tables),
        *(f'<p class="note">{_text(note)}</p>' for note in notes),
        *(_table(table) for table in others if table),
        *(f'<p class="note">wait, wire, ranks, traffic: {_text(note)}</p>' for note in missing),
        f'<p class="note">ncclscope {__version__}</p>',
    ]
    return page(f"{summary.model.path.name}: NCCL report", "\n".join(body))


def page(title: str, body: str) -> str:
    """A page with the report's style; `body` is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{_text(title)}</title>\n"
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
