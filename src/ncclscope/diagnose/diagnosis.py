"""All families over one capture, the worst finding first."""

from dataclasses import dataclass, replace

from ncclscope.capture.reader import is_dataset
from ncclscope.diagnose.finding import CRITICAL, Evidence, Finding, downgraded, ranked
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import MISMATCH, Status
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
    link_peak,
    mismatch,
    slow_link,
    straggler,
)
from ncclscope.diagnose.rules.below_expected import Expected
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model
from ncclscope.snapshot.process import Snapshots


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what the search rests on."""

    findings: tuple[Finding, ...]
    missing: str  # what is not on record; "" for a whole capture


def diagnose(
    model: Model, snapshots: Snapshots | None, baseline: list[Expected] | None = None
) -> Diagnosis:
    """All findings. `snapshots`: of processes that have not ended, as `unfinished_snapshots` gives
    them; None: nothing can hang.
    """
    frame = RuleContext(model)
    missing = data_quality.missing(frame)
    status = None if snapshots is None else judge(snapshots.processes, snapshots.unreadable)
    findings: list[Finding] = []
    mismatches = mismatch.find(frame)
    if status is not None:
        hangs = hang.find(status, frame.path)
        findings += [one for one in hangs if not any(_explains(m, one) for m in mismatches)]
    if is_dataset(model.path):
        findings += imported_hang.find(model)
    known = {name for finding in mismatches for name in finding.communicators}
    findings += [_with_followers(finding, status) for finding in mismatches]
    findings += [one for one in _disagreeing(status) if not known & set(one.communicators)]
    families = (
        straggler,
        slow_link,
        degradation,
        imbalance,
        link_peak,
        hints,
        data_quality,
        hardware,
    )
    for family in families:
        findings += family.find(frame)
    if baseline:
        findings += below_expected.find(frame, baseline)
    findings = [_weighed(finding, missing) for finding in hardware.explained(findings)]
    return Diagnosis(ranked(findings), missing)


def _weighed(finding: Finding, missing: str) -> Finding:
    return downgraded(finding, missing) if finding.by_absence and missing else finding


def _explains(disagreement: Finding, stuck: Finding) -> bool:
    """Whether ranks hang in the very operation that they disagree on: last moments do not tell
    everything of an operation (its root), and then look as if all were in it.
    """
    orders = [one.evidence[0].facts["order"] for one in (disagreement, stuck)]
    return disagreement.communicators == stuck.communicators and orders[0] == orders[1]


def _with_followers(finding: Finding, status: Status | None) -> Finding:
    """A mismatch with what hangs because of it."""
    names = [name for one in finding.communicators for name in _hung_by(status, one)]
    return replace(finding, evidence=(*finding.evidence, *hang.also_waiting(names)))


def _hung_by(status: Status | None, name: str) -> list[str]:
    return hang.followers(status, name) if status else []


def _disagreeing(status: Status | None) -> list[Finding]:
    """Mismatches that only last moments show, as in mode profile."""
    found = []
    for verdict in status.verdicts if status else ():
        if verdict.verdict == MISMATCH:
            sides = "; ".join(
                f"{ranks_in_words(side.ranks)} {side.called.function} "
                f"{side.called.size_bytes:,} bytes "
                f"{side.called.datatype}"
                for side in verdict.sides
            )
            found.append(
                Finding(
                    "mismatch",
                    CRITICAL,
                    f"ranks disagree on {verdict.name} #{verdict.order}: {sides}",
                    "the program takes different paths on these ranks",
                    "function",
                    verdict.culprits,
                    communicators=(verdict.name,),
                    confidence=0.95,
                    evidence=(Evidence("last calls", {"order": verdict.order}),),
                )
            )
    return found
