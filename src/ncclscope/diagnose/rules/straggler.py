"""Ranks and hosts that others wait for: how late they are, by what, and what that costs."""

from dataclasses import replace
from shlex import quote

import numpy as np

from ncclscope.analysis.training_losses import late_calls, phase_excess
from ncclscope.analysis.waiting.origins import Origin, WaitingAccount
from ncclscope.analysis.waiting.rank_delays import Delays
from ncclscope.analysis.waiting.root_causes import RootCauses
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.late_ranks import (
    ADVICE,
    CAUSES,
    IDLE,
    IDLE_ROOTS,
    KINDS,
    cost_in_words,
    late_by_sample,
    only_origin,
    severity,
    waiting_by_rank,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent, plural, ranks_in_words

_LEAST_SHARE = 0.015  # of the run
_MUCH_WAITING = 0.1  # of the run, on the average rank
_PHASE_SHARE = 0.02  # of a step: a phase that takes this much longer is named
_LATER = 0.15  # of the run: delays that begin, or end, so far from its ends are not always there
_EXPLAINED = 0.2  # of the cost of a rank, by its delays
_MANY = 4  # ranks that are late alike are named in one finding
_MOST_NAMED = 3


def find(context: RuleContext) -> list[Finding]:
    """Stragglers, hosts before ranks; or waiting for nobody in particular, where no rank paused
    either.
    """
    account = context.account
    if account is None:
        return []
    causes = context.root_causes
    late = _stragglers(context, causes) if causes is not None and causes.ranks else []
    sampled = {delays.rank for delays in late_by_sample(context)}  # sampled_straggler.py has them
    late = [finding for finding in late if not sampled.issuperset(finding.ranks)]
    if late or sampled or context.pauses:
        return late
    only = _only_origin(context)
    if only or context.heavy_stage is not None:  # heavy_stage.py has it
        return only
    return _nobody_in_particular(context, account)


def _stragglers(context: RuleContext, causes: RootCauses) -> list[Finding]:
    """A finding for each host that is late as a whole, and for each other late rank."""
    late = {delays.rank: delays for delays in causes.ranks}
    may_cost = _may_cost(context, causes)
    share_of = _shares(causes, may_cost)
    hosts = _late_hosts(context, set(late))
    if len(hosts) > 1 and _are_of_one_speed(context, list(causes.ranks)):
        hosts = {}  # older GPUs are one cause, however many hosts have them
    findings, named = [], set()
    for node, ranks in hosts.items():
        named |= set(ranks)
        share = sum(share_of[rank] for rank in ranks)
        findings.append(_host_finding(context, node, [late[r] for r in ranks], causes, share))
    rest = [delays for delays in causes.ranks if delays.rank not in named]
    alone = len(causes.ranks) == 1 and not causes.communicators
    # Servers without requests are late for another reason than ranks beside them.
    for alike in ([d for d in rest if not d.as_idle_root], [d for d in rest if d.as_idle_root]):
        if len(alike) > _MANY or _are_of_one_speed(context, alike):
            share = sum(share_of[delays.rank] for delays in alike)
            findings.append(_many_finding(context, alike, causes, share))
            named |= {delays.rank for delays in alike}
    for delays in causes.ranks:
        if delays.rank in named:
            continue
        if share_of[delays.rank] < _LEAST_SHARE and len(causes.ranks) > 1:
            continue  # found behind others, and not worth a sentence
        if not _explains(context, delays, share_of[delays.rank]):
            continue  # its delays are too short for what it would cost
        prediction = causes.prediction if alone else None
        share = share_of[delays.rank]
        cost = cost_in_words(context, prediction, share, "it", _alone(causes, (delays.rank,)))
        sampled_share = 0.0
        if context.what_if is not None and context.what_if.why_not:
            # A replay of a sample says nothing about the cost: the delays themselves count.
            sampled_share = delays.times * delays.typical_ns / context.run.span_ns
        found = _rank_finding(context, delays, cost, (share, sampled_share))
        if may_cost:  # how grave it is, is what it may cost; what it costs is in the middle
            likely = max(causes.prediction.likely_gained_share, 0.0)
            found = replace(found, lost_share=min(found.lost_share, likely))
        findings.append(found)
    return findings


def _may_cost(context: RuleContext, causes: RootCauses) -> bool:
    """Whether the record hides what a replay needs, so that what a single cause may cost counts."""
    has_gaps = context.what_if is not None and context.what_if.has_gaps
    return has_gaps and len(causes.ranks) + len(causes.communicators) == 1


def _are_of_one_speed(context: RuleContext, late: list[Delays]) -> bool:
    """Whether these ranks are slower than all others, and alike: an older generation of GPUs."""
    assert context.waiting is not None
    return context.waiting.are_of_one_speed([delays.rank for delays in late])


def _explains(context: RuleContext, delays: Delays, share: float) -> bool:
    """Whether the delays that a sentence would name are about as long as what they cost."""
    return delays.times * delays.typical_ns >= _EXPLAINED * share * context.run.span_ns


def _shares(causes: RootCauses, may_cost: bool) -> dict[int, float]:
    """By rank the share of the run that it costs: of what all causes cost together, in proportion
    to what each gains alone, and after all others were taken out. Two ranks that are equally late
    gain nothing alone, and everything after the other one. `may_cost`: what it costs at most.
    """
    prediction = causes.prediction
    together = max(prediction.most_gained_share if may_cost else prediction.gained_share, 0.0)
    alone = np.array([max(one.gained_share, 0.0) for one in causes.alone])
    last = np.array(causes.last_ns, np.float64) / max(causes.prediction.run_now_ns, 1)
    weight = alone + np.maximum(last, 0.0) + 1e-6
    shares = together * weight / weight.sum()
    return {delays.rank: float(share) for delays, share in zip(causes.ranks, shares, strict=False)}


def _late_hosts(context: RuleContext, late: set[int]) -> dict[int, list[int]]:
    """Nodes all of whose ranks are late, where other nodes have ranks that are not."""
    ranks_of: dict[int, list[int]] = {}
    for rank in context.run.host_of:
        ranks_of.setdefault(int(context.run.node_of[rank]), []).append(rank)
    return {
        node: sorted(ranks)
        for node, ranks in ranks_of.items()
        if len(ranks) > 1 and len(ranks_of) > 1 and late.issuperset(ranks)
    }


# ---- sentences ----
_HOST_CAUSES = {
    "compute": "its ranks come late to their calls",
    "launch": "its ranks call in time, and are slow to launch",
    "gpu": "its GPUs take longer from one operation to the next",
}


def _kind(delays: Delays) -> str:
    return KINDS.get(delays.kind, "compute")


def _before(context: RuleContext, delays: Delays) -> str:
    function, communicator = delays.before
    name = context.run.model.communicator_names[communicator]
    return f"{context.run.word('function', function)} on {name}"


def _excess_evidence(delays: Delays) -> Evidence:
    """By which part of its own time a rank is late."""
    parts = dict.fromkeys(ADVICE, 0)
    for kind, ns in delays.kinds_ns.items():
        parts[KINDS[kind]] += ns
    listed = ", ".join(f"{name} {duration(ns)}" for name, ns in parts.items() if ns)
    facts = {f"{part}_us": round(ns / 1e3, 3) for part, ns in parts.items()}
    return Evidence(f"longer than usual at the same place of a step: {listed}", facts)


def _waiting_evidence(context: RuleContext, delays: Delays) -> Evidence:
    """Who waited because of a rank."""
    waiting = context.waiting
    text = f"others waited {duration(delays.waiting_ns)} because of it"
    victims: list[tuple[int, int]] = []
    if waiting is not None:
        row = context.waits_because_of(waiting, delays.rank)
        order = np.argsort(-row)[:_MOST_NAMED]
        victims = [(int(waiting.kernels.ranks[at]), int(row[at])) for at in order if row[at]]
    if victims:
        text += ": " + ", ".join(f"rank {rank} {duration(ns)}" for rank, ns in victims)
    name = context.run.model.communicator_names[delays.before[1]]
    facts = {"waiting_us": round(delays.waiting_ns / 1e3, 3), "times": delays.times}
    command = f"ncclscope report {context.path} --by rank --comm {quote(name)}"
    return Evidence(text, facts, command)


def _pause_evidence(context: RuleContext, delays: Delays) -> list[Evidence]:
    waiting = context.waiting
    if waiting is None or not len(delays.pauses):
        return []
    longest = float(waiting.excess_ns[delays.pauses].max())
    count = plural(len(delays.pauses), "single pause")
    text = f"{count} of up to {duration(longest)} not counted: no habit"
    return [Evidence(text, {"pauses": len(delays.pauses), "longest_us": round(longest / 1e3, 3)})]


def _confidence(delays: Delays) -> float:
    return min(0.5 + 0.5 * delays.times / (delays.times + 10), 0.99)


def _alone(causes: RootCauses, ranks: tuple[int, ...]) -> str:
    """What some ranks gain if no other cause is mended, and all causes together."""
    together = causes.prediction
    text = f"all causes together {percent(together.gained_share)}"
    if len(ranks) == 1:
        places = [delays.rank for delays in causes.ranks]
        gain = max(causes.alone[places.index(ranks[0])].gained_share, 0.0)
        text = f"mended alone {percent(gain)}, {text}"
    return f" ({text})"


def _when(context: RuleContext, delays: list[Delays]) -> str:
    """When ranks are late, where that is not the whole run: " from 3.100 s on"."""
    first = min(one.first_ns for one in delays if one.times)
    last = max(one.last_ns for one in delays if one.times)
    waiting = context.waiting
    if waiting is None:
        return ""
    began = int(waiting.time_ns.min()) + waiting.start_up_ns
    ended = began + waiting.steady_ns
    since, until = first > began + _LATER * (ended - began), last < ended - _LATER * (ended - began)
    if since and until:
        return f" from {context.at(first)} to {context.at(last)} s"
    if since:
        return f" from {context.at(first)} s on"
    return f" until {context.at(last)} s" if until else ""


def _rank_finding(
    context: RuleContext, delays: Delays, cost: str, shares: tuple[float, float]
) -> Finding:
    rank, kind = delays.rank, _kind(delays)
    share, sampled_share = shares
    host = context.run.host_of.get(rank, "")
    name = context.run.model.communicator_names[delays.before[1]]
    phase, phase_evidence = _phase(context, rank)
    if delays.as_idle_root:
        cost = f"{IDLE}; {cost}"
    return Finding(
        "straggler",
        INFO if delays.as_idle_root else severity(context, max(share, sampled_share)),
        f"rank {rank}{context.where(rank)} is late {delays.times:,} times"
        f"{_when(context, [delays])}, typically by "
        f"{duration(delays.typical_ns)}, mostly to {_before(context, delays)}{phase}; {cost}",
        f"{CAUSES[kind]}: {ADVICE[kind]}",
        kind=kind,
        ranks=(rank,),
        hosts=(host,) if host else (),
        communicators=(name,),
        evidence=(
            _excess_evidence(delays),
            _waiting_evidence(context, delays),
            *_pause_evidence(context, delays),
            *phase_evidence,
        ),
        confidence=_confidence(delays),
        lost_share=min(share, 1.0),
    )


def _phase(context: RuleContext, rank: int) -> tuple[str, tuple[Evidence, ...]]:
    """ " of layers.17, in backward" where the training context says for which module's data others
    wait, and in which phase the rank is late.
    """
    process = context.run.process_of[rank]
    if not context.model.has_context:
        return "", ()
    late = late_calls(context.model, process)
    module = f" of {late.module}" if late.module else ""
    excess = phase_excess(context.model, process)
    if excess is None or excess.longer_ns < _PHASE_SHARE * excess.step_ns:
        return module + (f", in {late.phase}" if late.phase else ""), ()
    evidence = Evidence(
        f"{excess.phase} takes {duration(excess.longer_ns)} longer a step than on other ranks",
        {"phase": excess.phase, "longer_us": round(excess.longer_ns / 1e3, 3)},
        f"ncclscope report {context.path} --by phase,rank",
    )
    return f"{module}, in {excess.phase}", (evidence,)


def _host_finding(
    context: RuleContext, node: int, late: list[Delays], causes: RootCauses, share: float
) -> Finding:
    kind = _kind(max(late, key=lambda delays: delays.times))
    host, ranks = context.run.model.nodes[node], tuple(delays.rank for delays in late)
    typical = float(np.median([delays.typical_ns for delays in late]))
    only = len(causes.ranks) == len(ranks) and not causes.communicators
    together = causes.prediction if only else None
    cost = cost_in_words(context, together, share, "them", _alone(causes, ranks))
    return Finding(
        "straggler",
        severity(context, share),
        f"all {len(ranks)} ranks of {host} are late{_when(context, late)}, typically by "
        f"{duration(typical)}; {cost}",
        "something of the whole host is slow: look at its power, thermals, CPU and storage; "
        f"{_HOST_CAUSES[kind]}",
        kind=f"host {kind}",
        ranks=ranks,
        hosts=(host,),
        communicators=(),
        evidence=(
            Evidence(
                "each of them is longer than usual at the same places of a step",
                {"typical_us": round(typical / 1e3, 3)},
                f"ncclscope report {context.path} --by host",
            ),
        ),
        confidence=0.9,
        lost_share=min(share, 1.0),
    )


def _many_finding(
    context: RuleContext, late: list[Delays], causes: RootCauses, share: float
) -> Finding:
    """Several ranks that are late alike."""
    ranks = tuple(sorted(delays.rank for delays in late))
    kind = _kind(max(late, key=lambda delays: delays.times))
    typical = float(np.median([delays.typical_ns for delays in late]))
    hosts = tuple(sorted({context.run.host_of[r] for r in ranks if r in context.run.host_of}))
    only = len(causes.ranks) == len(ranks) and not causes.communicators
    cost = cost_in_words(context, causes.prediction if only else None, share, "them")
    idle = all(delays.as_idle_root for delays in late)
    common = "look for what these ranks have in common"
    if _are_of_one_speed(context, late):
        common = "they are alike, and slower than all others: compare GPU models and clocks"
    return Finding(
        "straggler",
        INFO if idle else severity(context, share),
        f"{ranks_in_words(ranks)} are late, typically by {duration(typical)}; "
        f"{f'{IDLE_ROOTS}; ' if idle else ''}{cost}",
        f"{common}; {ADVICE[kind]}",
        kind=kind,
        ranks=ranks,
        hosts=hosts,
        communicators=(),
        evidence=(
            Evidence(
                f"{len(ranks)} of {len(context.run.host_of)} ranks",
                {"typical_us": round(typical / 1e3, 3)},
                f"ncclscope report {context.path} --by rank",
            ),
        ),
        confidence=0.85,
        lost_share=min(share, 1.0),
    )


def _only_origin(context: RuleContext) -> list[Finding]:
    only = only_origin(context)
    if only is None:
        return []
    delays, prediction = only
    share = prediction.gained_share
    cost = cost_in_words(context, prediction, share, "it")
    return [_rank_finding(context, delays, cost, (share, 0.0))]


# ---- no straggler ----
def _waited_ns(account: WaitingAccount) -> float:
    """What operations of the average rank waited, without start-up. Operations on several streams
    wait at the same time: this may be longer than the run.
    """
    return (account.total_ns - account.start_up_ns) / max(len(account.ranks), 1)


def _nobody_in_particular(context: RuleContext, account: WaitingAccount) -> list[Finding]:
    """Much waiting, and no rank that most of it began on."""
    waited_ns = _waited_ns(account)
    share = waited_ns / context.run.span_ns
    if share < _MUCH_WAITING:
        return []
    largest = _largest_part(context, account)
    return [
        Finding(
            "straggler",
            INFO,
            f"operations of the average rank wait {duration(waited_ns)} for other ranks, in a run "
            f"of {duration(context.run.span_ns)}; no rank stands out, {largest}",
            "ncclscope report shows all origins of waiting",
            kind="anyone",
            evidence=(
                Evidence(
                    "origins of waiting",
                    {"structure_us": round(account.structure_ns / 1e3, 3)},
                    f"ncclscope report {context.path}",
                ),
            ),
            confidence=0.6,
            lost_share=min(share, 1.0),
        )
    ]


def _largest_part(context: RuleContext, account: WaitingAccount) -> str:
    """What most of the waiting comes from."""
    first: Origin | None = account.origins[0] if account.origins else None
    by_rank = waiting_by_rank(account)
    rank = max(by_rank, key=lambda rank: by_rank[rank], default=0)
    of_first = percent(by_rank.get(rank, 0) / max(account.total_ns - account.start_up_ns, 1))
    parts = {
        "most is the structure of the job (stages that wait for each other)": account.structure_ns,
        f"most began on single ranks, {of_first} on rank {rank}": sum(by_rank.values()),
        "most is below the error of the clocks": account.below_clock_error_ns,
    }
    transfers = sum(o.waiting_ns for o in account.origins if o.rank is None)
    if first is not None:
        parts["most is transfers of unequal length"] = transfers
    return max(parts, key=lambda text: parts[text])
