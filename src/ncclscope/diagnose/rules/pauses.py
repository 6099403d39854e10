"""Ranks that paused now and then, and times in which all ranks did: what that costs."""

from dataclasses import replace

from ncclscope.analysis.waiting.pauses import Pauses
from ncclscope.diagnose.finding import INFO, PROBLEM_SHARE, WARNING, Evidence, Finding
from ncclscope.diagnose.late_ranks import IDLE, cost_in_words, severity
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import duration, percent, ranks_in_words

# A host stops a process for some milliseconds now and then: a healthy job of two H200 ranks has a
# pause of 3.8 ms in its 114 ms.
_SHORT_PAUSE_NS = 10_000_000
# What stops a process varies: four such pauses of one rank had 4 to 11 ms. What the program does
# every so many steps takes about as long each time, or comes as far apart: four that chance puts
# anywhere are so in 1 of 90 runs.
_ONE_LENGTH = 0.8  # of the longest
_AS_FAR_APART = 1.25  # times the least distance
_TIMES_OF_A_HABIT = 4
_MOST_NAMED = 3


def find(context: RuleContext) -> list[Finding]:
    """Ranks that paused, then pauses that go round, and those of all ranks together."""
    in_turn = context.host_in_turn.ranks if context.host_in_turn is not None else ()
    others = [own for own in context.pauses if not set(own.ranks).issubset(in_turn)]
    alone = [_pause_finding(context, pauses) for pauses in others[:_MOST_NAMED]]
    return alone + _in_turn(context) + _standstills(context)


def _pause_finding(context: RuleContext, pauses: Pauses) -> Finding:
    times, prediction = len(pauses.length_ns), pauses.prediction
    share = prediction.gained_share
    at_s = context.at(int(pauses.at_ns[0]))
    longest = duration(float(pauses.length_ns.max()))
    often = f"once, at {at_s} s, for {longest}"
    if times > 1:
        often = f"{times:,} times from {at_s} s on, for up to {longest}"
    who, whom, whose = _who(context, pauses.ranks)
    is_problem = pauses.length_ns.max() >= _SHORT_PAUSE_NS or _is_the_programs(pauses)
    is_problem &= not pauses.as_idle_root
    idle = f"{IDLE}; " if pauses.as_idle_root else ""
    return Finding(
        "straggler",
        severity(context, share) if is_problem else INFO,
        f"{who} paused {often}, and others waited for {whom}; {idle}"
        f"{cost_in_words(context, replace(prediction, step_now_ns=None), share, whom)}",
        whose,
        kind="host pause" if _are_whole_hosts(context, pauses.ranks) else "pause",
        ranks=pauses.ranks,
        evidence=(
            Evidence(
                "far longer than usual at the same place of a step, and no habit",
                {
                    "times": times,
                    "longest_us": round(float(pauses.length_ns.max()) / 1e3, 3),
                    "sum_us": round(float(pauses.length_ns.sum()) / 1e3, 3),
                },
                f"ncclscope report {context.path} --since {at_s} --by rank",
            ),
        ),
        confidence=0.85,
        lost_share=min(share, 1.0),
    )


def _is_the_programs(pauses: Pauses) -> bool:
    """Whether the program itself pauses: for the same time, or every so many steps."""
    shortest, longest = int(pauses.length_ns.min()), int(pauses.length_ns.max())
    apart = pauses.at_ns[1:] - (pauses.at_ns + pauses.length_ns)[:-1]
    if len(apart) + 1 < _TIMES_OF_A_HABIT:
        return False
    evenly = 0 < apart.max() <= _AS_FAR_APART * apart.min()
    return bool(shortest >= _ONE_LENGTH * longest or evenly)


