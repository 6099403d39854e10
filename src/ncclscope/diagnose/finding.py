"""A finding: one diagnosed problem, with its evidence."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from html import escape
from typing import Any

from ncclscope.diagnose import SEVERITIES
from ncclscope.humanize import printable

INFO, WARNING, CRITICAL = SEVERITIES
# Shares of the run. What costs less than the first is not worth a sentence, less than the second
# is no problem, and from the third on it is critical.
LEAST_SHARE, PROBLEM_SHARE, GRAVE_SHARE = 0.01, 0.04, 0.25
# In this order where severity and loss are equal: what stops a job before what slows it.
FAMILIES = (
    "hang",
    "mismatch",
    "straggler",
    "slow_link",
    "machine",
    "intra_inter",
    "degradation",
    "imbalance",
    "training",
    "below_expected",
    "history",
    "algorithm",
    "launch_bound",
    "small_messages",
    "data_quality",
)
LOSSES = ("missing", "dropped", "lost")  # kinds of data_quality


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a finding rests on: a sentence, its numbers, and the command that shows them."""

    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem."""

    family: str
    severity: str
    sentence: str
    advice: str
    _: KW_ONLY
    kind: str = ""  # within its family
    ranks: tuple[int, ...] = ()  # of the job
    hosts: tuple[str, ...] = ()
    communicators: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    confidence: float = 1.0  # 0 to 1
    lost_share: float = 0.0  # of the run's time
    by_absence: bool = False  # rests on something not being there

    def _repr_html_(self) -> str:
        head = f"{self.severity} · {self.family} · confidence {100 * self.confidence:.0f} %"
        evidence = "".join(f"<li>{_shown(item.text)}</li>" for item in self.evidence)
        return (
            f"<div><b>{_shown(self.sentence)}</b> <small>{_shown(head)}</small>"
            f"<ul>{evidence}</ul>→ {_shown(self.advice)}</div>"
        )


def _shown(text: str) -> str:
    return escape(printable(text))


def at_least(severity: str, bar: str) -> bool:
    """Whether a severity reaches another."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(bar)


def downgrade(finding: Finding, because: str) -> Finding:
    """A finding one severity lower and half as certain, with the reason as evidence."""
    lower = SEVERITIES[max(SEVERITIES.index(finding.severity) - 1, 0)]
    note = Evidence(f"downgraded: {because}")
    return replace(
        finding,
        severity=lower,
        confidence=finding.confidence / 2,
        evidence=(*finding.evidence, note),
    )


def _precedence(finding: Finding) -> int:
    """What stops a job comes first, then what is not on record: all other findings rest on it."""
    if finding.family in FAMILIES[:2]:
        return FAMILIES.index(finding.family)
    return 2 if finding.kind in LOSSES and finding.family == "data_quality" else 3


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings, the worst first."""
    return tuple(sorted(findings, key=_order))


def _order(finding: Finding) -> tuple[Any, ...]:
    return (
        -SEVERITIES.index(finding.severity),
        _precedence(finding),
        -finding.lost_share,
        FAMILIES.index(finding.family),
        -finding.confidence,
        finding.ranks,
    )
