"""Ranks that move far more, or call far more often, than their peers."""

from dataclasses import replace
from shlex import quote

import numpy as np

from ncclscope.analysis.balance import FunctionBalance, are_hubs, balances, module_balances
from ncclscope.analysis.robust_statistics import median, robust_spread
from ncclscope.arrays.types import Bools, Floats
from ncclscope.diagnose import SEVERITIES
from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import amount, percent, plural, ranks_in_words
from ncclscope.snapshot.types import PAIRED

_TIMES = 1.5  # the median rank's
_TIMES_NOISE = 6.0
_LEAST_NOISE = 0.02  # of the median
_LEAST_RANKS = 4
_MATTERS = 0.05  # of the run in these operations, on the heaviest rank
_MOST = 4  # findings
_MOST_MODULES = 3  # in a sentence
_VERBS = {"Send": ("send", ""), "Recv": ("receive", "")}


def find(context: RuleContext) -> list[Finding]:
    """By communicator and function: ranks with far more bytes, else with far more calls."""
    findings = []
    for balance in balances(context.run, _LEAST_RANKS):
        for what, values in (("bytes", balance.bytes), ("calls", balance.calls)):
            heavy = _heavy_ranks(values)
            if heavy.any() and not are_hubs(context.run, balance, heavy):
                findings.append(_finding(context, balance, what, values, heavy))
                break
    findings = _with_modules(context, _merge_both_ends(findings))
    findings.sort(key=lambda finding: -finding.lost_share)
    return findings[:_MOST]


def _with_modules(context: RuleContext, findings: list[Finding]) -> list[Finding]:
    """Findings with the modules that they come from, and one for each communicator and function
    that is uneven in single modules only.
    """
    uneven: dict[tuple[int, str], list[FunctionBalance]] = {}
    for balance in module_balances(context.run, _LEAST_RANKS):
        if _heavy_ranks(balance.bytes).any():
            uneven.setdefault((balance.communicator, balance.function), []).append(balance)
    for (communicator, function), modules in uneven.items():
        name = context.model.communicator_names[communicator]
        modules.sort(key=lambda balance: -_times(balance.bytes))
        same = [f for f in findings if f.communicators == (name,) and function in _functions(f)]
        for finding in same:
            findings[findings.index(finding)] = _of_modules(context, finding, modules)
        if not same:
            findings.append(_module_finding(context, modules))
    return findings


def _times(values: Floats) -> float:
    """The heaviest rank against the median."""
    return float(values.max() / np.median(values))


def _in_modules(context: RuleContext, modules: list[FunctionBalance]) -> str:
    """`layers.3 (rank 2: 4.1 times), layers.7 (rank 5: 3 times) and 2 more`."""
    parts = [
        f"{context.model.module_names[balance.module]} "
        f"({ranks_in_words(tuple(balance.ranks[_heavy_ranks(balance.bytes)].tolist()))}: "
        f"{_times(balance.bytes):.3g} times)"
        for balance in modules[:_MOST_MODULES]
    ]
    more = len(modules) - _MOST_MODULES
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def _module_facts(context: RuleContext, modules: list[FunctionBalance]) -> dict[str, object]:
    names = context.model.module_names
    return {names[balance.module]: round(_times(balance.bytes), 3) for balance in modules}


def _of_modules(context: RuleContext, finding: Finding, modules: list[FunctionBalance]) -> Finding:
    first, *others = finding.evidence
    facts = {**first.facts, "modules": _module_facts(context, modules)}
    sentence = f"{finding.sentence}; uneven in {_in_modules(context, modules)}"
    return replace(finding, sentence=sentence, evidence=(replace(first, facts=facts), *others))


def _module_finding(context: RuleContext, modules: list[FunctionBalance]) -> Finding:
    run, function = context.run, modules[0].function
    name = run.model.communicator_names[modules[0].communicator]
    heavy = [balance.ranks[_heavy_ranks(balance.bytes)] for balance in modules]
    ranks = tuple(sorted({int(rank) for own in heavy for rank in own}))
    lost_ns = sum(
        float(balance.busy_ns[_heavy_ranks(balance.bytes)].max()) * (1 - 1 / _times(balance.bytes))
        for balance in modules
    )
    share = min(lost_ns / run.span_ns, 1.0)
    return Finding(
        "imbalance",
        WARNING if share >= _MATTERS else INFO,
        f"in {plural(len(modules), 'module')} single ranks move more bytes than their peers in "
        f"{function} on {name}, though not in all modules together: "
        f"{_in_modules(context, modules)}",
        "balance the experts of each layer: a loss or a capacity for each, other placements",
        kind="module",
        ranks=ranks,
        hosts=tuple(sorted({run.host_of[rank] for rank in ranks if rank in run.host_of})),
        communicators=(name,),
        evidence=(
            Evidence(
                f"bytes of {function} by module and rank; {percent(share)} of the run at stake",
                {"function": function, "modules": _module_facts(context, modules)},
                f"ncclscope report {context.path} --by module,rank --comm {quote(name)} "
                f"--op {quote(function)}",
            ),
        ),
        confidence=0.8,
        lost_share=share,
        by_absence=True,
    )


def _functions(finding: Finding) -> list[str]:
    return [str(evidence.facts.get("function")) for evidence in finding.evidence]


def _heavy_ranks(values: Floats) -> Bools:
    """Which ranks have far more than the median; none where they are many: halves (the stages of a
    pipeline, say) are a pattern, a few that stand out are an imbalance.
    """
    usual = median(values)
    heavy: Bools = values > _TIMES * usual
    if not heavy.any():  # of nearly all communicators
        return heavy
    noise = max(robust_spread(values), _LEAST_NOISE * usual)
    heavy &= values > usual + _TIMES_NOISE * noise
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
    their, them = "their", "them"
    if len(ranks) == 1:
        verb, their, them = f"{verb}s", "its", "it"
    return Finding(
        "imbalance",
        WARNING if busiest >= _MATTERS * run.span_ns else INFO,
        f"{ranks_in_words(ranks)}{where} {verb} {times:.3g} times the {what} of {their} peers{how} "
        f"on {name} ({numbers})",
        f"{their} peers wait for {them}: spread the work (experts, shards, stages) more evenly",
        kind=what,
        ranks=ranks,
        hosts=hosts,
        communicators=(name,),
        evidence=(
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