def _who(context: RuleContext, ranks: tuple[int, ...]) -> tuple[str, str, str]:
    """Who paused, as subject and object, and what to look for."""
    if len(ranks) == 1:
        return (
            f"rank {ranks[0]}{context.where(ranks[0])}",
            "it",
            "look for what only this rank does then: a checkpoint, an evaluation, logging, a data "
            "loader that refills",
        )
    if not _are_whole_hosts(context, ranks):
        return (
            ranks_in_words(ranks),
            "them",
            "they pause at the same time: look for what only these ranks do then, as a checkpoint "
            "that one rank of each host or one replica writes, an evaluation, logging",
        )
    hosts = list(dict.fromkeys(context.run.host_of.get(rank, "one host") for rank in ranks))
    if len(hosts) > 1:
        more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
        return (
            f"all {len(ranks)} ranks of {', '.join(hosts[:_MOST_NAMED])}{more}",
            "them",
            "these hosts stop at the same time: look at what they have in common, as storage or "
            "network file systems, a switch, a power supply",
        )
    return (
        f"all {len(ranks)} ranks of {hosts[0]}",
        "them",
        "something of the whole host stops them: look at its storage and network file systems, "
        "memory and swap, and what else runs there",
    )


def _are_whole_hosts(context: RuleContext, ranks: tuple[int, ...]) -> bool:
    """Whether these are all ranks of one or more hosts that have several."""
    host_of = context.run.host_of
    hosts = {host_of.get(rank) for rank in ranks}
    return len(ranks) > 1 and set(ranks) == {r for r, host in host_of.items() if host in hosts}


def _in_turn(context: RuleContext) -> list[Finding]:
    """Pauses that go round: no rank is to blame, and all of them together cost time."""
    pauses = context.pauses_in_turn
    if pauses is None:
        return []
    share = max(pauses.prediction.gained_share, 0.0)
    typical = duration(pauses.typical_ns)
    prediction = replace(pauses.prediction, step_now_ns=None)
    is_problem = pauses.typical_ns >= _SHORT_PAUSE_NS and share >= PROBLEM_SHARE
    return [
        Finding(
            "straggler",
            WARNING if is_problem else INFO,
            f"{len(pauses.ranks)} of {len(context.run.host_of)} ranks pause in turn, "
            f"{pauses.times:,} times in all, typically for {typical}, and others wait for each of "
            f"them; {cost_in_words(context, prediction, share, 'them')}",
            "look for what each process does now and then: a garbage collection of Python (let all "
            "ranks collect in the same step: gc.disable, and gc.collect every so many steps), a "
            "data loader that refills, logging",
            kind="pauses in turn",
            ranks=pauses.ranks,
            evidence=(
                Evidence(
                    "calls far later than usual, seldom on each rank, and not on all ranks at once",
                    {"times": pauses.times, "typical_us": round(pauses.typical_ns / 1e3, 3)},
                    f"ncclscope report {context.path} --by rank",
                ),
            ),
            confidence=0.8,
            lost_share=min(share, 1.0),
        )
    ]


def _standstills(context: RuleContext) -> list[Finding]:
    """Times in which all ranks paused: who was the last of them is chance."""
    standstills = context.standstills
    if standstills is None:
        return []
    times, total_ns = len(standstills.length_ns), int(standstills.length_ns.sum())
    share = min(total_ns / context.run.span_ns, 1.0)
    at_s, longest = context.at(int(standstills.at_ns[0])), int(standstills.length_ns.max())
    often = f"once, at {at_s} s, for {duration(longest)}"
    if times > 1:
        often = f"{times:,} times from {at_s} s on, for up to {duration(longest)}"
    return [
        Finding(
            "straggler",
            INFO,
            f"all ranks paused together {often}: {percent(share)} of the run, and no rank is to "
            "blame",
            "look for what all ranks do then: a checkpoint, data loaders that start again; or for "
            "what stops the whole job: a scheduler that suspends it, a file system that hangs",
            kind="all ranks",
            evidence=(
                Evidence(
                    "most ranks were about as late at the same time",
                    {"times": times, "longest_us": round(longest / 1e3, 3)},
                    f"ncclscope report {context.path} --since {at_s} --by rank",
                ),
            ),
            confidence=0.8,
            lost_share=share,
        )
    ]
