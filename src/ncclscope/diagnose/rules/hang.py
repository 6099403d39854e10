"""What hung when the capture ended, as `ncclscope status` says it."""

from dataclasses import replace

from ncclscope.capture.liveness import ALIVE, ENDED, STOPPED
from ncclscope.diagnose.finding import CRITICAL, INFO, Evidence, Finding
from ncclscope.diagnose.hang.verdict import (
    CIRCLE,
    DEAD,
    EXTRA_CALL,
    MISMATCH,
    NEVER_CALLED,
    NEVER_JOINED,
    NOT_FINISHED,
    NOT_LAUNCHED,
    NOT_STARTED,
    STALLED,
    UNKNOWN,
    WAITING,
    RankActivity,
    Status,
    Verdict,
    answer_in_words,
    deaths_in_words,
    operation_in_words,
    whereabouts,
)
from ncclscope.humanize import plural, ranks_in_words

_ADVICE = {
    NEVER_JOINED: "its process hangs before or while it makes that communicator",
    EXTRA_CALL: "its program took another path than the others': one batch more, or a condition "
    "that is true on it alone; make every rank make the same calls",
    CIRCLE: "these ranks use communicators, or send and receive, in different orders: make all of "
    "them use one order, or put sends and receives into one group",
    NOT_LAUNCHED: "its host thread is inside NCCL: connecting to a peer, or out of memory or "
    "launch queue",
    NOT_STARTED: "its GPU is busy with another kernel, or its stream waits for an event that never "
    "comes: look at what else runs on that GPU and which streams wait for each other",
    NOT_FINISHED: "the others are through; look at the link on which it waits (`ncclscope status` "
    "names channel and peer in mode full), its network adapter, and nvidia-smi for Xid errors",
    STALLED: "look at the links between these ranks: error counters of adapters and switches "
    "(ibstat, ethtool -S), nvidia-smi nvlink -e within a node",
    DEAD: "look at the end of that process's log and its exit status; dmesg on that host has "
    "out-of-memory kills and Xid errors",
    UNKNOWN: "look whether all processes were started, and for the folders and logs of those that "
    "are missing; record all ranks into one directory, in mode trace or full",
}
_MOST_HOSTS, _MOST_PIDS = 3, 8  # with a command each
_OUTSIDE = (
    "nothing of NCCL is in flight on it: it is outside NCCL (data loader, checkpoint, host code), "
    "or its program took another path"
)
_WAS_OUTSIDE = (
    "nothing of NCCL was in flight on it at its end: it was outside NCCL (data loader, checkpoint, "
    "host code), its program took another path, or it had failed before the others"
)
_WITH_STACK = (NEVER_JOINED, NEVER_CALLED, NOT_LAUNCHED)  # the program's stack shows more
_CONFIDENCE = {UNKNOWN: 0.4, STALLED: 0.8, NOT_FINISHED: 0.85}


def find(status: Status, path: str) -> list[Finding]:
    """A finding for each communicator that hangs by itself; mismatches belong to their own family.
    Where all processes were killed, there is one finding for all communicators.
    """
    wanted = [
        verdict
        for verdict in status.verdicts
        if verdict.hung or verdict.verdict in (WAITING, UNKNOWN, DEAD)
        if verdict.verdict != MISMATCH and not verdict.because_of
    ]
    wanted = [v for v in wanted if v.name == (v.circle or (v.name,))[0]]  # once for each circle
    killed = [verdict for verdict in wanted if verdict.verdict == DEAD and not verdict.hung]
    findings = [_describe(v, status, path) for v in wanted if v not in killed]
    if killed:
        first = _describe(killed[0], status, path)
        findings.append(replace(first, evidence=(*first.evidence, *_also_in_flight(killed[1:]))))
    return findings


def _also_in_flight(verdicts: list[Verdict]) -> list[Evidence]:
    """What else was in flight when all processes died."""
    if not verdicts:
        return []
    names = [f"{v.name} {v.function} #{v.order}".strip() for v in verdicts]
    return [Evidence(f"in flight, too: {_some(names)}", {"communicators": names})]


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")


def followers(status: Status, name: str) -> list[str]:
    """Communicators that hang because of one, directly or by way of others."""
    following: list[str] = []
    names = [name]
    while names:
        cause = names.pop()
        more = [v.name for v in status.verdicts if v.because_of == cause]
        more = [follower for follower in more if follower not in following]
        following += more
        names += more
    return following


