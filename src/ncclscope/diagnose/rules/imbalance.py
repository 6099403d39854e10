"""Ranks that move far more, or call far more often, than their peers."""

from dataclasses import replace
from shlex import quote

import numpy as np

from ncclscope.analysis.balance import FunctionBalance, balances
from ncclscope.analysis.robust_statistics import robust_spread
from ncclscope.arrays.types import Bools, Floats
from ncclscope.diagnose.finding import INFO, SEVERITIES, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import amount, percent, ranks_in_words
from ncclscope.snapshot.types import PAIRED

_TIMES = 1.5  # the median rank's
_TIMES_NOISE = 6.0
_LEAST_NOISE = 0.02  # of the median
_LEAST_RANKS = 4
_MATTERS = 0.05  # of the run in these operations, on the heaviest rank
_MOST = 4  # findings
_VERBS = {"Send": ("send", ""), "Recv": ("receive", "")}


def find(context: RuleContext) -> list[Finding]:
    """By communicator and function: ranks with far more bytes, else with far more calls."""
    findings = []
    for balance in balances(context.run, _LEAST_RANKS):
        for what, values in (("bytes", balance.bytes), ("calls", balance.calls)):
            heavy = _heavy_ranks(values)
            if heavy.any():
                findings.append(_finding(context, balance, what, values, heavy))
                break
    findings = _merge_both_ends(findings)
    findings.sort(key=lambda finding: -finding.lost_share)
    return findings[:_MOST]


def _heavy_ranks(values: Floats) -> Bools:
    """Which ranks have far more than the median; none where they are many: halves (the stages of a
    pipeline, say) are a pattern, a few that stand out are an imbalance.
    """
    usual = float(np.median(values))
    noise = max(robust_spread(values), _LEAST_NOISE * usual)
    heavy: Bools = (values > _TIMES * usual) & (values > usual + _TIMES_NOISE * noise)
    if usual <= 0 or heavy.sum() > len(values) // 4:
        heavy[:] = False
    return heavy


def _finding(
    context: RuleContext, balance: FunctionBalance, what: str, values: Floats, heavy: Bools
) -> Finding:
    run, function = context.run, balance.function
    ranks = tuple(balance.ranks[heavy].tolist())
    usual, most = float(np.median(values)), float(values[heavy].max())
    times, busiest = most / usual, float(balance.busy_ns[heavy].max())
    share = min(busiest * (1 - 1 / times) / run.span_ns, 1.0)
    name = run.model.communicator_names[balance.communicator]
    numbers = f"{int(most):,} calls against {int(usual):,}"
    if what == "bytes":
        numbers = f"{amount(int(most))} against {amount(int(usual))}"
    hosts = tuple(sorted({run.host_of[rank] for rank in ranks if rank in run.host_of}))
    where = context.where(ranks[0]) if len(ranks) == 1 else _in_brackets(hosts)
    verb, how = _VERBS.get(function, ("move" if what == "bytes" else "make", f" in {function}"))
    verb, their = (f"{verb}s", "its") if len(ranks) == 1 else (verb, "their")
    return Finding(
        "imbalance",
        WARNING if busiest >= _MATTERS * run.span_ns else INFO,
        f"{ranks_in_words(ranks)}{where} {verb} {times:.3g} times the {what} of {their} peers{how} "
        f"on {name} ({numbers})",
        "its peers wait for it: spread the work (experts, shards, stages) more evenly",
        what,
        ranks,
        hosts,
        (name,),
        (
            Evidence(
                f"{what} of {function} by rank; {percent(share)} of the run at stake",
                {"function": function, "times": round(times, 3), "median": usual},
                f"ncclscope report {context.path} --by rank --comm {quote(name)} "
                f"--op {quote(function)}",
            ),
        ),
        confidence=0.85,
        lost_share=share,
        by_absence=True,
    )


def _in_brackets(hosts: tuple[str, ...]) -> str:
    shown = ", ".join(hosts[:4]) + (" …" if len(hosts) > 4 else "")
    return f" ({shown})" if hosts else ""


def _function(finding: Finding) -> str:
    return str(finding.evidence[0].facts["function"])


def _merge_both_ends(findings: list[Finding]) -> list[Finding]:
    """What one rank sends another one receives: on one communicator that is one imbalance."""
    ends: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        if _function(finding) in PAIRED:
            ends.setdefault((*finding.communicators, finding.kind), []).append(finding)
    merged = []
    for finding in findings:
        pair = ends.get((*finding.communicators, finding.kind), [finding])
        if finding not in pair or len(pair) != 2:
            merged.append(finding)
        elif finding is pair[0]:
            sent, received = sorted(pair, key=lambda end: _function(end) == "Recv")
            merged.append(
                replace(
                    sent,
                    sentence=f"{sent.sentence}; {received.sentence}",
                    ranks=tuple(sorted({*sent.ranks, *received.ranks})),
                    hosts=tuple(sorted({*sent.hosts, *received.hosts})),
                    evidence=(*sent.evidence, *received.evidence),
                    severity=max(sent.severity, received.severity, key=SEVERITIES.index),
                    lost_share=max(sent.lost_share, received.lost_share),
                )
            )
    return merged
