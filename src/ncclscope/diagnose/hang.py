"""What hung when the capture ended, as `ncclscope status` says it."""

from ncclscope.diagnose.finding import CRITICAL, INFO, Evidence, Finding
from ncclscope.diagnose.verdict import (
    DEAD,
    MISMATCH,
    NEVER_CALLED,
    NEVER_JOINED,
    NOT_FINISHED,
    NOT_LAUNCHED,
    NOT_STARTED,
    STALLED,
    UNKNOWN,
    WAITING,
    Status,
    Verdict,
    whereabouts,
)
from ncclscope.words import binary_size, plural, ranks_in_words

_ADVICE = {
    NEVER_JOINED: "its process hangs before or while it makes that communicator",
    NEVER_CALLED: "it is outside NCCL (data loader, checkpoint, host code), or its program took "
    "another path",
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
_WITH_STACK = (NEVER_JOINED, NEVER_CALLED, NOT_LAUNCHED)  # where the program's stack tells more
_CONFIDENCE = {UNKNOWN: 0.4, STALLED: 0.8, NOT_FINISHED: 0.85}


def find(status: Status, path: str) -> list[Finding]:
    """A finding for each communicator that is hung by itself; mismatches are that family's."""
    return [
        _describe(verdict, status, path)
        for verdict in status.verdicts
        if verdict.hung or verdict.verdict in (WAITING, UNKNOWN)
        if verdict.verdict != MISMATCH and not verdict.because_of
    ]


def followers(status: Status, name: str) -> list[str]:
    """Communicators that hang because of one, directly or by way of others."""
    found: list[str] = []
    names = [name]
    while names:
        at = names.pop()
        more = [v.name for v in status.verdicts if v.because_of == at and v.name not in found]
        found += more
        names += more
    return found


def _sentence(verdict: Verdict) -> str:
    who = ranks_in_words(verdict.culprits) if verdict.culprits else "nobody in particular"
    where = whereabouts(verdict, verdict.culprits)
    who += f" ({where})" if where else ""
    what = f"{verdict.name}"
    if verdict.function:
        what += f" {verdict.function} #{verdict.order} ({binary_size(verdict.size_bytes)})"
    waited = f"{plural(len(verdict.waiting), 'rank')} waited {verdict.waited_ns / 1e9:,.3g} s"
    said = {
        NEVER_JOINED: f"{who} never joined it",
        NEVER_CALLED: f"{who} never called it",
        NOT_LAUNCHED: f"{who} called it and did not launch it",
        NOT_STARTED: f"{who} launched it and did not start it on the GPU",
        NOT_FINISHED: f"{who} did not finish it",
        STALLED: f"all ranks{_listed(verdict.waiting) if not where else ''} are in it and nothing "
        "moves"
        + (f"; behind {'is' if len(verdict.culprits) == 1 else 'are'} {who}" if where else ""),
        DEAD: f"{who} died",
        WAITING: "some ranks are in it, not yet for long",
    }.get(verdict.verdict, f"{verdict.reason}: why it hangs is not known")
    label = "waiting" if verdict.verdict == WAITING else "hang"
    reason = f" ({verdict.reason})" if verdict.reason and verdict.verdict != UNKNOWN else ""
    return f"{label} in {what}: {said}{reason}; {waited}"


def _listed(ranks: tuple[int, ...]) -> str:
    return f" ({ranks_in_words(ranks).removeprefix('ranks ')})" if ranks else ""


def also_waiting(names: list[str]) -> list[Evidence]:
    """What else waits because of a hang."""
    if not names:
        return []
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    waits = "waits" if len(names) == 1 else "wait"
    text = f"{plural(len(names), 'other communicator')} {waits} because of it: {shown}"
    return [Evidence(text, {"communicators": names})]


def _advice(verdict: Verdict, post_mortem: bool) -> str:
    """What to do next, with the command where there is a process to ask."""
    said = _ADVICE.get(verdict.verdict, "wait, and ask `ncclscope status` again")
    if verdict.verdict not in _WITH_STACK:
        return said
    culprit = next((one for one in verdict.doing if one.rank in verdict.culprits), None)
    if post_mortem or culprit is None:
        return f"{said}; look at the end of its log, and while it hangs at its stack (py-spy dump)"
    return f"{said}; its stack: `py-spy dump --pid {culprit.pid}` on {culprit.host}"


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
    hosts = {one.host for one in verdict.doing if one.rank in verdict.culprits}
    return Finding(
        "hang",
        CRITICAL if verdict.hung else INFO,
        _sentence(verdict),
        _advice(verdict, status.post_mortem),
        verdict.verdict,
        verdict.culprits,
        tuple(sorted(hosts)),
        (verdict.name,),
        tuple(evidence),
        confidence=_CONFIDENCE.get(verdict.verdict, 0.95),
        lost_share=1.0,
        by_absence=verdict.verdict in (NEVER_CALLED, NEVER_JOINED),
    )
