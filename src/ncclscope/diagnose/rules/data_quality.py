"""What is wrong with the recording itself: gaps, drops, stamps, clocks, defects of releases."""

from dataclasses import replace

import numpy as np

from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent, plural
from ncclscope.model.completeness import FLIGHT_RECORDER, Completeness
from ncclscope.model.process.stamp_repair import WRONG_STAMP_REASONS
from ncclscope.model.schema import GPU_SOURCES, NONE, SEND
from ncclscope.nccl.releases import (
    STALE_AFTER_BROADCAST,
    STALE_AFTER_SELF_SEND,
    applies,
    parse_release,
)

# Sentences about defects of NCCL that affect times.
_DEFECT_TEXTS = {
    STALE_AFTER_SELF_SEND: "after a send to itself NCCL 2.26 to 2.30 give "
    "operations the times of earlier ones; they are repaired where that is certain",
    STALE_AFTER_BROADCAST: "after a Broadcast NCCL 2.31 and 2.32 lose kernels of later "
    "operations and give others earlier times; they are repaired where that is certain",
}


_MANY_UNTIMED = 0.2  # of operations
_LEAST_ERROR_NS = 1e5  # of clocks: less is not worth a finding


def _finding(sentence: str, advice: str, kind: str, **facts: object) -> Finding:
    return Finding(
        "data_quality",
        INFO,
        sentence,
        advice,
        kind=kind,
        evidence=(Evidence("completeness", dict(facts)),),
        confidence=1.0,
    )


def missing(context: RuleContext, last_counts: bool = True) -> str:
    """What was not recorded, in words; "" for a whole capture. Operations that only some ranks have
    do not count: the job may be like that. `last_counts`: counts that end early count.
    """
    whole = replace(context.model.completeness, missing_operations=0, behind_operations=0)
    if not last_counts:
        whole = replace(whole, counts_end_early=0)
    return "; ".join(whole.missing())


def find(context: RuleContext) -> list[Finding]:
    """Everything of this kind, as information."""
    c, findings = context.model.completeness, []
    absent = c.processes_expected - c.processes_found
    if absent > 0:
        findings.append(
            _finding(
                f"{plural(absent, 'process', 'processes')} of {c.processes_expected:,} left "
                "no files",
                "record every rank into the same directory",
                "missing",
                missing=absent,
            )
        )
    dropped = sum(c.dropped.values())
    if dropped:
        findings.append(
            _finding(
                f"{plural(dropped, 'event')} dropped ({', '.join(c.dropped)})",
                "give the recorder more memory (NCCLSCOPE_ARENA) or fewer events (--mode trace)",
                "dropped",
                **c.dropped,
            )
        )
    lost = sum(c.lost.values())
    if lost:
        findings.append(
            _finding(
                f"{plural(lost, 'event')} lost after recording ({', '.join(c.lost)})",
                _remedy(c),
                "lost",
                **c.lost,
            )
        )
    findings += _stamps(context)
    findings += _clocks(context)
    return findings


def _remedy(c: Completeness) -> str:
    """What keeps events from being lost next time."""
    if not c.drops_counted:
        return "it is an import, and the tool that wrote it lost them"
    if set(c.lost) == {FLIGHT_RECORDER}:
        return (
            "a flight recorder keeps the newest events only: a larger one (--ring SIZE) reaches "
            "further back, without one all are kept"
        )
    return "raise NCCLSCOPE_DISK_LIMIT, or keep the disk from filling"


