"""Findings as text and as JSON; docs/verbs/diagnose.md describes both."""

from collections.abc import Iterator
from typing import Any

from ncclscope.analysis.counted_completeness import completeness_with_counts
from ncclscope.diagnose.diagnosis import Diagnosis
from ncclscope.diagnose.finding import Evidence, Finding
from ncclscope.humanize import plural, printable, wrapped
from ncclscope.json_answers import VERSION
from ncclscope.model.model import Model

_INDENT = "  "


def _paragraph(text: str, width: int, hang: str = "") -> Iterator[str]:
    """Indented lines; all but the first stand below the text behind a mark as wide as `hang`."""
    lines = wrapped(text, width - len(_INDENT), hang)
    yield from (_INDENT + line for line in lines)


def _finding_lines(finding: Finding, number: int, width: int, program: str) -> Iterator[str]:
    yield ""
    head = f"{number}. {finding.severity} · {finding.family}"
    head += f" ({finding.kind})" if finding.kind else ""
    yield f"{head} · confidence {100 * finding.confidence:.0f} %"
    yield from _paragraph(finding.sentence, width)
    for evidence in finding.evidence:
        yield from _paragraph(f"- {evidence.text}", width, hang="  ")
        if evidence.command:
            words = evidence.command.removeprefix("ncclscope")
            yield f"{_INDENT}  $ {printable(program + words)}"  # in one line, to be copied
    yield from _paragraph(f"→ {finding.advice}", width, hang="  ")


def lines(
    model: Model, diagnosis: Diagnosis, width: int, program: str = "ncclscope"
) -> Iterator[str]:
    """The whole answer, the worst first; `program` is what commands begin with."""
    completeness = completeness_with_counts(model)
    yield from wrapped(completeness.line(), width)
    for note in completeness.notes[:8]:
        yield from wrapped(f"! {note}", width, _INDENT)
    for limit in diagnosis.limits:
        yield from wrapped(f"! {limit}; --since and --until choose a part", width, _INDENT)
    serious = [finding for finding in diagnosis.findings if finding.severity != "info"]
    if not serious and not model.completeness.calls and not model.completeness.operations:
        totals = any(row.mode == "profile" for row in model.processes)
        why = "mode profile has no single operations" if totals else "no NCCL call is on record"
        yield f"nothing to diagnose but hangs and the record itself: {why}"
    elif not diagnosis.findings:
        yield "nothing found"
    elif not serious:
        yield f"nothing wrong; {plural(len(diagnosis.findings), 'remark')}"
    else:
        remarks = len(diagnosis.findings) - len(serious)
        yield f"{plural(len(serious), 'problem')}, {plural(remarks, 'remark')}"
    for number, finding in enumerate(diagnosis.findings, 1):
        yield from _finding_lines(finding, number, width, program)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "text": evidence.text,
        "facts": evidence.facts,
        "command": evidence.command or None,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "family": finding.family,
        "kind": finding.kind or None,
        "severity": finding.severity,
        "sentence": finding.sentence,
        "ranks": list(finding.ranks),
        "hosts": list(finding.hosts),
        "communicators": list(finding.communicators),
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "confidence": round(finding.confidence, 4),
        "lost_share": round(finding.lost_share, 6),
        "advice": finding.advice,
    }


def as_json(model: Model, diagnosis: Diagnosis, left_out: int | None = None) -> dict[str, Any]:
    """The whole answer. `left_out`: findings about others, where ranks or communicators were
    chosen.
    """
    answer = {
        "version": VERSION,
        "capture": str(model.path),
        "completeness": completeness_with_counts(model).as_json(),
        "missing": diagnosis.missing or None,
        "limits": list(diagnosis.limits),
        "findings": [finding_json(finding) for finding in diagnosis.findings],
    }
    return answer if left_out is None else answer | {"left_out": left_out}
