"""Ranks and hosts that others wait for: how late they are, by what, and what that costs."""

from dataclasses import replace

import numpy as np

from ncclscope.analysis.waiting.origins import Origin, WaitingAccount, waiting_by_rank
from ncclscope.analysis.waiting.rank_delays import Delays
from ncclscope.analysis.waiting.root_causes import RootCauses
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.late_rank_findings import (
    alone_in_words,
    are_of_one_speed,
    holds_back,
    host_finding,
    host_in_turn_finding,
    kind_of,
    many_finding,
    more_data_finding,
    rank_finding,
)
from ncclscope.diagnose.late_ranks import (
    cost_in_words,
    only_origin,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent

_LEAST_SHARE = 0.015  # of the run
_MUCH_WAITING = 0.1  # of the run, on the average rank
_EXPLAINED = 0.2  # of the cost of a rank, by its delays
_AS_LATE = 1.5  # times the delays of idle servers
_GAINED_ALONE = 0.25  # of what a rank costs, where others of its communicator are as late
_SAME_COST = 0.8  # of what ranks cost that are late as a habit, by their pauses alone
_MANY = 4  # ranks that are late alike are named in one finding


def find(context: RuleContext) -> list[Finding]:
    """Stragglers, hosts before ranks; or waiting for nobody in particular, where no rank paused
    either.
    """
    account = context.account
    if account is None or context.is_sparse:  # sampled_straggler.py has those of samples
        return []
    causes = context.root_causes
    if context.host_in_turn is not None:
        return [host_in_turn_finding(context, context.host_in_turn)]
    late = _stragglers(context, causes) if causes is not None and causes.ranks else []
    if late or context.pauses or context.pauses_in_turn is not None:
        return late
    only = _only_origin(context)
    if only or context.heavy_stage is not None or context.only_root is not None:
        return only  # heavy_stage.py and only_root.py have the others
    return _nobody_in_particular(context, account)


def _stragglers(context: RuleContext, causes: RootCauses) -> list[Finding]:
    """A finding for each host that is late as a whole, and for each other late rank."""
    causes = replace(causes, ranks=_with_idle_servers(causes.ranks))
    late = {delays.rank: delays for delays in causes.ranks}
    may_cost = _may_cost(context, causes)
    share_of = _shares(context, causes, may_cost)
    more_data = context.more_data
    hosts = _late_hosts(context, set(late) - more_data.keys())
    if len(hosts) > 1 and are_of_one_speed(context, list(causes.ranks)):
        hosts = {}  # older GPUs are one cause, however many hosts have them
    findings, named = [], set(more_data)
    share = sum(share_of[rank] for rank in more_data)
    if share >= _LEAST_SHARE:
        unequal = [own for own in causes.ranks if own.rank in more_data]
        findings.append(more_data_finding(context, unequal, more_data, causes, share))
    for node, ranks in hosts.items():
        named |= set(ranks)
        share = sum(share_of[rank] for rank in ranks)
        if _are_pauses(context, ranks, share):
            continue
        findings.append(host_finding(context, node, [late[r] for r in ranks], causes, share))
    rest = [delays for delays in causes.ranks if delays.rank not in named]
    alone = len(causes.ranks) == 1 and not causes.communicators
    # Servers without requests are late for another reason than ranks beside them.
    for alike in ([d for d in rest if not d.as_idle_root], [d for d in rest if d.as_idle_root]):
        if not (len(alike) > _MANY or are_of_one_speed(context, alike)):
            alike = _slow_communicator(context, alike, causes, share_of)
        if alike:
            share = sum(share_of[delays.rank] for delays in alike)
            findings.append(many_finding(context, alike, causes, share))
            named |= {delays.rank for delays in alike}
    for delays in causes.ranks:
        if delays.rank in named:
            continue
        if share_of[delays.rank] < _LEAST_SHARE and len(causes.ranks) > 1:
            continue  # found behind others, and not worth a sentence
        likely = max(causes.prediction.likely_gained_share, 0.0) if may_cost else 1.0
        explained = _explains(context, delays, min(share_of[delays.rank], likely))
        if not explained and not holds_back(context, delays):
            continue  # its delays are too short for what it would cost
        prediction = causes.prediction if alone else None
        share = share_of[delays.rank]
        cost = cost_in_words(
            context, prediction, share, "it", alone_in_words(causes, (delays.rank,))
        )
        sampled_share = 0.0
        if context.what_if is not None and context.what_if.why_not:
            # A replay of a sample says nothing about the cost: the delays themselves count.
            sampled_share = delays.times * delays.typical_ns / context.run.span_ns
        findings.append(rank_finding(context, delays, cost, (share, sampled_share)))
    if may_cost:  # how grave it is, is what it may cost; what it costs is in the middle
        likely = max(causes.prediction.likely_gained_share, 0.0)
        findings = [replace(one, lost_share=min(one.lost_share, likely)) for one in findings]
    return findings


def _may_cost(context: RuleContext, causes: RootCauses) -> bool:
    """Whether the record hides what a replay needs, so that what a single cause may cost counts."""
    has_gaps = context.what_if is not None and context.what_if.has_gaps
    return has_gaps and len(causes.ranks) + len(causes.communicators) == 1


def _with_idle_servers(late: tuple[Delays, ...]) -> tuple[Delays, ...]:
    """Delays, where servers that are no later than idle ones of the same job are idle, too: gaps
    between a few requests may look alike by chance.
    """
    idle = [own.typical_ns for own in late if own.as_idle_root]
    if len(idle) < 2 or 2 * len(idle) < sum(own.as_root for own in late):
        return late
    most = _AS_LATE * float(np.median(idle))
    return tuple(
        replace(own, as_idle_root=own.as_idle_root or (own.as_root and own.typical_ns <= most))
        for own in late
    )


def _slow_communicator(
    context: RuleContext, late: list[Delays], causes: RootCauses, share_of: dict[int, float]
) -> list[Delays]:
    """Ranks of these that are all members of one communicator, late in the same way, and gain next
    to nothing alone: an engine or a replica that is slow as a whole.
    """
    ranks = [own.rank for own in causes.ranks]
    tied = {
        own.rank: own
        for own in late
        if causes.alone[ranks.index(own.rank)].gained_share < _GAINED_ALONE * share_of[own.rank]
    }
    for row in range(len(context.run.model.communicator_names)) if len(tied) > 1 else ():
        members = context.run.ranks_of(row)
        if len(members) > 1 and tied.keys() >= set(members):
            own = [tied[rank] for rank in members]
            if len({kind_of(one) for one in own}) == 1:
                return own
    return []


def _explains(context: RuleContext, delays: Delays, share: float) -> bool:
    """Whether the delays that a sentence would name are about as long as what they cost."""
    return delays.times * delays.typical_ns >= _EXPLAINED * share * context.run.span_ns


def _are_pauses(context: RuleContext, ranks: list[int], share: float) -> bool:
    """Whether these ranks are named for pauses that cost about as much: that is the same cause."""
    return any(
        set(ranks).issubset(pauses.ranks) and pauses.prediction.gained_share >= _SAME_COST * share
        for pauses in context.pauses
    )


def _shares(context: RuleContext, causes: RootCauses, may_cost: bool) -> dict[int, float]:
    """By rank the share of the run that it costs: of what all causes cost together, in proportion
    to what each gains alone, and after all others were taken out. Two ranks that are equally late
    gain nothing alone, and everything after the other one. Where the prediction of a single cause
    is a range, its middle counts, as far as others waited as long. `may_cost`: what it costs at
    most.
    """
    prediction = causes.prediction
    together = max(prediction.most_gained_share if may_cost else prediction.gained_share, 0.0)
    if not may_cost and not prediction.is_sure and len(causes.alone) == 1:
        waited_ns = sum(delays.waiting_ns for delays in causes.ranks)
        others = max(len(context.run.host_of) - len(causes.ranks), 1)
        waited = waited_ns / others / context.run.span_ns
        together = max(together, min(prediction.likely_gained_share, waited))
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


def _only_origin(context: RuleContext) -> list[Finding]:
    only = only_origin(context)
    if only is None:
        return []
    delays, prediction = only
    share = prediction.gained_share
    cost = cost_in_words(context, prediction, share, "it")
    return [rank_finding(context, delays, cost, (share, 0.0))]


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
    by_rank = waiting_by_rank(account.origins)
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