def _stamps(context: RuleContext) -> list[Finding]:
    c, findings = context.model.completeness, []
    repaired, rejected = _wrong_stamps(context)
    if repaired or rejected:
        findings.append(
            _finding(
                f"{plural(repaired + rejected, 'operation')} had stamps of other operations: "
                f"{repaired:,} repaired, {rejected:,} left without times of the GPU",
                "a defect of NCCL's profiler interface; see docs/model.md",
                "stamps",
                **c.stamps,
            )
        )
    # Imports did not come through NCCL's profiler interface.
    rows = context.model.processes if c.drops_counted else []
    for release in sorted({parse_release(row.nccl_version) or (0, 0, 0) for row in rows}):
        for defect, text in _DEFECT_TEXTS.items():
            if applies(defect, release) and _job_has_cause(context, defect):
                findings.append(
                    _finding(text, "upgrade NCCL when a fixed release is out", "release")
                )
    untimed = sum(c.untimed.values())
    if c.operations and untimed > _MANY_UNTIMED * c.operations:
        findings.append(
            _finding(
                f"{percent(untimed / c.operations)} of operations have no time",
                "see `ncclscope report` for the reasons",
                "untimed",
                **c.untimed,
            )
        )
    return findings


def _wrong_stamps(context: RuleContext) -> tuple[int, int]:
    """Operations whose stamps were given to others: repaired ones, and those left without. Parts of
    operations do not count, though they have stamps as well.
    """
    operations, words = context.run.operations, context.model.words
    whole = operations["part_of"] == NONE
    codes = [code for code, text in enumerate(words["reason"]) if text in WRONG_STAMP_REASONS]
    sources = [code for code, name in enumerate(words["source"]) if name in GPU_SOURCES]
    repaired = operations["source"] == words["source"].index("gpu-repaired")
    rejected = np.isin(operations["reason"], codes) & ~np.isin(operations["source"], sources)
    return int((whole & repaired).sum()), int((whole & rejected).sum())


def _job_has_cause(context: RuleContext, defect: str) -> bool:
    """Whether the job did what brings on the defect."""
    if defect == STALE_AFTER_BROADCAST:
        return "Broadcast" in context.model.words["function"]
    ops = context.run.operations  # a send to self
    return bool(((ops["form"] == SEND) & (ops["peer"] == ops["rank"])).any())


def _clocks(context: RuleContext) -> list[Finding]:
    """Clocks that are too far apart to compare arrivals."""
    untied = [
        context.model.nodes[n] for n, clock in enumerate(context.model.clocks) if not clock.tied
    ]
    findings = []
    if untied:
        findings.append(
            _finding(
                f"clocks of {_nodes_in_words(context, len(untied))} are not tied to the others: "
                "times by wall clock",
                "arrivals there are not compared with others'",
                "untied",
                nodes=untied[:16],
            )
        )
    instances = context.model.tables["instances"]
    error = np.asarray(instances["error_ns"], np.int64)
    skew = np.asarray(instances["skew_ns"], np.int64)
    known = (error > 0) & (skew != NONE)
    if known.any():
        usual_error, usual_skew = float(np.median(error[known])), float(np.median(skew[known]))
        if usual_error > max(usual_skew, _LEAST_ERROR_NS):
            findings.append(
                _finding(
                    f"{_whose_clocks(context)} known to ± {duration(usual_error)} only, and ranks "
                    f"arrive within {duration(usual_skew)}",
                    "durations decide who came last instead"
                    + ("; mode full ties clocks better" if _can_be_tied(context) else ""),
                    "clock error",
                    error_us=round(usual_error / 1e3, 3),
                )
            )
    return findings


def _nodes_in_words(context: RuleContext, count: int) -> str:
    """So many nodes; in an import that does not name hosts each process stands for one."""
    if any(context.model.nodes):
        return plural(count, "node")
    return f"{plural(count, 'process', 'processes')} (which share a host is not known)"


def _whose_clocks(context: RuleContext) -> str:
    """Of one node only the GPUs' clocks are uncertain."""
    return "clocks of nodes are" if len(context.model.nodes) > 1 else "clocks of GPUs are"


def _can_be_tied(context: RuleContext) -> bool:
    """Whether more events would help: proxy steps tie nodes, and there are several."""
    full = all((row.fullest_mode or row.mode) == "full" for row in context.model.processes)
    return len(context.model.nodes) > 1 and not full
