"""Verdicts about communicators as text and as JSON; docs/verbs/status.md describes both."""

from collections.abc import Iterator, Mapping
from typing import Any

from ncclscope.capture import liveness
from ncclscope.diagnose.hang.verdict import (
    CIRCLE,
    DEAD,
    DIRECTION,
    EXTRA_CALL,
    MISMATCH,
    NEVER_CALLED,
    NEVER_JOINED,
    NOT_FINISHED,
    NOT_LAUNCHED,
    NOT_STARTED,
    OK,
    STALLED,
    UNKNOWN,
    WAITING,
    CallGroup,
    RankActivity,
    Status,
    Verdict,
    answer_in_words,
    deaths_in_words,
    operation_in_words,
    whereabouts,
)
from ncclscope.humanize import binary_size, plural, printable, ranks_in_words, seconds
from ncclscope.json_answers import VERSION
from ncclscope.snapshot.types import PAIRED, Step

_MOST_DETAILS = 4
_MOST_COMMUNICATORS = 16
_QUIET_NS = 15_000_000_000
_SILENT = "not heard of any more (of another host: dead, or cut off from here)"
_END = {liveness.UNHEARD: "it was last heard of"}
_STEPS = {
    "SendGPUWait": "for its GPU to give what step {step} sends to rank {peer}",
    "SendPeerWait": "for rank {peer} to take step {step}",
    "SendWait": "for the network to take step {step} to rank {peer}",
    "RecvWait": "to receive step {step} from rank {peer}",
    "RecvFlushWait": "for step {step} from rank {peer} to reach GPU memory",
    "RecvGPUWait": "for its GPU to take step {step} from rank {peer}",
}


def _where(verdict: Verdict, ranks: tuple[int, ...]) -> str:
    """Where ranks are, in brackets; "" where it is not known."""
    text = whereabouts(verdict, ranks)
    return f" ({text})" if text else ""


def _waiters(verdict: Verdict, post_mortem: bool) -> str:
    if not verdict.waiting:
        return ""
    who = ranks_in_words(verdict.waiting)
    if len(verdict.waiting) > 2:
        who = plural(len(verdict.waiting), "rank")
    single = len(verdict.waiting) == 1
    over = post_mortem or verdict.exited
    verb = "waited" if over else "has waited" if single else "have waited"
    end = " until they exited" if verdict.exited and not single else " until the end"
    end = " until it exited" if verdict.exited and single else end
    return f"; {who} {verb} {seconds(verdict.waited_ns)}" + (end if over else "")


def _what_happened(verdict: Verdict) -> str:
    """The part of the line between the operation and the ranks that wait."""
    if verdict.is_death:
        return deaths_in_words(verdict)
    culprits = ranks_in_words(verdict.culprits) if verdict.culprits else ""
    who = culprits + _where(verdict, verdict.culprits)
    have, are = ("has", "is") if len(verdict.culprits) == 1 else ("have", "are")
    reason = f": {verdict.reason}" if verdict.reason else ""
    aside = f" ({verdict.reason})" if verdict.reason else ""
    lasted = f"for {seconds(verdict.waited_ns)}"
    return {
        NEVER_JOINED: f"{who or 'some ranks'} never joined it{aside}",
        NEVER_CALLED: f"{who} never called {answer_in_words(verdict)}{aside}",
        EXTRA_CALL: f"{who} made a call too many: {verdict.reason}; {lasted}",
        CIRCLE: f"a circle of waiting, {who}: {verdict.reason}; {lasted}",
        NOT_LAUNCHED: f"{who} called it and {have} not launched it",
        NOT_STARTED: f"{who} launched it and {have} not started it on the GPU",
        NOT_FINISHED: f"{who} {have} not finished it",
        STALLED: "all ranks are in it and nothing moves"
        + (f"; behind {are} {who}" if culprits else "")
        + reason,
        UNKNOWN: f"it waits, and for what is not known{reason}",
        WAITING: _still_waiting(verdict),
    }.get(verdict.verdict, verdict.reason)


