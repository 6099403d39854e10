"""Ranks and hosts that others wait for: how late they are, by what, and what that costs."""

from shlex import quote

import numpy as np

from ncclscope.analysis.lateness import (
    Delay,
    Lateness,
    OwnTimeExcess,
    late_instances,
    lateness,
    own_time_excess,
)
from ncclscope.analysis.training_losses import phase_excess
from ncclscope.diagnose.finding import CRITICAL, INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent

_LOST_SHARE = 0.02  # of the run: less is nobody's concern
_GRAVE_SHARE = 0.25
_TIMES_PEERS = 6.0  # as much as the median rank adds
_TIMES_NEXT = 3.0  # as much as the next but one adds
_OFTEN = 5  # instances: less is an incident, not a habit
_PHASE_SHARE = 0.02  # of a step: a phase that takes so much longer is named
_MUCH_WAITING = 0.1  # of the run, for nobody in particular


def find(context: RuleContext) -> list[Finding]:
    """Stragglers, hosts before ranks."""
    late = lateness(context.run, context.synchronized)
    if late is None:
        return []
    stragglers = _stragglers(late)
    hosts = _late_hosts(context, late, stragglers)
    findings = [_host_finding(context, late, node) for node in hosts]
    findings += [
        _rank_finding(context, late, delay)
        for delay in late.ranks
        if delay.who in stragglers and context.run.node_of[delay.who] not in hosts
    ]
    return findings or _nobody_in_particular(context, late)


# ---- who stands out ----
def _stragglers(late: Lateness) -> set[int]:
    """Ranks that add far more than their peers; and ranks that are late every time, where the sum
    of that matters, though others hide much of it.
    """
    steady = {
        delay.who for delay in late.ranks if delay.steady_total_ns >= _LOST_SHARE * late.span_ns
    }
    return steady | _standing_out(late.ranks, late.span_ns)


def _is_enough(delay: Delay, span_ns: float) -> bool:
    return delay.trimmed_ns >= _LOST_SHARE * span_ns and delay.times >= _OFTEN


def _standing_out(delays: tuple[Delay, ...], span_ns: float) -> set[int]:
    """Who adds far more than the others, and enough to matter."""
    outstanding = set()
    added = np.array([delay.added_ns for delay in delays])
    for place, delay in enumerate(delays):
        if len(delays) < 2 or not _is_enough(delay, span_ns):
            continue
        others = np.delete(added, place)
        # One more may be as late; of many, some add much by chance alone.
        usual = np.median(others) if len(others) > 2 else others.max()
        next_but_one = np.sort(others)[::-1][min(len(others) - 1, 1)]
        if delay.added_ns > max(_TIMES_PEERS * usual, _TIMES_NEXT * next_but_one):
            outstanding.add(delay.who)
    return outstanding


def _late_hosts(context: RuleContext, late: Lateness, stragglers: set[int]) -> list[int]:
    """Nodes that are late as a whole."""
    if len(late.nodes) < 2:
        return []
    hosts = _standing_out(late.nodes, late.span_ns)
    ranks_of: dict[int, list[Delay]] = {}
    for delay in late.ranks:
        ranks_of.setdefault(int(context.run.node_of[delay.who]), []).append(delay)
    most_of = {node: max(delay.added_ns for delay in own) for node, own in ranks_of.items()}
    for node, own in ranks_of.items():
        others = [most for other, most in most_of.items() if other != node]
        if len(own) < 2 or not others:
            continue
        # Ranks of a host that are late one by one, each in a communicator of its own.
        each = all(delay.who in stragglers or delay.steady_ns > 0 for delay in own)
        if each and any(delay.who in stragglers for delay in own):
            hosts.add(node)
        # Of two hosts none has peers to be compared with, and of their ranks half are late.
        all_late = all(_is_enough(delay, late.span_ns) for delay in own)
        if all_late and min(delay.added_ns for delay in own) > _TIMES_NEXT * max(others):
            hosts.add(node)
    return sorted(hosts)


def _severity(share: float) -> str:
    if share >= _LOST_SHARE / 2:
        return CRITICAL if share >= _GRAVE_SHARE else WARNING
    return INFO  # it is late each time, and others hide it


# ---- sentences ----
_CAUSES = {
    "compute": "it comes late to the call: its compute or its host code takes longer",
    "launch": "it calls in time, and its host is slow to launch the kernel",
    "gpu": "it launches in time, and its GPU is still busy with something else",
}
_HOST_CAUSES = {
    "compute": "its ranks come late to their calls",
    "launch": "its ranks call in time, and are slow to launch",
    "gpu": "its ranks launch in time, and their GPUs are still busy",
}
_ADVICE = {
    "compute": "look at this rank's share of work, its data loader, its GPU clocks and thermals",
    "launch": "look for a busy or throttled CPU on its host, wrong CPU affinity, other processes",
    "gpu": "compare its GPU clocks, thermals and kernel times with another rank's",
}


