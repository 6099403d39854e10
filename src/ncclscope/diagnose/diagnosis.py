"""All families over one capture, the worst finding first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncclscope.analysis.baseline import Baseline
from ncclscope.analysis.selection import check_ranks, communicator_rows
from ncclscope.analysis.time_selection import ReplayedPart, replayed_part
from ncclscope.analysis.waiting.rank_delays import MOST_KERNELS
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
    heavy_stage,
    hints,
    imbalance,
    imported_hang,
    large_messages,
    link_peak,
    mismatch,
    only_root,
    pauses,
    sampled_straggler,
    slow_link,
    straggler,
    training,
    unjudged_transfer,
)
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model
from ncclscope.snapshot.process import Snapshots
from ncclscope.threads import Threads

_OF_TRANSFERS = ("hang", "slow_link", "intra_inter", "degradation", "below_expected")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings about a capture."""

    findings: tuple[Finding, ...]  # the worst first
    missing: str  # what is not on record; "" for a whole capture
    limits: tuple[str, ...] = ()  # what was not looked at, because there is too much


def about(
    model: Model,
    diagnosis: Diagnosis,
    ranks: Sequence[int] | None,
    communicators: list[str] | None,
) -> Diagnosis:
    """The diagnosis with findings that name one of these ranks and one of these communicators."""
    wanted = None if ranks is None else set(check_ranks(model, ranks))
    rows = communicator_rows(model, communicators) if communicators else ()
    names = {model.communicator_names[row] for row in rows}
    chosen = tuple(
        finding
        for finding in diagnosis.findings
        if (wanted is None or wanted & set(finding.ranks))
        and (not communicators or names & set(finding.communicators))
    )
    return replace(diagnosis, findings=chosen)


def diagnose(
    model: Model, snapshots: Snapshots | None, baseline: Baseline | None = None
) -> Diagnosis:
    """All findings. `snapshots`: of processes that have not ended, as `unfinished_snapshots` gives
    them; None: nothing can hang.
    """
    replayed = replayed_part(model)
    is_whole = replayed.model is model
    context = RuleContext(model, is_replayed=is_whole)
    part = context if is_whole else RuleContext(replayed.model)
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
    for found in _by_family(part, context):
        findings += found
    if baseline is not None:
        findings += below_expected.find(context, baseline)
    if not any(finding.family in _OF_TRANSFERS for finding in findings):
        findings += unjudged_transfer.find(part, baseline)
    in_hangs = data_quality.missing(context, last_counts=False)
    findings = [_weigh(finding, missing, in_hangs) for finding in hardware.add_causes(findings)]
    limits = (*_limit_of_time(model, replayed), *_limits(part))
    return Diagnosis(sort_findings(findings), missing, limits)


def _limit_of_time(model: Model, replayed: ReplayedPart) -> tuple[str, ...]:
    """Which part of a run families look at that replay it, in words."""
    if not replayed.words:
        return ()
    operations = len(model.tables["operations"]["event"])
    return (
        f"{operations:,} operations: findings but hangs, mismatches and degradation are of "
        f"{replayed.words}",
    )


def _limits(context: RuleContext) -> tuple[str, ...]:
    """What of a large run was looked at in part, in words."""
    limits = []
    kernels = 0 if context.waiting is None else len(context.waiting.kernels)
    if kernels > MOST_KERNELS:
        limits.append(
            f"{kernels:,} kernels: the account of waiting is of all of them; further causes behind "
            "those that stand out, and pauses of whole hosts, are looked for in up to "
            f"{MOST_KERNELS:,}"
        )
    every = context.synchronized.one_in
    if every > 1:
        limits.append(f"slow links, sizes and times by a sample: one collective in {every:,}")
    return tuple(limits)


def _by_family(context: RuleContext, whole: RuleContext) -> list[list[Finding]]:
    """What each family finds, in their order. Families that follow waiting back run beside those
    that do not: both are outside of the interpreter most of the time. `whole`: the whole run, where
    `context` is a part of it: when something became slower is asked of all of it.
    """
    families = (
        straggler,
        sampled_straggler,
        pauses,
        heavy_stage,
        only_root,
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
    waits = (straggler, sampled_straggler, pauses, heavy_stage, only_root, training, slow_link)
    others = tuple(one for one in families if one not in (*waits, degradation))
    with Threads(1) as threads:
        others_found = threads.submit(lambda: {family: family.find(context) for family in others})
        found = {family: family.find(context) for family in waits}
        found |= others_found.result()
    slower = degradation.find(whole)  # needs what both made
    found[degradation] = [one for one in slower if not _is_said(one, found[slow_link])]
    return [list(found[family]) for family in families]


def _is_said(slower: Finding, slow_links: Sequence[Finding]) -> bool:
    """Whether communicators that became slower are named as slower than their peers, with the time
    when that began: one cause is one finding.
    """
    said = {
        name
        for finding in slow_links
        for name in finding.communicators
        if finding.kind == "group" and "at_s" in finding.evidence[0].facts
    }
    return bool(slower.communicators) and said.issuperset(slower.communicators)


def _weigh(finding: Finding, missing: str, missing_in_hangs: str) -> Finding:
    """A finding that rests on absence counts less where the recorder may have missed something. A
    hang lasts longer than the second between two heartbeats, so that counts which end at the last
    one miss nothing of it.
    """
    missed = missing_in_hangs if finding.family == "hang" else missing
    return downgrade(finding, missed) if finding.by_absence and missed else finding


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