def _still_waiting(verdict: Verdict) -> str:
    who = ranks_in_words(verdict.waiting) if verdict.waiting else "ranks"
    if len(verdict.waiting) > 2:
        who = plural(len(verdict.waiting), "rank")
    text = f"{who} in it for {seconds(verdict.waited_ns)}"
    for_whom = f", for {ranks_in_words(verdict.culprits)}" if verdict.culprits else ""
    limit = seconds(verdict.limit_ns)
    return f"{text}{for_whom}; a hang from {limit} on" + (
        f" ({verdict.reason})" if verdict.reason else ""
    )


def _side(side: CallGroup) -> str:
    call = side.call
    datatype = f" {call.datatype}" if call.datatype else ""
    root = f" root {call.root}" if call.root >= 0 else ""
    size = binary_size(call.size_bytes)
    return f"{ranks_in_words(side.ranks)} {call.function} {size}{datatype}{root}"


def line(verdict: Verdict, post_mortem: bool) -> str:
    """One communicator that is not fine, in one line."""
    label = {WAITING: "waiting", UNKNOWN: "unknown"}.get(verdict.verdict, "HANG")
    all_dead = verdict.is_death and verdict.dead_processes > 0
    label = "DEAD" if all_dead else label
    if verdict.verdict == UNKNOWN and verdict.hung:
        label = "HANG"
    if verdict.verdict == MISMATCH:
        sides = "; ".join(_side(side) for side in verdict.sides)
        everybody = tuple(rank for side in verdict.sides for rank in side.ranks)
        where = _where(verdict, verdict.culprits or everybody)
        text = f"MISMATCH {verdict.name} #{verdict.order}: {sides}{where}"
        return printable(text + _waiters(verdict, post_mortem))
    where = _training(verdict)
    words = [label, verdict.name, operation_in_words(verdict), f"in {where}" if where else ""]
    text = " ".join(word for word in words if word) + ": " + _what_happened(verdict)
    if verdict.verdict not in (WAITING, EXTRA_CALL, CIRCLE) and not all_dead:
        text += _waiters(verdict, post_mortem)
    if verdict.because_of:
        text += f" (follows from {verdict.because_of})"
    return printable(text)


def _training(verdict: Verdict) -> str:
    """Where in their training ranks are that wait, where they agree; else where culprits are."""
    for ranks in (set(verdict.waiting), set(verdict.culprits)):
        places = {a.training for a in verdict.activities if a.rank in ranks and a.training}
        if len(places) == 1:
            return places.pop()
    return ""


def step_in_words(step: Step) -> str:
    """What an open proxy step waits for."""
    text = _STEPS.get(step.state, "in step {step} with rank {peer}")
    waits_for = text.format(step=step.step, peer=step.peer)
    state = f"{step.state}, " if step.state else ""
    return f"{waits_for} on channel {step.channel} ({state}{seconds(step.since_ns)})"


def _call(activity: RankActivity) -> str:
    """A call with its number; sends and receives are numbered on each rank apart, so with its peer
    instead.
    """
    if activity.function not in PAIRED:
        return f"{activity.function} #{activity.order}"
    if activity.peer is None:
        return activity.function
    return f"{activity.function} {DIRECTION[activity.function]} rank {activity.peer}"


def _detail(activity: RankActivity, is_culprit: bool) -> str:
    """What a rank is doing, or was doing last, in one line."""
    alive = activity.life in (liveness.ALIVE, liveness.STOPPED)
    what = f"{_call(activity)} on {activity.communicator}"
    if not activity.function:
        known = alive or activity.life == liveness.ENDED
        text = "has called nothing" if known else "has no call on record"
    elif activity.in_flight:
        text = f"{'is' if alive else 'was'} in {what} for {seconds(activity.since_ns)}"
        text += f", {activity.channels}" if activity.channels and is_culprit else ""
    else:
        text = f"last called {what}, {seconds(activity.since_ns)} "
        text += "ago" if alive else f"before {_END.get(activity.life, 'its end')}"
        text += "; nothing in flight"
    if activity.training:
        text += f"; in {activity.training}"
    if activity.step is not None:
        text += f"; {'waits' if alive else 'waited'} {step_in_words(activity.step)}"
    if activity.life not in (liveness.ALIVE, liveness.DEAD) or (is_culprit and not alive):
        text += f"; {'dead: ' if activity.life == liveness.DEAD else ''}{activity.how}"
    return printable(f"    rank {activity.rank} {text}")