def _excess_evidence(text: str, excess: OwnTimeExcess, command: str = "") -> Evidence:
    parts = excess.by_part()
    listed = ", ".join(f"{name} {duration(max(ns, 0))}" for name, ns in parts.items())
    facts = {f"{part}_us": round(ns / 1e3, 3) for part, ns in parts.items()}
    return Evidence(f"{text}: {listed}", facts, command)


def _rank_finding(context: RuleContext, late: Lateness, delay: Delay) -> Finding:
    run, rank = context.run, delay.who
    share = delay.added_ns / late.span_ns
    excess = own_time_excess(run, context.own_times, np.array([rank]))
    instances = late_instances(late, context.synchronized, rank)
    table = run.model.tables["instances"]
    name = run.model.communicator_names[int(table["communicator"][instances.worst])]
    at_s = context.at(int(table["last_start_ns"][instances.worst]))
    sentence = (
        f"rank {rank}{context.where(rank)} comes last to {instances.late:,} of "
        f"{instances.instances:,} {context.looked_at}, typically "
        f"{duration(instances.typical_ns)} after everybody else; waiting for it costs "
        f"{percent(share)} of the run"
    )
    if delay.times < _OFTEN:
        sentence = (
            f"rank {rank}{context.where(rank)} takes {duration(delay.steady_ns)} longer than its "
            f"peers each time, which others mostly hide: {percent(share)} of the run"
        )
    host = run.host_of.get(rank, "")
    sentence, evidence = _with_phase(context, rank, sentence)
    return Finding(
        "straggler",
        _severity(share),
        sentence,
        f"{_CAUSES[excess.largest]}: {_ADVICE[excess.largest]}",
        excess.largest,
        (rank,),
        (host,) if host else (),
        (name,),
        (
            _excess_evidence("longer than others, on average of its operations", excess),
            Evidence(
                f"most in {name}, {at_s} s after the start",
                {"instance": instances.worst, "added_us": round(instances.worst_ns / 1e3, 3)},
                f"ncclscope report {context.path} --by rank --comm {quote(name)}",
            ),
            *evidence,
        ),
        confidence=min(0.5 + 0.5 * delay.times / (delay.times + 10), 0.99),
        lost_share=min(share, 1.0),
    )


def _with_phase(context: RuleContext, rank: int, sentence: str) -> tuple[str, tuple[Evidence, ...]]:
    """The sentence with the phase of training in which the rank is late, where that is known."""
    excess = phase_excess(context.model, context.run.process_of[rank])
    if excess is None or excess.longer_ns < _PHASE_SHARE * excess.step_ns:
        return sentence, ()
    longer = duration(excess.longer_ns)
    evidence = Evidence(
        f"{excess.phase} takes {longer} longer a step than on other ranks",
        {"phase": excess.phase, "longer_us": round(excess.longer_ns / 1e3, 3)},
        f"ncclscope report {context.path} --by phase,rank",
    )
    return f"{sentence}; it is late in {excess.phase}", (evidence,)


def _host_finding(context: RuleContext, late: Lateness, node: int) -> Finding:
    run = context.run
    ranks = tuple(sorted(rank for rank in run.host_of if run.node_of[rank] == node))
    # Its ranks may be late in communicators of their own: as much as the worst of them.
    delays = [delay for delay in late.nodes if delay.who == node]
    delays += [delay for delay in late.ranks if delay.who in ranks]
    share = max(delay.added_ns for delay in delays) / late.span_ns
    excess = own_time_excess(run, context.own_times, np.array(ranks))
    host = run.model.nodes[node]
    return Finding(
        "straggler",
        _severity(share),
        f"all {len(ranks)} ranks of {host} come late to collectives; waiting for them costs "
        f"{percent(share)} of the run",
        "something of the whole host is slow: look at its power, thermals, CPU and storage; "
        f"{_HOST_CAUSES[excess.largest]}",
        f"host {excess.largest}",
        ranks,
        (host,),
        (),
        (
            _excess_evidence(
                "longer than on other hosts, on average of operations",
                excess,
                f"ncclscope report {context.path} --by host",
            ),
        ),
        confidence=0.9,
        lost_share=min(share, 1.0),
    )


def _nobody_in_particular(context: RuleContext, late: Lateness) -> list[Finding]:
    """Much waiting, each time for another rank."""
    share = late.waiting_ns / late.span_ns
    if share < _MUCH_WAITING:
        return []
    return [
        Finding(
            "straggler",
            INFO,
            f"{percent(min(share, 1.0))} of the run passes in waiting for the last rank, each time "
            "another one",
            "uneven work from step to step, or noise of the system: no rank stands out",
            "anyone",
            evidence=(Evidence("by rank", {}, f"ncclscope report {context.path} --by rank"),),
            confidence=0.6,
            lost_share=min(share, 1.0),
        )
    ]
