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
)
from ncclscope.words import binary_size, plural, ranks_in_words

_ADVICE = {
    NEVER_JOINED: "look at those ranks' stacks (py-spy dump): they did not come to the creation",
    NEVER_CALLED: "look at those ranks' stacks (py-spy dump): they are outside NCCL, or "
    "their program "
    "took another path",
    NOT_LAUNCHED: "their host threads are inside NCCL: connecting to a peer, or out of resources",
    NOT_STARTED: "their GPUs are busy with, or wait for, another kernel: look at streams "
    "and events",
    NOT_FINISHED: "look at the network and links of those ranks",
    STALLED: "look at the links between these ranks; NCCL_DEBUG=INFO and the fabric's error "
    "counters",
    DEAD: "look at that process's log and exit status; dmesg for out-of-memory kills and "
    "Xid errors",
    UNKNOWN: "record all ranks, in mode trace or full",
}
_CONFIDENCE = {UNKNOWN: 0.4, STALLED: 0.8, NOT_FINISHED: 0.85}


def find(status: Status, path: str) -> list[Finding]:
    """A finding for each communicator that is hung by itself; mismatches are that family's."""
    return [
        _describe(verdict, followers(status, verdict.name), path)
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
        STALLED: "all ranks are in it and nothing moves",
        DEAD: f"{who} died",
        WAITING: "some ranks are in it, not yet for long",
    }.get(verdict.verdict, f"why is not known ({verdict.reason})")
    label = "waiting" if verdict.verdict == WAITING else "hang"
    reason = f" ({verdict.reason})" if verdict.reason and verdict.verdict != UNKNOWN else ""
    return f"{label} in {what}: {said}{reason}; {waited}"


def also_waiting(names: list[str]) -> list[Evidence]:
    """What else waits because of a hang."""
    if not names:
        return []
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    waits = "waits" if len(names) == 1 else "wait"
    text = f"{plural(len(names), 'other communicator')} {waits} because of it: {shown}"
    return [Evidence(text, {"communicators": names})]


def _describe(verdict: Verdict, following: list[str], path: str) -> Finding:
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
        *also_waiting(following),
    ]
    hosts = {one.host for one in verdict.doing if one.rank in verdict.culprits}
    return Finding(
        "hang",
        CRITICAL if verdict.hung else INFO,
        _sentence(verdict),
        _ADVICE.get(verdict.verdict, "wait, and ask `ncclscope status` again"),
        verdict.verdict,
        verdict.culprits,
        tuple(sorted(hosts)),
        (verdict.name,),
        tuple(evidence),
        confidence=_CONFIDENCE.get(verdict.verdict, 0.95),
        lost_share=1.0,
        by_absence=verdict.verdict in (NEVER_CALLED, NEVER_JOINED),
    )