def details(verdict: Verdict) -> list[str]:
    """What culprits and some of the ranks that wait are doing."""
    culprits = [a for a in verdict.activities if a.rank in verdict.culprits]
    others = [a for a in verdict.activities if a.rank not in verdict.culprits]
    with_steps = [activity for activity in others if activity.step is not None] or others
    shown = culprits[:_MOST_DETAILS] + with_steps[: _MOST_DETAILS - 1]
    texts = [_detail(activity, activity.rank in verdict.culprits) for activity in shown]
    more = len(culprits) - _MOST_DETAILS
    if more > 0:  # a few waiting ranks say it all; each culprit may do something else
        texts.insert(_MOST_DETAILS, f"    and {plural(more, 'rank')} more to blame: --json has all")
    return texts


def heading(status: Status) -> str:
    """How many processes there are, and whether they are alive."""
    processes = plural(status.processes, "process", "processes")
    if status.expected > status.processes:
        processes = f"{status.processes:,} of {plural(status.expected, 'process', 'processes')}"
    if status.post_mortem and status.ended == status.processes:
        how = "all ended by themselves"
    elif status.post_mortem:
        how = "none alive" if status.unheard < status.processes else _SILENT
        fine = status.verdicts and all(verdict.verdict == OK for verdict in status.verdicts)
        how += ", nothing was in flight" if fine else ""
    else:
        how = "all alive" if status.alive == status.processes else f"{status.alive} alive"
    if 0 < status.unheard < status.processes:
        how += f", {status.unheard:,} {_SILENT}"
    communicators = plural(len(status.verdicts), "communicator")
    if not status.verdicts:
        communicators = "no communicator on record: nothing can be said"
    quiet = ""
    if status.verdicts and not status.called:
        quiet = ", no NCCL call on record"
    elif status.quiet_ns > _QUIET_NS:
        quiet = f", no NCCL call for {seconds(status.quiet_ns)}"
        if not (status.sees_ends or status.hung or status.post_mortem):
            quiet += " (ends of operations are not recorded: a hang in it would look the same)"
    return f"{processes}, {how}, {communicators}{quiet}"


def _summary(status: Status) -> str:
    return f"{_state(status)}: {heading(status)}"


def other_lines(others: dict[str, Status]) -> Iterator[str]:
    """Other jobs that are running, one line each, hung ones first."""
    worst_first = sorted(others.items(), key=lambda other: (not other[1].hung, other[0]))
    for name, status in worst_first[:_MOST_COMMUNICATORS]:
        yield printable(f"also running, capture {name}: {_summary(status)}")
        first = next((verdict for verdict in status.verdicts if verdict.hung), None)
        if first is not None:
            yield f"    {line(first, status.post_mortem)}"
    if len(others) > _MOST_COMMUNICATORS:
        yield f"and {plural(len(others) - _MOST_COMMUNICATORS, 'running job')} more: ncclscope ls"


def _state(status: Status) -> str:
    """The first word of the answer."""
    if not status.verdicts:
        return "unknown"
    bad = [verdict for verdict in status.verdicts if verdict.verdict != OK]
    kinds = {verdict.verdict for verdict in bad}
    if status.hung:
        hung = [verdict for verdict in bad if verdict.hung and not verdict.because_of]
        return "dead" if all(v.dead_processes and v.is_death for v in hung) else "hung"
    return next((kind for kind in (DEAD, WAITING) if kind in kinds), "unknown" if bad else "ok")


