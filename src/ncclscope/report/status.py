"""Verdicts about communicators as lines and as JSON: docs/verbs/status.md."""

from collections.abc import Iterator, Mapping
from typing import Any

from ncclscope.capture.liveness import ALIVE, DEAD, STOPPED, UNHEARD
from ncclscope.diagnose.hang import verdict as v
from ncclscope.diagnose.hang.verdict import CallGroup, RankActivity, Status, Verdict
from ncclscope.humanize import binary_size, plural, printable, ranks_in_words, seconds
from ncclscope.snapshot.types import Step

VERSION = 1  # fields are added without a change of it
_MOST_DETAILS = 4
_MOST_COMMUNICATORS = 16
_QUIET_NS = 15_000_000_000
_SILENT = "not heard of any more (of another host: dead, or cut off from here)"
_END = {UNHEARD: "it was last heard of"}
_STEPS = {
    "SendGPUWait": "for its GPU to give what step {step} sends to rank {peer}",
    "SendPeerWait": "for rank {peer} to take step {step}",
    "SendWait": "for the network to take step {step} to rank {peer}",
    "RecvWait": "to receive step {step} from rank {peer}",
    "RecvFlushWait": "for step {step} from rank {peer} to reach GPU memory",
    "RecvGPUWait": "for its GPU to take step {step} from rank {peer}",
}


def _operation(verdict: Verdict) -> str:
    if not verdict.function:
        return f"#{verdict.order}" if verdict.order else ""
    typed = f" {verdict.datatype}" if verdict.datatype else ""
    return f"{verdict.function} #{verdict.order} ({binary_size(verdict.size_bytes)}{typed})"


def _whereabouts(verdict: Verdict, ranks: tuple[int, ...]) -> str:
    found = v.whereabouts(verdict, ranks)
    return f" ({found})" if found else ""


def _waiters(verdict: Verdict, post_mortem: bool) -> str:
    if not verdict.waiting:
        return ""
    who = ranks_in_words(verdict.waiting)
    if len(verdict.waiting) > 2:
        who = plural(len(verdict.waiting), "rank")
    one = len(verdict.waiting) == 1
    verb = "waited" if post_mortem else "has waited" if one else "have waited"
    return f"; {who} {verb} {seconds(verdict.waited_ns)}" + (
        " until the end" if post_mortem else ""
    )


def _said(verdict: Verdict) -> str:
    """The sentence between the operation and those who wait."""
    if verdict.is_death:
        return v.deaths_in_words(verdict)
    culprits = ranks_in_words(verdict.culprits) if verdict.culprits else ""
    who = culprits + _whereabouts(verdict, verdict.culprits)
    have, are = ("has", "is") if len(verdict.culprits) == 1 else ("have", "are")
    reason = f": {verdict.reason}" if verdict.reason else ""
    aside = f" ({verdict.reason})" if verdict.reason else ""
    return {
        v.NEVER_JOINED: f"{who or 'some ranks'} never joined it{aside}",
        v.NEVER_CALLED: f"{who} never called it{aside}",
        v.NOT_LAUNCHED: f"{who} called it and {have} not launched it",
        v.NOT_STARTED: f"{who} launched it and {have} not started it on the GPU",
        v.NOT_FINISHED: f"{who} {have} not finished it",
        v.STALLED: "all ranks are in it and nothing moves"
        + (f"; behind {are} {who}" if culprits else "")
        + reason,
        v.UNKNOWN: f"it waits, and for what is not known{reason}",
        v.WAITING: _patience(verdict),
    }.get(verdict.verdict, verdict.reason)


def _patience(verdict: Verdict) -> str:
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
    called = side.called
    typed = f" {called.datatype}" if called.datatype else ""
    rooted = f" root {called.root}" if called.root >= 0 else ""
    size = binary_size(called.size_bytes)
    return f"{ranks_in_words(side.ranks)} {called.function} {size}{typed}{rooted}"