def _sentence(verdict: Verdict) -> str:
    who = ranks_in_words(verdict.culprits) if verdict.culprits else "nobody in particular"
    where = whereabouts(verdict, verdict.culprits)
    who += f" ({where})" if where else ""
    what = f"{verdict.name} {operation_in_words(replace(verdict, datatype=''))}".rstrip()
    if verdict.is_death and verdict.dead_processes:
        return f"death in {what}: {deaths_in_words(verdict)}"
    waited = f"{plural(len(verdict.waiting), 'rank')} waited {verdict.waited_ns / 1e9:,.3g} s"
    what_happened = {
        NEVER_JOINED: f"{who} never joined it",
        NEVER_CALLED: f"{who} never called {answer_in_words(verdict)}",
        EXTRA_CALL: f"{who} made a call too many",
        CIRCLE: f"a circle of waiting, {who}",
        NOT_LAUNCHED: f"{who} called it and did not launch it",
        NOT_STARTED: f"{who} launched it and did not start it on the GPU",
        NOT_FINISHED: f"{who} did not finish it",
        STALLED: f"all ranks{_listed(verdict.waiting) if not where else ''} are in it and nothing "
        "moves"
        + (f"; behind {'is' if len(verdict.culprits) == 1 else 'are'} {who}" if where else ""),
        DEAD: deaths_in_words(verdict)
        if verdict.exited
        else f"{who} {'is' if len(verdict.culprits) == 1 else 'are'} dead",
        WAITING: "some ranks are in it, not yet for long",
    }.get(verdict.verdict, f"{verdict.reason}: why it hangs is not known")
    label = "waiting" if verdict.verdict == WAITING else "hang"
    is_said = verdict.verdict == UNKNOWN or (verdict.exited and verdict.verdict == DEAD)
    reason = f" ({verdict.reason})" if verdict.reason and not is_said else ""
    if verdict.verdict in (EXTRA_CALL, CIRCLE):
        waited = f"for {verdict.waited_ns / 1e9:,.3g} s"
    return f"{label} in {what}: {what_happened}{reason}; {waited}"


def _listed(ranks: tuple[int, ...]) -> str:
    return f" ({ranks_in_words(ranks).removeprefix('ranks ')})" if ranks else ""


def also_waiting(names: list[str]) -> list[Evidence]:
    """What else waits because of a hang."""
    if not names:
        return []
    waits = "waits" if len(names) == 1 else "wait"
    text = f"{plural(len(names), 'other communicator')} {waits} because of it: {_some(names)}"
    return [Evidence(text, {"communicators": names})]


def _advice(verdict: Verdict, post_mortem: bool) -> str:
    """What to do next, with a command where a process can be asked."""
    kind = DEAD if verdict.is_death else verdict.verdict
    advice = _ADVICE.get(kind, "wait, and ask `ncclscope status` again")
    blamed = [a for a in verdict.activities if a.rank in verdict.culprits]
    if kind == NEVER_CALLED:
        advice = _why_never_called(blamed)
        if not blamed or all(activity.life == ENDED for activity in blamed):
            return advice
    if verdict.is_death and not verdict.died_first and verdict.dead_processes:
        return f"the launcher's log has who failed first; {advice}"
    if kind not in _WITH_STACK:
        return advice
    culprits = set(verdict.culprits)
    pids: dict[str, list[int]] = {}
    for activity in verdict.activities:
        if activity.rank in culprits:
            of_host = pids.setdefault(activity.host, [])
            of_host += [activity.pid] if activity.pid not in of_host else []
    if post_mortem or not pids:
        return (
            f"{advice}; look at the end of its log, and while it hangs at its stack (py-spy dump)"
        )
    return f"{advice}; {_stacks(pids)}"


def _why_never_called(activities: list[RankActivity]) -> str:
    """What ranks that never called do instead, as far as that is on record."""
    busy = [activity for activity in activities if activity.in_flight]
    if not activities:
        return "it left no files: look whether its process was started, and at its log"
    if not busy and all(activity.life == ENDED for activity in activities):
        return "its process ended without it: look at the end of its log and its exit status"
    if not busy and all(activity.life in (ALIVE, STOPPED) for activity in activities):
        return _OUTSIDE
    if not busy:
        return _WAS_OUTSIDE
    first = busy[0]
    who = "it is" if len(activities) == 1 else f"rank {first.rank} is"
    where = f"{first.function} on {first.communicator}"
    return f"{who} in {where}: find out why that does not end"


def _stacks(pids: dict[str, list[int]]) -> str:
    """A command for each host that shows what its processes do: a few are enough to see why."""
    commands = []
    for host, of_host in list(pids.items())[:_MOST_HOSTS]:
        if len(of_host) == 1:
            commands.append(f"`py-spy dump --pid {of_host[0]}` on {host}")
        else:
            some = " ".join(map(str, of_host[:_MOST_PIDS]))
            commands.append(f"`for p in {some}; do py-spy dump --pid $p; done` on {host}")
    shown = sum(min(len(of_host), _MOST_PIDS) for of_host in list(pids.values())[:_MOST_HOSTS])
    more = sum(map(len, pids.values())) - shown
    many = shown + more > 1
    text = f"{'their stacks' if many else 'its stack'}: {', '.join(commands)}"
    if more:
        text += f"; {plural(more, 'more process', 'more processes')}: `ncclscope status --json`"
    return text


def _describe(verdict: Verdict, status: Status, path: str) -> Finding:
    evidence = [
        Evidence(
            "last moments of all ranks",
            {
                "verdict": verdict.verdict,
                "order": verdict.order,
                "waiting": list(verdict.waiting),
                "waited_s": round(verdict.waited_ns / 1e9, 6),
            },
            f"ncclscope status {path}",
        ),
        *also_waiting(followers(status, verdict.name)),
    ]
    hosts = {a.host for a in verdict.activities if a.rank in verdict.culprits}
    return Finding(
        "hang",
        CRITICAL if verdict.hung else INFO,
        _sentence(verdict),
        _advice(verdict, status.post_mortem),
        kind=verdict.verdict,
        ranks=verdict.culprits,
        hosts=tuple(sorted(hosts)),
        communicators=verdict.circle or (verdict.name,),
        evidence=tuple(evidence),
        confidence=_CONFIDENCE.get(verdict.verdict, 0.95),
        lost_share=1.0,
        by_absence=verdict.verdict in (NEVER_CALLED, NEVER_JOINED),
    )