def lines(status: Status, capture: str = "") -> Iterator[str]:
    """The whole answer: one line for each communicator that is not fine. `capture`: its name, where
    the user did not give it.
    """
    bad = [verdict for verdict in status.verdicts if verdict.verdict != OK]
    yield _summary(status) + (f" (capture {printable(capture)})" if capture else "")
    if status.simulated:
        yield "! this is a simulation"
    for verdict in bad[:_MOST_COMMUNICATORS]:
        yield line(verdict, status.post_mortem)
        # Those that follow from another one have their details there.
        if not verdict.because_of and (verdict.hung or verdict.verdict == UNKNOWN):
            yield from details(verdict)
    if more := bad[_MOST_COMMUNICATORS:]:
        follow = sum(bool(verdict.because_of) for verdict in more)
        aside = f", {follow:,} of them follow from those above" if follow else ""
        many = plural(len(more), "communicator")
        yield f"and {many} more that are not fine{aside}: --json has all"
    for text in status.unreadable:
        yield printable(f"not read: {text}")


# ---- for programs ----
def _activity_json(activity: RankActivity) -> dict[str, Any]:
    step = activity.step
    return {
        "rank": activity.rank,
        "host": activity.host,
        "gpu": activity.gpu or None,
        "pid": activity.pid,
        "life": activity.life,
        "seen_by": activity.how,
        "communicator": activity.communicator or None,
        "function": activity.function or None,
        "call_order": activity.order,
        "since_ns": activity.since_ns,
        "in_flight": activity.in_flight,
        "peer": activity.peer,
        "channels": activity.channels or None,
        **({"training": activity.training} if activity.training else {}),
        "proxy_step": None
        if step is None
        else {
            "channel": step.channel,
            "peer": step.peer,
            "direction": "send" if step.sends else "recv",
            "step": step.step,
            "state": step.state or None,
            "since_ns": step.since_ns,
        },
    }


def _verdict_json(verdict: Verdict, post_mortem: bool) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "id": f"{verdict.id:x}",
        "ranks": verdict.ranks,
        "verdict": verdict.verdict,
        "hung": verdict.hung,
        "function": verdict.function or None,
        "call_order": verdict.order or None,
        "size_bytes": verdict.size_bytes if verdict.function else None,
        "datatype": verdict.datatype or None,
        "culprits": list(verdict.culprits),
        "waiting": list(verdict.waiting),
        "waited_ns": verdict.waited_ns,
        "limit_ns": verdict.limit_ns,
        "sides": [
            {
                "ranks": list(side.ranks),
                "function": side.call.function,
                "size_bytes": side.call.size_bytes,
                "datatype": side.call.datatype or None,
                "root": side.call.root if side.call.root >= 0 else None,
            }
            for side in verdict.sides
        ],
        "reason": verdict.reason or None,
        "peer": verdict.pair.peer if verdict.pair else None,
        "circle": list(verdict.circle),
        "follows_from": verdict.because_of or None,
        "missing": list(verdict.missing),
        "all_dead": verdict.dead_processes > 0,
        "died_first": list(verdict.culprits) if verdict.died_first else [],
        "doing": [_activity_json(activity) for activity in verdict.activities],
        "line": None if verdict.verdict == OK else line(verdict, post_mortem),
    }


def as_json(
    status: Status, capture: str, others: Mapping[str, Status] | None = None
) -> dict[str, Any]:
    """The whole answer. `others`: other jobs that are running, by capture."""
    return {
        "version": VERSION,
        "capture": capture,
        "hung": status.hung,
        "post_mortem": status.post_mortem,
        "simulation": status.simulated,
        "processes": {
            "found": status.processes,
            "expected": status.expected,
            "alive": status.alive,
            "ended": status.ended,
            "unheard": status.unheard,
        },
        "last_heard_unix_s": round(status.newest_ns / 1e9, 3),
        "quiet_ns": status.quiet_ns,
        "communicators": [_verdict_json(v, status.post_mortem) for v in status.verdicts],
        "unreadable": list(status.unreadable),
        "others": [
            {"capture": path, "hung": other.hung, "line": _summary(other)}
            for path, other in (others or {}).items()
        ],
    }