def line(verdict: Verdict, post_mortem: bool) -> str:
    """One communicator that is not fine, in one line."""
    label = {v.WAITING: "waiting", v.UNKNOWN: "unknown"}.get(verdict.verdict, "HANG")
    all_dead = verdict.is_death and verdict.gone > 0
    label = "DEAD" if all_dead else label
    if verdict.verdict == v.UNKNOWN and verdict.hung:
        label = "HANG"
    if verdict.verdict == v.MISMATCH:
        sides = "; ".join(_side(side) for side in verdict.sides)
        everybody = tuple(rank for side in verdict.sides for rank in side.ranks)
        where = _whereabouts(verdict, verdict.culprits or everybody)
        text = f"MISMATCH {verdict.name} #{verdict.order}: {sides}{where}"
        return printable(text + _waiters(verdict, post_mortem))
    words = [label, verdict.name, _operation(verdict)]
    text = " ".join(word for word in words if word) + ": " + _said(verdict)
    if verdict.verdict != v.WAITING and not all_dead:
        text += _waiters(verdict, post_mortem)
    if verdict.because_of:
        text += f" (follows from {verdict.because_of})"
    return printable(text)


def step_in_words(step: Step) -> str:
    """What an open proxy step waits for."""
    text = _STEPS.get(step.state, "in step {step} with rank {peer}")
    said = text.format(step=step.step, peer=step.peer)
    state = f"{step.state}, " if step.state else ""
    return f"{said} on channel {step.channel} ({state}{seconds(step.since_ns)})"


def _detail(one: RankActivity, culprit: bool) -> str:
    lives = one.life in (ALIVE, STOPPED)
    what = f"{one.function} #{one.order} on {one.communicator}" if one.function else ""
    if not what:
        text = "has called nothing" if lives else "had called nothing"
    elif one.in_flight:
        text = f"{'is' if lives else 'was'} in {what} for {seconds(one.since_ns)}"
        text += f", {one.channels}" if one.channels and culprit else ""
    else:
        text = f"last called {what}, {seconds(one.since_ns)} "
        text += "ago" if lives else f"before {_END.get(one.life, 'its end')}"
        text += "; nothing in flight"
    if one.step is not None:
        text += f"; {'waits' if lives else 'waited'} {step_in_words(one.step)}"
    if one.life not in (ALIVE, DEAD) or (culprit and not lives):
        text += f"; {'dead: ' if one.life == DEAD else ''}{one.how}"
    return printable(f"    rank {one.rank} {text}")


def details(verdict: Verdict) -> list[str]:
    """What culprits and some of those who wait are doing."""
    culprits = [one for one in verdict.doing if one.rank in verdict.culprits]
    others = [one for one in verdict.doing if one.rank not in verdict.culprits]
    telling = [one for one in others if one.step is not None] or others
    shown = culprits[:_MOST_DETAILS] + telling[: _MOST_DETAILS - 1]
    said = [_detail(one, one.rank in verdict.culprits) for one in shown]
    more = len(culprits) - _MOST_DETAILS
    if more > 0:  # of those who wait a few tell all; of culprits each may do something else
        said.insert(_MOST_DETAILS, f"    and {plural(more, 'rank')} more to blame: --json has all")
    return said


def heading(status: Status) -> str:
    """How many processes there are, and how they are."""
    found = plural(status.processes, "process", "processes")
    if status.expected > status.processes:
        found = f"{status.processes:,} of {plural(status.expected, 'process', 'processes')}"
    if status.post_mortem and status.ended == status.processes:
        how = "all ended by themselves"
    elif status.post_mortem:
        how = "none alive" if status.unheard < status.processes else _SILENT
        fine = status.verdicts and all(one.verdict == v.OK for one in status.verdicts)
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
    return f"{found}, {how}, {communicators}{quiet}"


def _summary(status: Status) -> str:
    return f"{_mood(status)}: {heading(status)}"


def other_lines(others: dict[str, Status]) -> Iterator[str]:
    """Other jobs that run, one line each, hung ones first."""
    worst_first = sorted(others.items(), key=lambda other: (not other[1].hung, other[0]))
    for name, status in worst_first[:_MOST_COMMUNICATORS]:
        yield printable(f"also running, capture {name}: {_summary(status)}")
        first = next((verdict for verdict in status.verdicts if verdict.hung), None)
        if first is not None:
            yield f"    {line(first, status.post_mortem)}"
    if len(others) > _MOST_COMMUNICATORS:
        yield f"and {plural(len(others) - _MOST_COMMUNICATORS, 'running job')} more: ncclscope ls"


