"""What is said of ranks that are late: of one, of all ranks of a host, of several alike."""

from shlex import quote

import numpy as np

from ncclscope.analysis.training_losses import late_calls, phase_excess
from ncclscope.analysis.waiting.late_hosts import HostInTurn
from ncclscope.analysis.waiting.origins import waiting_by_rank
from ncclscope.analysis.waiting.rank_delays import Delays, delays_of
from ncclscope.analysis.waiting.root_causes import RootCauses
from ncclscope.analysis.waiting.unequal_data import MoreData
from ncclscope.diagnose.finding import INFO, Evidence, Finding
from ncclscope.diagnose.late_ranks import (
    ADVICE,
    CAUSES,
    IDLE,
    IDLE_ROOTS,
    KINDS,
    SCHEDULES,
    cost_in_words,
    severity,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent, plural, ranks_in_words

_PHASE_SHARE = 0.02  # of a step: a phase that takes this much longer is named
_LATER = 0.15  # of the run: delays that begin, or end, so far from its ends are not always there
_MOST_NAMED = 3
_FEW_SHOWN = 0.5  # of the kernels that others waited for
_HOST_CAUSES = {
    "compute": "its ranks come late to their calls",
    "launch": "its ranks call in time, and are slow to launch",
    "gpu": "its GPUs take longer from one operation to the next",
}


_ADVICE_ON_MANY = {
    "compute": "look at their share of work, their data loaders, GPU clocks and thermals",
    "launch": "look for busy or throttled CPUs on their hosts, wrong CPU affinity, other processes",
    "gpu": "compare their share of work, GPU clocks, thermals and kernel times with other ranks'",
}


def are_of_one_speed(context: RuleContext, late: list[Delays]) -> bool:
    """Whether these ranks are slower than all others, and alike: an older generation of GPUs."""
    assert context.waiting is not None
    return context.waiting.are_of_one_speed([delays.rank for delays in late])


def kind_of(delays: Delays) -> str:
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
    waiting, waited_ns = context.waiting, delays.waiting_ns
    victims: list[tuple[int, int]] = []
    if waiting is not None:
        row = context.waits_because_of(waiting, delays.rank)
        waited_ns = int(row.sum())
        order = np.argsort(-row)[:_MOST_NAMED]
        victims = [(int(waiting.kernels.ranks[at]), int(row[at])) for at in order if row[at]]
    text = f"others waited {duration(waited_ns)} because of it"
    if victims:
        text += ": " + ", ".join(f"rank {rank} {duration(ns)}" for rank, ns in victims)
    name = context.run.model.communicator_names[delays.before[1]]
    facts = {"waiting_us": round(waited_ns / 1e3, 3), "times": delays.times}
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


def alone_in_words(causes: RootCauses, ranks: tuple[int, ...]) -> str:
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


def rank_finding(
    context: RuleContext, delays: Delays, cost: str, shares: tuple[float, float]
) -> Finding:
    rank, kind = delays.rank, kind_of(delays)
    share, sampled_share = shares
    host = context.run.host_of.get(rank, "")
    name = context.run.model.communicator_names[delays.before[1]]
    phase, phase_evidence = _phase(context, rank)
    by_role = delays.as_idle_root or delays.as_scheduler
    if by_role:
        cost = f"{IDLE if delays.as_idle_root else SCHEDULES}; {cost}"
    return Finding(
        "straggler",
        INFO if by_role else severity(context, max(share, sampled_share)),
        f"rank {rank}{context.where(rank)} {_late_in_words(context, delays)}{phase}; {cost}",
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


def holds_back(context: RuleContext, delays: Delays) -> bool:
    """Whether all others wait for a rank nearly always, so that hardly any of its delays shows."""
    waiting, what_if = context.waiting, context.what_if
    if waiting is None or what_if is None or not what_if.hold_back((delays.rank,)):
        return False
    place = int(np.searchsorted(waiting.kernels.ranks, delays.rank))
    return delays.times < _FEW_SHOWN * int(waiting.charges.times_last[place])


def _late_in_words(context: RuleContext, delays: Delays) -> str:
    """How often a rank is late, and by how much."""
    before, waiting = _before(context, delays), context.waiting
    if waiting is None or not holds_back(context, delays):
        times = plural(delays.times, "time")
        late = f"is late {times}{_when(context, [delays])}, typically by"
        return f"{late} {duration(delays.typical_ns)}, mostly to {before}"
    place = int(np.searchsorted(waiting.kernels.ranks, delays.rank))
    last = waiting.arrivals.last
    theirs = (waiting.kernels.rank[last] == place) & (last != np.arange(len(last)))
    times = plural(int(waiting.charges.times_last[place]), "time")
    typical = duration(float(np.median(waiting.arrivals.wait_ns[theirs])))
    return f"comes last {times}, and others wait for it, typically {typical}, mostly in {before}"


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


def host_finding(
    context: RuleContext, node: int, late: list[Delays], causes: RootCauses, share: float
) -> Finding:
    late = [_shown_delays(context, delays) for delays in late]
    kind = kind_of(max(late, key=lambda delays: delays.times))
    host, ranks = context.run.model.nodes[node], tuple(delays.rank for delays in late)
    typical = float(np.median([delays.typical_ns for delays in late]))
    only = len(causes.ranks) == len(ranks) and not causes.communicators
    together = causes.prediction if only else None
    cost = cost_in_words(context, together, share, "them", alone_in_words(causes, ranks))
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


def _shown_delays(context: RuleContext, delays: Delays) -> Delays:
    """The delays of a rank; of one that no wait was charged to, as others of its host came after
    it, all that was longer than usual.
    """
    if delays.times or context.waiting is None:
        return delays
    return delays_of(context.waiting, delays.rank, of_last_arrivals=False)


def host_in_turn_finding(context: RuleContext, in_turn: HostInTurn) -> Finding:
    """A host whose ranks are late in turn."""
    first, share = in_turn.origins[0], max(in_turn.prediction.gained_share, 0.0)
    kind, host = KINDS.get(first.kind, "compute"), context.run.host_of[in_turn.ranks[0]]
    by_rank = waiting_by_rank(in_turn.origins)
    most = sorted(by_rank.items(), key=lambda own: -own[1])[:_MOST_NAMED]
    began = ", ".join(f"rank {rank} {duration(waiting_ns)}" for rank, waiting_ns in most)
    cost = cost_in_words(context, in_turn.prediction, share, "them")
    return Finding(
        "straggler",
        severity(context, share),
        f"ranks of {host} are late in turn, typically by {duration(first.typical_ns)}, "
        f"{ranks_in_words(tuple(sorted(rank for rank, _ in most)))} most often; most waiting began "
        f"there; {cost}",
        "something of the whole host is slow: look at its storage, data loaders and CPUs; "
        f"{_HOST_CAUSES[kind]}",
        kind=f"host {kind}",
        ranks=in_turn.ranks,
        hosts=(host,),
        evidence=(
            Evidence(
                f"waiting by the rank of this host that it began on: {began}",
                {"waiting_us": round(sum(by_rank.values()) / 1e3, 3)},
                f"ncclscope report {context.path} --by host",
            ),
        ),
        confidence=0.85,
        lost_share=min(share, 1.0),
    )


def many_finding(
    context: RuleContext, late: list[Delays], causes: RootCauses, share: float
) -> Finding:
    """Several ranks that are late alike."""
    ranks = tuple(sorted(delays.rank for delays in late))
    kind = kind_of(max(late, key=lambda delays: delays.times))
    typical = float(np.median([delays.typical_ns for delays in late]))
    hosts = tuple(sorted({context.run.host_of[r] for r in ranks if r in context.run.host_of}))
    only = len(causes.ranks) == len(ranks) and not causes.communicators
    cost = cost_in_words(context, causes.prediction if only else None, share, "them")
    idle = all(delays.as_idle_root for delays in late)
    name = _communicator_of(context, ranks)
    common = f"they are all ranks of {name}" if name else "look for what these ranks have in common"
    if are_of_one_speed(context, late):
        common = "they are alike, and slower than all others: compare GPU models and clocks"
    return Finding(
        "straggler",
        INFO if idle else severity(context, share),
        f"{ranks_in_words(ranks)} are late, typically by {duration(typical)}; "
        f"{f'{IDLE_ROOTS}; ' if idle else ''}{cost}",
        f"{common}; {_ADVICE_ON_MANY[kind]}",
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


def more_data_finding(
    context: RuleContext,
    late: list[Delays],
    more_data: dict[int, MoreData],
    causes: RootCauses,
    share: float,
) -> Finding:
    """Ranks that have more to do, because they receive more: a remark, and nothing of their GPUs is
    said.
    """
    ranks = tuple(sorted(own.rank for own in late))
    typical = float(np.median([own.typical_ns for own in late]))
    times = float(np.median([more_data[rank].times for rank in ranks]))
    rows = sorted({row for rank in ranks for row in more_data[rank].communicators})
    names = tuple(context.run.model.communicator_names[row] for row in rows)
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    receive, are, their, who = "receive", "are", "their", "them"
    if len(ranks) == 1:
        receive, are, their, who = "receives", "is", "its", "it"
    only = len(causes.ranks) == len(ranks) and not causes.communicators
    cost = cost_in_words(context, causes.prediction if only else None, share, who)
    return Finding(
        "straggler",
        INFO,
        f"{ranks_in_words(ranks)} {receive} {times:.3g} times as much as others in exchanges on "
        f"{listed}, and {are} late after them, typically by {duration(typical)}: the data makes "
        f"{their} work unequal, which is no fault; {cost}",
        "spread the data more evenly: experts with a loss or a capacity for each, or in other "
        "places; for as much data these GPUs take no longer than others",
        kind="unequal data",
        ranks=ranks,
        hosts=tuple(sorted({context.run.host_of[r] for r in ranks if r in context.run.host_of})),
        communicators=names,
        evidence=(
            Evidence(
                "bytes received in the same exchange by all members",
                {"times": round(times, 3), "typical_us": round(typical / 1e3, 3)},
                f"ncclscope report {context.path} --by rank --op Recv",
            ),
        ),
        confidence=0.8,
        lost_share=min(max(share, 0.0), 1.0),
    )


def _communicator_of(context: RuleContext, ranks: tuple[int, ...]) -> str:
    """The name of the communicator that has these members; "" where there is none."""
    names = context.run.model.communicator_names
    same = (row for row in range(len(names)) if tuple(context.run.ranks_of(row)) == ranks)
    return next((names[row] for row in same), "")
