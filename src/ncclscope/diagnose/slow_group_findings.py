"""Communicators that are slower on the wire than others of their class, as findings."""

from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.analysis.change import Slowdown
from ncclscope.analysis.waiting.exchange_groups import SLOWER, ExchangeGroups, exchange_groups
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.analysis.waiting.slower_groups import SlowerGroup, slower_groups
from ncclscope.analysis.waiting.standing_out import far_longer
from ncclscope.diagnose.finding import (
    CRITICAL,
    GRAVE_SHARE,
    INFO,
    LEAST_SHARE,
    PROBLEM_SHARE,
    WARNING,
    Evidence,
    Finding,
)
from ncclscope.diagnose.late_ranks import instead
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import percent, ranks_in_words

_MOST_OF_IT = 0.7  # of how slow a communicator is: what its slowdown must have made
_MOST = 6  # findings
_MOST_SHARED = 3  # names
# Where even the shortest transfer of a group is slow; by whether it has several hosts.
_OF_ALL_LINKS = (
    "all of its ranks are slow: look at what they share, NVLink with its switches and PCIe",
    "all of its ranks are slow: look at what they share, adapters, switches and their routes",
)


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """A communicator that is slower than others of its class."""

    finding: Finding
    has_only_slow_links: bool  # even the shortest transfer of its exchanges is slow


def slow_groups(context: RuleContext) -> list[SlowGroup]:
    """Those that make the run longer, by how much they do."""
    causes = context.root_causes
    if causes is None or context.waiting is None or not causes.communicators:
        return []
    alone, exchanges = causes.alone[len(causes.ranks) :], exchange_groups(context.waiting)
    found = [
        _slow_group(context, exchanges, row, prediction)
        for row, prediction in zip(causes.communicators, alone, strict=True)
        if prediction.gained_share >= LEAST_SHARE
    ]
    return sorted(found, key=lambda group: -group.finding.lost_share)[:_MOST]


def groups_nobody_waits_for(context: RuleContext, named: set[str]) -> list[Finding]:
    """Communicators that are far slower than their peers, but for those `named`. It is a problem
    where collectives of larger communicators may be as slow for the same reason.
    """
    if context.waiting is None:
        return []
    names = context.run.model.communicator_names
    found = [own for own in slower_groups(context.waiting) if names[own.communicator] not in named]
    return [_unnoticed_group(context, own) for own in found[:_MOST]]


def _unnoticed_group(context: RuleContext, group: SlowerGroup) -> Finding:
    run, waiting = context.run, context.waiting
    assert waiting is not None
    names = run.model.communicator_names
    name, ranks = names[group.communicator], tuple(run.ranks_of(group.communicator))
    hosts = tuple(sorted({run.host_of[rank] for rank in ranks if rank in run.host_of}))
    share = group.shared_ns / waiting.judged_ns
    others = ", ".join(names[row] for row in group.shared[:_MOST_SHARED])
    cost = "nobody waits for that"
    if group.shared and share >= LEAST_SHARE:
        cost = (
            f"hardly anybody waits for that, but collectives of {others}, which have no peers, may "
            f"use the same link and cost up to {percent(share)} of the run because of it"
        )
    return Finding(
        "slow_link",
        WARNING if share >= PROBLEM_SHARE else INFO,
        f"{name} ({ranks_in_words(ranks)}; {', '.join(hosts[:4])}) is {group.slowness:.3g} times "
        f"as slow on the wire as all {group.peers} communicators like it; {cost}",
        "look at what its ranks have between them: NVLink or PCIe errors, adapters, cables, routes",
        kind="group",
        ranks=ranks,
        hosts=hosts,
        communicators=(name,),
        evidence=(
            Evidence(
                "same functions and sizes compared",
                {"factor": round(group.slowness, 3), "peers": group.peers},
                f"ncclscope report {context.path} --comm {quote(name)}",
            ),
        ),
        confidence=0.7,
        lost_share=min(share, 1.0),
    )