def _mood(status: Status) -> str:
    """The first word of the answer."""
    if not status.verdicts:
        return "unknown"
    bad = [verdict for verdict in status.verdicts if verdict.verdict != v.OK]
    said = {verdict.verdict for verdict in bad}
    if status.hung:
        hung = [verdict for verdict in bad if verdict.hung and not verdict.because_of]
        return "dead" if all(one.gone and one.is_death for one in hung) else "hung"
    return next((word for word in (v.DEAD, v.WAITING) if word in said), "unknown" if bad else "ok")


def lines(status: Status, capture: str = "") -> Iterator[str]:
    """The whole answer: one line for each communicator that is not fine. `capture`: its name, for
    those who did not give it.
    """
    bad = [verdict for verdict in status.verdicts if verdict.verdict != v.OK]
    yield _summary(status) + (f" (capture {printable(capture)})" if capture else "")
    if status.simulated:
        yield "! this is a simulation"
    for verdict in bad[:_MOST_COMMUNICATORS]:
        yield line(verdict, status.post_mortem)
        # What follows from another one is told there.
        if not verdict.because_of and (verdict.hung or verdict.verdict == v.UNKNOWN):
            yield from details(verdict)
    if more := bad[_MOST_COMMUNICATORS:]:
        follow = sum(bool(verdict.because_of) for verdict in more)
        aside = f", {follow:,} of them follow from those above" if follow else ""
        many = plural(len(more), "communicator")
        yield f"and {many} more that are not fine{aside}: --json has all"
    for text in status.unreadable:
        yield printable(f"not read: {text}")


# ---- for programs ----
def _doing_json(one: RankActivity) -> dict[str, Any]:
    step = one.step
    return {
        "rank": one.rank,
        "host": one.host,
        "gpu": one.gpu or None,
        "pid": one.pid,
        "life": one.life,
        "seen_by": one.how,
        "communicator": one.communicator or None,
        "function": one.function or None,
        "order": one.order,
        "since_s": round(one.since_ns / 1e9, 6),
        "in_flight": one.in_flight,
        "channels": one.channels or None,
        "proxy_step": None
        if step is None
        else {
            "channel": step.channel,
            "peer": step.peer,
            "direction": "send" if step.sends else "recv",
            "step": step.step,
            "state": step.state or None,
            "since_s": round(step.since_ns / 1e9, 6),
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
        "order": verdict.order or None,
        "bytes": verdict.size_bytes if verdict.function else None,
        "datatype": verdict.datatype or None,
        "culprits": list(verdict.culprits),
        "waiting": list(verdict.waiting),
        "waited_s": round(verdict.waited_ns / 1e9, 6),
        "limit_s": round(verdict.limit_ns / 1e9, 6),
        "sides": [
            {
                "ranks": list(side.ranks),
                "function": side.called.function,
                "bytes": side.called.size_bytes,
                "datatype": side.called.datatype or None,
                "root": side.called.root if side.called.root >= 0 else None,
            }
            for side in verdict.sides
        ],
        "reason": verdict.reason or None,
        "follows_from": verdict.because_of or None,
        "missing": list(verdict.missing),
        "all_dead": verdict.gone > 0,
        "died_first": list(verdict.culprits) if verdict.died_first else [],
        "doing": [_doing_json(one) for one in verdict.doing],
        "line": None if verdict.verdict == v.OK else line(verdict, post_mortem),
    }


def as_json(
    status: Status, capture: str, others: Mapping[str, Status] | None = None
) -> dict[str, Any]:
    """The whole answer; `others`: other jobs that run, by capture."""
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
        "quiet_s": round(status.quiet_ns / 1e9, 3),
        "communicators": [_verdict_json(one, status.post_mortem) for one in status.verdicts],
        "unreadable": list(status.unreadable),
        "others": [
            {"capture": path, "hung": one.hung, "line": _summary(one)}
            for path, one in (others or {}).items()
        ],
    }
