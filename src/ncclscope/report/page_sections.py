"""Sections of a report's page that text reports do not have: findings, and pictures of ranks."""

from html import escape

from ncclscope.analysis.summary import Summary
from ncclscope.diagnose.finding import Finding
from ncclscope.humanize import duration, percent, plural, printable
from ncclscope.report.page_details import PageDetails, Picture, pictures

_MOST_FINDINGS = 50
_KINDS = (("moving data", "c0"), ("waiting for other ranks", "c1"), ("no NCCL kernel runs", "rest"))
# Places of pictures: what the script draws there, and how to read it.
_PICTURES = (
    ("slices", "ranks over time",
     "blue: moving data, orange: waiting for other ranks, of each slice of time"),
    ("strip", "around the collective whose ranks arrived farthest apart",
     "pale: waiting for the last rank; the rank without pale parts is the one that the others wait "
     "for"),
    ("functions", "waiting by rank and function",
     "share of the time in kernels, darker: more; a rank that waits less than the others is late"),
    ("pairs", "sends from rank to rank", "rows send to columns; darker: more bytes"),
)  # fmt: skip


def html_text(text: str) -> str:
    """Text of a capture as HTML."""
    return escape(printable(text))


def section(title: str, body: str, name: str = "") -> str:
    """A part of the page; `name`: what links call it."""
    anchor = f' id="{name}"' if name else ""
    shown = html_text(title)
    return f'<section{anchor} data-title="{shown}"><h2>{shown}</h2>{body}</section>\n'


def findings_section(details: PageDetails) -> str:
    """What diagnose found, the worst first."""
    if not details.findings:
        return section("findings", '<p class="note">nothing found</p>', "findings")
    shown = details.findings[:_MOST_FINDINGS]
    more = len(details.findings) - len(shown)
    note = f'<p class="note">{plural(more, "more finding")}: ncclscope diagnose</p>' if more else ""
    return section("findings", "".join(map(_finding, shown)) + note, "findings")


def _finding(finding: Finding) -> str:
    kind = f" ({finding.kind})" if finding.kind else ""
    head = f"{finding.severity} · {finding.family}{kind}"
    sure = f"confidence {100 * finding.confidence:.0f} %"
    evidence = "".join(
        f"<li>{html_text(row.text)}"
        + (f"<br><code>{html_text(row.command)}</code>" if row.command else "")
        + "</li>"
        for row in finding.evidence
    )
    return (
        f'<div class="finding is-{finding.severity}">'
        f'<p><b>{html_text(head)}</b> <span class="note">{sure}</span></p>'
        f"<p>{html_text(finding.sentence)}</p><ul>{evidence}</ul>"
        f"<p>→ {html_text(finding.advice)}</p></div>\n"
    )


def time_sections(summary: Summary, details: PageDetails) -> str:
    """Where the time goes, and pictures of it."""
    made = pictures(summary, details)
    drawn = [
        section(
            title,
            f'<div class="picture" id="{name}"><noscript>drawn by a script</noscript></div>'
            f'{_legend(made[name])}<p class="note">{note}</p>',
        )
        for name, title, note in _PICTURES
        if name in made
    ]
    return _time_by_rank(summary, details) + "".join(drawn)


def _legend(picture: Picture) -> str:
    """Colours of functions, where a picture has them."""
    functions: dict[str, int] = picture.get("functions", {})
    items = "".join(
        f'<span><i class="c{number % 8}"></i>{html_text(name)}</span>'
        for name, number in functions.items()
    )
    return f'<p class="legend">{items}</p>' if items else ""


def _time_by_rank(summary: Summary, details: PageDetails) -> str:
    """Of each rank's time the shares of transfer, waiting and the rest."""
    slices = details.slices
    if slices is None:
        return ""
    moving = (slices.moving + slices.either).mean(axis=1)
    waiting = slices.waiting.mean(axis=1)
    hosts = {row.rank: row.host for row in summary.ranks or ()}
    rows = [_time_row("all", "", float(moving.mean()), float(waiting.mean()))]
    rows += [
        _time_row(str(rank), hosts.get(rank, ""), float(moving[place]), float(waiting[place]))
        for place, rank in enumerate(slices.ranks)
    ]
    head = "".join(f"<th>{title}</th>" for title in ("rank", "host", "time"))
    head += "".join(f'<th class="right">{title}</th>' for title, _ in _KINDS)
    legend = "".join(f'<span><i class="{colour}"></i>{title}</span>' for title, colour in _KINDS)
    step = summary.steps
    of = "of the time shown" if step is None else f"of a step of {duration(step.median_ns)}"
    return section(
        "where the time goes",
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="legend">{legend}</p>'
        f'<p class="note">shares {of}; computing overlaps with both</p>',
    )


def _time_row(rank: str, host: str, moving: float, waiting: float) -> str:
    shares = (moving, waiting, max(1 - moving - waiting, 0.0))
    parts = "".join(
        f'<i class="{colour}" style="width:{100 * share:.1f}%"></i>'
        for share, (_, colour) in zip(shares, _KINDS, strict=True)
    )
    number = f' data-n="{rank}"' if rank.isdigit() else ""
    cells = f"<td{number}>{rank}</td><td>{html_text(host)}</td>"
    cells += f'<td data-n="{waiting:.4f}"><span class="stack">{parts}</span></td>'
    cells += "".join(f'<td class="right" data-n="{s:.4f}">{percent(s)}</td>' for s in shares)
    return f"<tr>{cells}</tr>"