def _slow_group(
    context: RuleContext, exchanges: ExchangeGroups, communicator: int, prediction: Prediction
) -> SlowGroup:
    run, waiting = context.run, context.waiting
    assert waiting is not None
    name, ranks = run.model.communicator_names[communicator], run.ranks_of(communicator)
    hosts = sorted({run.host_of[rank] for rank in ranks if rank in run.host_of})
    listed = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    factor, often = _group_slowness(waiting, communicator)
    compared, advice = "functions", "one of its links is slow: record in mode full to see which"
    since = None
    has_only_slow_links = bool(exchanges.slow[communicator])
    # Collectives of all ranks may use the same links, and have no peers to show it.
    at_least = has_only_slow_links and not prediction.is_sure
    if has_only_slow_links:
        factor, often = float(exchanges.slowness[communicator]), " in exchanges of all its ranks"
        compared, advice = "exchanges", _OF_ALL_LINKS[len(hosts) > 1]
    else:
        since = _slow_since(context, communicator, factor)
    facts = {"factor": round(factor, 3)}
    if since is not None:
        often = f" {context.during(since.began_ns, since.ended_ns)}"
        facts["at_s"] = float(context.at(since.began_ns))
        advice += "; look for what began then: link errors, other jobs on the network"
    share = prediction.gained_share
    finding = Finding(
        "slow_link",
        CRITICAL if share >= GRAVE_SHARE else WARNING,
        f"{name} ({ranks_in_words(tuple(ranks))}; {listed}) is {factor:.3g} times as slow "
        f"on the wire as communicators like it{often}; "
        f"{cost_of_links(prediction, share, at_least)}",
        advice,
        kind="group",
        ranks=tuple(ranks),
        hosts=tuple(hosts),
        communicators=(name,),
        evidence=(
            Evidence(
                f"same {compared} and sizes compared",
                facts,
                f"ncclscope report {context.path} --comm {quote(name)}",
            ),
        ),
        confidence=0.7,
        lost_share=share,
    )
    return SlowGroup(finding, has_only_slow_links)


def _slow_since(context: RuleContext, communicator: int, factor: float) -> Slowdown | None:
    """The slowdown of a communicator that is `factor` times as slow as others, where most of that
    began with it.
    """
    for slowdown in context.slowdowns:
        own = [one.factor for one in slowdown.changes if one.communicator == communicator]
        if own and slowdown.at_times is None and _MOST_OF_IT * factor <= own[0]:
            return slowdown
    return None


def _group_slowness(waiting: Waiting, communicator: int) -> tuple[float, str]:
    """How many times as slow as usual a communicator is, and how often where it is slow at times
    only: " in 10 of 30 collectives".
    """
    excess = waiting.usual.steady_transfer_excess_ns[communicator]
    total = waiting.usual.steady_transfer_ns[communicator]
    factor = float(total / max(total - excess, 1.0))
    if factor >= SLOWER:
        return factor, ""
    own = (waiting.kernels.communicator == communicator) & ~waiting.start_up
    slow = own & far_longer(waiting)
    usual, length = waiting.usual.median_ns[2::3], waiting.dependencies.length_ns[2::3]
    if not slow.any():
        return factor, ""
    ranks = len(np.unique(waiting.kernels.rank[own]))
    times, of_all = (-(-int(rows.sum()) // ranks) for rows in (slow, own))
    return float(np.median(length[slow] / usual[slow])), f" in {times:,} of {of_all:,} collectives"


def cost_of_links(prediction: Prediction | None, share: float, at_least: bool = False) -> str:
    """What slow links cost, in words; `at_least`: others may gain with them."""
    if prediction is None:
        return f"up to {percent(share)} of the run lost"
    if at_least:
        return f"at the usual speed the run would be at least {percent(share)} shorter"
    return f"at the usual speed {instead(prediction)}"
