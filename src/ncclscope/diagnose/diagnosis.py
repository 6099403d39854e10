"""All families over one capture, the worst finding first."""

from dataclasses import dataclass, replace

from ncclscope.analysis.baseline import Baseline
from ncclscope.capture.reader import is_dataset
from ncclscope.diagnose.finding import CRITICAL, Evidence, Finding, downgrade, sort_findings
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import MISMATCH, Status, Verdict
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.diagnose.rules import (
    below_expected,
    data_quality,
    degradation,
    hang,
    hardware,
    hints,
    imbalance,
    imported_hang,
    large_messages,
    link_peak,
    mismatch,
    pauses,
    sampled_straggler,
    slow_link,
    straggler,
    training,
)
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model
from ncclscope.snapshot.process import Snapshots


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings about a capture."""

    findings: tuple[Finding, ...]  # the worst first
    missing: str  # what is not on record; "" for a whole capture


def diagnose(
    model: Model, snapshots: Snapshots | None, baseline: Baseline | None = None
) -> Diagnosis:
    """All findings. `snapshots`: of processes that have not ended, as `unfinished_snapshots` gives
    them; None: nothing can hang.
    """
    context = RuleContext(model)
    missing = data_quality.missing(context)
    status = None if snapshots is None else judge(snapshots.processes, snapshots.unreadable)
    findings: list[Finding] = []
    mismatches = mismatch.find(context)
    if status is not None:
        hangs = hang.find(status, context.path)
        findings += [h for h in hangs if not any(_explains(m, h) for m in mismatches)]
    if is_dataset(model.path):
        findings += imported_hang.find(model)
    disagreed = {name for finding in mismatches for name in finding.communicators}
    findings += [_with_followers(finding, status) for finding in mismatches]
    findings += [f for f in _mismatches_at_the_end(status) if not disagreed & set(f.communicators)]
    families = (
        straggler,
        sampled_straggler,
        pauses,
        training,
        slow_link,
        large_messages,
        degradation,
        imbalance,
        link_peak,
        hints,
        data_quality,
        hardware,
    )
    for family in families:
        findings += family.find(context)
    if baseline is not None:
        findings += below_expected.find(context, baseline)
    findings = [_weigh(finding, missing) for finding in hardware.add_causes(findings)]
    return Diagnosis(sort_findings(findings), missing)


def _weigh(finding: Finding, missing: str) -> Finding:
    """A finding that rests on absence counts less where the recorder may have missed something."""
    return downgrade(finding, missing) if finding.by_absence and missing else finding


def _explains(disagreement: Finding, hang: Finding) -> bool:
    """Whether ranks hang in the very operation that they disagree on. A snapshot does not have all
    of an operation (its root), so that all ranks may seem to be in the same one.
    """
    orders = [finding.evidence[0].facts["order"] for finding in (disagreement, hang)]
    return disagreement.communicators == hang.communicators and orders[0] == orders[1]


def _with_followers(finding: Finding, status: Status | None) -> Finding:
    """A mismatch with what hangs because of it."""
    names = [name for cause in finding.communicators for name in _hung_by(status, cause)]
    return replace(finding, evidence=(*finding.evidence, *hang.also_waiting(names)))


def _hung_by(status: Status | None, name: str) -> list[str]:
    return hang.followers(status, name) if status else []


def _mismatches_at_the_end(status: Status | None) -> list[Finding]:
    """Mismatches that only the last snapshots show, as in mode profile."""
    verdicts = status.verdicts if status else ()
    return [_mismatch(verdict) for verdict in verdicts if verdict.verdict == MISMATCH]


def _mismatch(verdict: Verdict) -> Finding:
    sides = "; ".join(
        f"{ranks_in_words(side.ranks)} {side.call.function} "
        f"{side.call.size_bytes:,} bytes {side.call.datatype}"
        for side in verdict.sides
    )
    return Finding(
        "mismatch",
        CRITICAL,
        f"ranks disagree on {verdict.name} #{verdict.order}: {sides}",
        "the program takes different paths on these ranks",
        kind="function",
        ranks=verdict.culprits,
        communicators=(verdict.name,),
        confidence=0.95,
        evidence=(Evidence("last calls", {"order": verdict.order}),),
    )
