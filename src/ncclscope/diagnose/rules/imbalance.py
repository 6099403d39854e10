"""Ranks that move far more, or call far more often, than their peers."""

from dataclasses import replace
from shlex import quote

import numpy as np

from ncclscope.diagnose.finding import INFO, SEVERITIES, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext, spread
from ncclscope.humanize import amount, percent, ranks_in_words
from ncclscope.model.model import windows_by_process
from ncclscope.model.schema import NONE
from ncclscope.snapshot.types import PAIRED

_TIMES = 1.5  # the median rank's
_TIMES_NOISE = 6.0
_LEAST_RANKS = 4
_MATTERS = 0.05  # of the run in these operations, on the heaviest rank
_LEAST_CALLS = 10  # of a rank, where only a window is on record: its edges cut off some
_MOST = 4
_VERBS = {"Send": ("send", ""), "Recv": ("receive", "")}


def _of(hosts: tuple[str, ...]) -> str:
    shown = ", ".join(hosts[:4]) + (" …" if len(hosts) > 4 else "")
    return f" ({shown})" if hosts else ""


def find(frame: RuleContext) -> list[Finding]:
    """By communicator and function: bytes and calls of each rank."""
    ops = frame.ops
    rows = np.flatnonzero(
        frame.current & (ops["size_bytes"] != NONE) & (ops["global_rank"] != NONE)
    )
    if not len(rows):
        return []
    comm = np.asarray(ops["communicator"], np.int64)[rows]
    function = np.asarray(ops["function"], np.int64)[rows]
    rank = np.asarray(ops["global_rank"], np.int64)[rows]
    size = np.asarray(ops["size_bytes"], np.float64)[rows]
    time = np.maximum(np.asarray(ops["duration_ns"], np.float64)[rows], 0)
    kind = comm * 256 + function
    called = np.asarray(ops["call_ns"], np.int64)[rows]
    windows = windows_by_process(frame.model)
    findings = []
    for one in np.unique(kind).tolist():
        mine = kind == one
        ranks = frame.ranks_of(one // 256)
        if len(ranks) < _LEAST_RANKS:
            continue
        common = _common_to([windows[frame.process_of[r]] for r in ranks if r in frame.process_of])
        if common is not None:
            mine &= _within(called, common)
            if np.count_nonzero(mine) < _LEAST_CALLS * len(ranks):
                continue
        width = max(int(rank.max()), *ranks) + 1  # some of them may have done nothing
        calls = np.bincount(rank[mine], minlength=width)[ranks].astype(np.float64)
        moved = np.bincount(rank[mine], size[mine], minlength=width)[ranks]
        busy = np.bincount(rank[mine], time[mine], minlength=width)[ranks]
        for what, values in (("bytes", moved), ("calls", calls)):
            finding = _heavy(frame, one, what, np.array(ranks), values, busy)
            if finding is not None:
                findings.append(finding)
                break
    findings = _both_ends(findings)
    findings.sort(key=lambda finding: -finding.lost_share)
    return findings[:_MOST]


def _common_to(windows: list[list[tuple[int, int]] | None]) -> list[tuple[int, int]] | None:
    """When all of some processes recorded single calls; None: all the time. Windows that `ctl`
    opened do not begin together: what lies in one alone would look like more work.
    """
    limited = [mine for mine in windows if mine is not None]
    if not limited:
        return None
    edges = sorted(
        edge for mine in limited for start, end in mine for edge in ((start, 1), (end, -1))
    )
    found, recording, since = [], 0, 0
    for at, change in edges:
        if recording == len(limited):
            found.append((since, at))
        recording, since = recording + change, at
    return [(start, end) for start, end in found if start < end]


def _within(times: np.ndarray, windows: list[tuple[int, int]]) -> np.ndarray:
    inside = np.zeros(len(times), bool)
    for start, end in windows:
        inside |= (times >= start) & (times <= end)
    return inside


def _both_ends(findings: list[Finding]) -> list[Finding]:
    """What one rank sends another one receives: on one communicator that is one imbalance."""
    ends: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        if finding.evidence[0].facts["function"] in PAIRED:
            ends.setdefault((*finding.communicators, finding.kind), []).append(finding)
    merged = []
    for finding in findings:
        pair = ends.get((*finding.communicators, finding.kind), [finding])
        if finding not in pair or len(pair) != 2:
            merged.append(finding)
        elif finding is pair[0]:
            first, second = sorted(
                pair, key=lambda one: one.evidence[0].facts["function"] == "Recv"
            )
            merged.append(
                replace(
                    first,
                    sentence=f"{first.sentence}; {second.sentence}",
                    ranks=tuple(sorted({*first.ranks, *second.ranks})),
                    hosts=tuple(sorted({*first.hosts, *second.hosts})),
                    evidence=(*first.evidence, *second.evidence),
                    severity=max(first.severity, second.severity, key=SEVERITIES.index),
                    lost_share=max(first.lost_share, second.lost_share),
                )
            )
    return merged


def _heavy(
    frame: RuleContext,
    kind: int,
    what: str,
    ranks: np.ndarray,
    values: np.ndarray,
    busy: np.ndarray,
) -> Finding | None:
    usual = float(np.median(values))
    noise = max(spread(values), 0.02 * usual)
    heavy = (values > _TIMES * usual) & (values > usual + _TIMES_NOISE * noise)
    # Halves (the stages of a pipeline, say) are a pattern; a few that stand out are an imbalance.
    if not heavy.any() or heavy.sum() > len(ranks) // 4 or usual <= 0:
        return None
    chosen = tuple(ranks[heavy].tolist())
    times = float(values[heavy].max() / usual)
    share = min(float(busy[heavy].max()) * (1 - 1 / times) / frame.span_ns, 1.0)
    function = frame.word("function", kind % 256)
    name = frame.model.communicator_names[kind // 256]
    told = (
        amount(int(values[heavy].max()))
        if what == "bytes"
        else f"{int(values[heavy].max()):,} calls"
    )
    usually = amount(int(usual)) if what == "bytes" else f"{int(usual):,}"
    hosts = tuple(sorted({frame.host_of[r] for r in chosen if r in frame.host_of}))
    where = frame.where(chosen[0]) if len(chosen) == 1 else _of(hosts)
    verb, how = _VERBS.get(function, ("move" if what == "bytes" else "make", f" in {function}"))
    verb += "s" if len(chosen) == 1 else ""
    of_what = "the bytes" if what == "bytes" else "the calls"
    return Finding(
        "imbalance",
        WARNING if busy[heavy].max() >= _MATTERS * frame.span_ns else INFO,
        f"{ranks_in_words(chosen)}{where} {verb} {times:.3g} times {of_what} of "
        f"{'its' if len(chosen) == 1 else 'their'} peers{how} on {name} ({told} against {usually})",
        "its peers wait for it: spread the work (experts, shards, stages) more evenly",
        what,
        chosen,
        hosts,
        (name,),
        (
            Evidence(
                f"{what} of {function} by rank; {percent(share)} of the run at stake",
                {"function": function, "times": round(times, 3), "median": usual},
                f"ncclscope report {frame.path} --by rank --comm {quote(name)} "
                f"--op {quote(function)}",
            ),
        ),
        confidence=0.85,
        lost_share=share,
        by_absence=True,
    )
