"""Every verdict, from last moments made by hand."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ncclscope.capture import dtypes, layout
from ncclscope.capture.call_counts import CallCount, CallKey
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.liveness import ALIVE, DEAD, ENDED, UNHEARD, life_in
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import Verdict
from ncclscope.diagnose.rules import hang
from ncclscope.humanize import ranks_in_words
from ncclscope.report.status import as_json, lines
from ncclscope.snapshot.from_live_page import was_busy
from ncclscope.snapshot.process import ProcessSnapshot, with_unrecorded_calls
from ncclscope.snapshot.types import OpenEvents
from tests.support.snapshot_builders import (
    NOW_NS,
    S,
    inside,
    last,
    operation,
    rank_state,
    recv_wait,
    send_wait,
    snapshot,
)
from tests.support.writer.live import write_hang


def job(ranks: int, **odd: Any) -> list[ProcessSnapshot]:
    """A job whose ranks are all in their hundredth AllReduce, but for those that `odd` describes by
    `r3`: fields of its seat.
    """
    return [
        snapshot(
            rank,
            rank_state(rank, ranks, **{"in_flight": (operation(100),)} | odd.get(f"r{rank}", {})),
        )
        for rank in range(ranks)
    ]


def verdict_of(snapshots: list[ProcessSnapshot]) -> Verdict:
    status = judge(snapshots)
    assert list(lines(status))
    assert as_json(status, "c")["hung"] == status.hung
    return status.verdicts[0]


def test_never_called() -> None:
    idle = {"calls": 99, "in_flight": ()}
    found = verdict_of(job(32, r12=idle, r13=idle))
    assert (found.verdict, found.hung, found.culprits) == ("never_called", True, (12, 13))
    assert (found.function, found.order, found.size_bytes) == ("AllReduce", 100, 1 << 20)
    assert len(found.waiting) == 30
    assert found.waited_ns == 40 * S
    text = list(lines(judge(job(32, r12=idle, r13=idle))))
    assert text[1] == (
        "HANG dp AllReduce #100 (1 MiB float32): ranks 12, 13 (node1 GPU 4, 5; pids 1012, 1013) "
        "never called it; 30 ranks have waited 40 s"
    )
    assert "rank 12 last called AllReduce #99 on dp, 40 s ago; nothing in flight" in text[2]


def test_never_called_while_others_are_ahead() -> None:
    """Calls are queued: those who wait have called more than the one they wait in."""
    ahead = {"calls": 104, "in_flight": tuple(operation(order) for order in range(100, 105))}
    found = verdict_of(job(4, r0=ahead, r1=ahead, r2=ahead, r3={"calls": 99, "in_flight": ()}))
    assert (found.verdict, found.culprits, found.order) == ("never_called", (3,), 100)


def test_not_launched() -> None:
    stuck = {"in_flight": (), "works": 99, "parts": inside(), "last": last(39.9)}
    found = verdict_of(job(4, r2=stuck))
    assert (found.verdict, found.culprits, found.waiting) == ("not_launched", (2,), (0, 1, 3))


def test_not_started() -> None:
    found = verdict_of(job(4, r1={"in_flight": (operation(100, started=0),)}))
    assert (found.verdict, found.culprits, found.waiting) == ("not_started", (1,), (0, 2, 3))


def test_not_finished() -> None:
    over = {"in_flight": ()}
    behind = {
        "in_flight": (operation(100, stopped=1),),
        "parts": OpenEvents(steps=[recv_wait(2, 5, 1)]),
    }
    found = verdict_of(job(4, r0=over, r1=over, r2=over, r3=behind))
    assert (found.verdict, found.culprits, found.order) == ("not_finished", (3,), 100)
    assert "waits to receive step 5 from rank 2 on channel 1" in " ".join(lines(judge(job(4, r0=over, r1=over, r2=over, r3=behind))))  # fmt: skip


def test_stalled() -> None:
    found = verdict_of(job(4))
    assert (found.verdict, found.hung, found.culprits) == ("stalled", True, ())
    assert found.waiting == (0, 1, 2, 3)


def test_stalled_in_the_network() -> None:
    """One step is furthest behind, and its sender waits for the network."""
    steps = {
        "r0": {"parts": OpenEvents(steps=[send_wait(1, 3), recv_wait(3, 6)])},
        "r1": {"parts": OpenEvents(steps=[recv_wait(0, 3)])},
        "r2": {"parts": OpenEvents(steps=[recv_wait(1, 4)])},
        "r3": {"parts": OpenEvents(steps=[recv_wait(2, 5)])},
    }
    found = verdict_of(job(4, **steps))
    assert (found.verdict, found.culprits) == ("stalled", (0, 1))
    assert "rank 0 to rank 1" in found.reason


@pytest.mark.parametrize(
    "other",
    [
        {"function": "AllGather"},
        {"count": 1000},
        {"datatype": "bfloat16"},
    ],
)
def test_mismatch_is_said_at_once(other: dict[str, Any]) -> None:
    odd = {"last": last(0.3, **other), "in_flight": (operation(100, 0.3),)}
    snapshots = job(4, r3=odd)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits, found.order) == ("mismatch", True, (3,), 100)
    assert [side.ranks for side in found.sides] == [(0, 1, 2), (3,)]


def test_roots_differ() -> None:
    broadcast = {"last": last(function="Broadcast", root=0)}
    odd = {"last": last(function="Broadcast", root=2)}
    found = verdict_of(job(4, r0=broadcast, r1=broadcast, r2=odd, r3=broadcast))
    assert (found.verdict, found.culprits) == ("mismatch", (2,))


def test_a_tie_has_no_culprits() -> None:
    found = verdict_of(job(2, r1={"last": last(function="AllGather")}))
    assert (found.verdict, found.culprits, len(found.sides)) == ("mismatch", (), 2)
    (_, line, *_) = lines(judge(job(2, r1={"last": last(function="AllGather")})))
    assert "(node0 GPU 0, 1; pids 1000, 1001)" in line, "both sides are to be found"


def test_different_numbers_of_calls_are_no_mismatch() -> None:
    running = [
        snapshot(r, rank_state(r, 4, calls=100 + r, last=last(0.01, function=("AllReduce", "AllGather")[r % 2])))
        for r in range(4)
    ]  # fmt: skip
    assert judge(running).verdicts[0].verdict == "ok"


@pytest.mark.parametrize("life", [DEAD, UNHEARD])
def test_dead(life: str) -> None:
    snapshots = job(4, r2={"calls": 99, "in_flight": ()})
    snapshots[2] = replace(snapshots[2], life=life, how="its process is gone")
    for one in (0, 1, 3):
        snapshots[one] = snapshot(one, rank_state(one, 4, in_flight=(operation(100, 0.5),)))
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("dead", True, (2,))
    assert found.waiting == (0, 1, 3)
    assert found.reason == "its process is gone"


def test_who_died_first_of_all_that_are_dead() -> None:
    snapshots = [replace(p, life=DEAD, how="its process is gone") for p in job(4)]
    snapshots[1] = replace(
        snapshots[1], at_ns=NOW_NS - 30 * S, rank_states=(rank_state(1, 4, calls=99, in_flight=()),)
    )
    found = verdict_of(snapshots)
    assert (found.verdict, found.culprits, found.waiting) == ("dead", (1,), (0, 2, 3))


def test_one_exited_and_the_others_wait() -> None:
    snapshots = job(4, r2={"calls": 99, "in_flight": ()})
    snapshots[2] = replace(snapshots[2], life=ENDED, how="it exited by itself")
    found = verdict_of(snapshots)
    assert (found.verdict, found.culprits) == ("dead", (2,))


def test_never_joined() -> None:
    made = {"calls": 0, "in_flight": (), "opened_ns": 20 * S}
    snapshots = [
        replace(p, world=4) for p in job(4, r0=made, r1=made, r3=made) if p.global_rank != 2
    ]
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("never_joined", True, (2,))
    young = {"calls": 0, "in_flight": (), "opened_ns": 4 * S}
    snapshots = [replace(p, world=4) for p in job(4, r0=young, r1=young, r3=young) if p.global_rank != 2]  # fmt: skip
    assert verdict_of(snapshots).verdict == "waiting"


def test_waiting_is_not_a_hang() -> None:
    idle = {"calls": 99, "in_flight": (), "last": last(9)}
    others = {f"r{rank}": {"in_flight": (operation(100, 9),), "last": last(9)} for rank in range(3)}
    found = verdict_of(job(4, r3=idle, **others))
    assert (found.verdict, found.hung, found.culprits) == ("waiting", False, (3,))


def test_a_checkpoint_like_the_one_before_is_no_hang() -> None:
    """60 s are not longer than three times the longest wait so far."""
    idle = {"calls": 99, "in_flight": (), "last": last(60)}
    others = {
        f"r{rank}": {"in_flight": (operation(100, 60),), "last": last(60), "longest_ns": 21 * S}
        for rank in range(3)
    }
    found = verdict_of(job(4, r3=idle, **others))
    assert (found.verdict, found.limit_ns) == ("waiting", 63 * S)


def test_busy_and_idle_are_fine() -> None:
    busy = {f"r{r}": {"in_flight": (operation(100, 0.1),), "last": last(0.1)} for r in range(4)}
    assert verdict_of(job(4, **busy)).verdict == "ok"
    idle = {f"r{rank}": {"in_flight": (), "last": last(600)} for rank in range(4)}
    assert verdict_of(job(4, **idle)).verdict == "ok"


def killed(snapshots: list[ProcessSnapshot], in_flight_s: float) -> list[ProcessSnapshot]:
    """All of them dead, what was in flight begun shortly before."""
    since_ns = int(in_flight_s * S)
    return [
        replace(
            p,
            life=DEAD,
            how="its process is gone",
            rank_states=tuple(
                replace(s, in_flight=tuple(replace(f, since_ns=since_ns) for f in s.in_flight))
                for s in p.rank_states
            ),
        )
        for p in snapshots
    ]


def test_a_healthy_job_that_was_killed_is_no_hang() -> None:
    """Ranks are a little apart, as they always are."""
    snapshots = killed(job(4, r3={"calls": 99, "in_flight": ()}), 0.0005)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("dead", False, ())
    assert list(lines(judge(snapshots))) == [
        "dead: 4 processes, none alive, 1 communicator",
        "DEAD dp AllReduce #100 (1 MiB float32): all its 4 processes are dead (who died first "
        "cannot be told: last heard of within 1 s of each other); ranks 0-2 were in it for 0.5 ms "
        "then",
    ]
    (finding,) = hang.find(judge(snapshots), "c")
    assert (finding.severity, finding.kind, finding.ranks) == ("info", "dead", ())
    assert "all its 4 processes are dead" in finding.sentence
    assert finding.advice.startswith("the launcher's log has who failed first")


@pytest.mark.parametrize("started", [0, 2])
def test_an_operation_of_dead_processes_alone_is_no_hang(started: int) -> None:
    """One died, and the launcher killed the others a moment later: those of tp were in an operation
    of theirs, longer than usual, and nobody is to blame for that.
    """
    tp = {"name": "tp", "id": 9, "number": 1}
    snapshots = [
        snapshot(
            rank, rank_state(rank, 4, in_flight=(operation(100),) if rank == 3 else ()),
            *([rank_state(rank, 2, **tp, in_flight=(operation(100, started=started * rank),))] if rank < 2 else []),
        )
        for rank in range(4)
    ]  # fmt: skip
    status = judge(killed(snapshots, 0.2))
    assert {one.verdict for one in status.verdicts} == {"dead"}
    assert not status.hung
    (finding,) = hang.find(status, "c")
    assert "in flight, too: " in finding.evidence[1].text
    # While anybody else lives, that they died is said at once.
    snapshots = [*killed(snapshots, 0.2)[:2], *snapshots[2:]]
    status = judge(snapshots)
    assert [(one.verdict, one.culprits) for one in status.verdicts] == [("dead", (0, 1))] * 2
    assert status.hung
    assert [one.because_of for one in status.verdicts] == ["", "dp"]
    assert "ranks 0, 1 (node0 GPU 0, 1; pids 1000, 1001) are dead: their processes are gone" in " ".join(lines(status))  # fmt: skip


def test_what_the_first_line_says_of_processes() -> None:
    idle = {f"r{rank}": {"in_flight": (), "last": last(1)} for rank in range(4)}
    fine = killed(job(4, **idle), 0)
    (first, *_) = lines(judge(fine))
    assert first == "ok: 4 processes, none alive, nothing was in flight, 1 communicator"
    silent = [replace(p, life=UNHEARD) for p in fine]
    (first, *_) = lines(judge(silent))
    assert "not heard of any more (of another host: dead, or cut off from here)" in first
    assert "none alive" not in first, "nobody can tell"
    (first, *_) = lines(judge([*fine[:3], silent[3]]))
    assert "none alive, nothing was in flight, 1 not heard of any more" in first
    (_, line) = lines(judge([replace(p, life=UNHEARD) for p in killed(job(4), 0.0005)]))
    assert ": all its 4 processes are silent (dead, or cut off from here) (who" in line


def test_who_was_waited_for_when_all_were_killed() -> None:
    """The launcher was quick: that rank 2 died first can be guessed, not told."""
    snapshots = killed(job(4, r2={"calls": 99, "in_flight": ()}), 0.3)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("never_called", True, (2,))
    assert found.waiting == (0, 1, 3)
    heading, line, *details = lines(judge(snapshots))
    assert heading.startswith("dead: 4 processes, none alive")
    assert found.reason == "who died first cannot be told: last heard of within 1 s of each other"
    assert line == (
        "DEAD dp AllReduce #100 (1 MiB float32): all its 4 processes are dead; ranks 0, 1, 3 were "
        "in it for 0.3 s, rank 2 (node0 GPU 2; pid 1002) had not called it and may have died first"
    )
    assert details[0].endswith(
        "rank 2 last called AllReduce #99 on dp, 40 s before its end; nothing in flight; dead: its "
        "process is gone"
    )
    assert details[1] == "    rank 0 was in AllReduce #100 on dp for 0.3 s"


def test_who_exited_by_itself_before_the_others_were_killed() -> None:
    """An exception: its process ends in good order, the launcher kills the others at once."""
    snapshots = killed(job(4, r2={"calls": 99, "in_flight": ()}), 0.0005)
    snapshots[2] = replace(snapshots[2], life=ENDED, how="it exited by itself")
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("dead", True, (2,))
    assert found.died_first
    (_, line, *_) = lines(judge(snapshots))
    assert "rank 2 (node0 GPU 2; pid 1002) died first: it exited by itself; ranks 0, 1, 3" in line
    # Who has done what the others are in and went home is not to blame.
    snapshots[2] = replace(snapshots[2], rank_states=(rank_state(2, 4, in_flight=()),))
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("dead", False, ())


def test_a_long_wait_that_was_killed_stays_a_hang() -> None:
    """And what else was under way then follows from it."""
    tp = {"name": "tp", "id": 9, "number": 1}
    snapshots = killed(job(4, r2={"calls": 99, "in_flight": ()}), 40)
    short = (operation(50, 0.001),)
    for rank in (2, 3):
        more = rank_state(rank - 2, 2, 50, short, **tp, global_rank=rank)
        snapshots[rank] = replace(snapshots[rank], rank_states=(*snapshots[rank].rank_states, more))
    first, second = judge(snapshots).verdicts
    assert (first.verdict, first.culprits, first.hung) == ("never_called", (2,), True)
    assert (second.verdict, second.hung, second.because_of) == ("dead", False, "dp")


def test_files_missing_say_unknown() -> None:
    snapshots = [replace(p, world=4) for p in job(4)][:3]
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("unknown", True, (3,))
    assert "left no files" in found.reason


def test_without_gpu_timing_kernels_are_not_known() -> None:
    off = {"reports_kernels": False, "in_flight": (), "parts": inside(), "last": last(39.9)}
    found = verdict_of(job(2, r0=off, r1=off))
    assert found.verdict == "unknown"
    assert not found.hung


def test_of_killed_ranks_the_first_that_waited_tells_the_cause() -> None:
    """Rank 1 was killed half a second after rank 0, so it waited longer; but it began later."""
    snapshots = [
        snapshot(0, rank_state(0, 2, 21, (operation(21, 40.0),))),
        snapshot(1, rank_state(0, 2, 22, (operation(22, 40.4),), id=9, name="tp", global_rank=1), at_ns=NOW_NS + S // 2),
        snapshot(2, rank_state(1, 2, 20, global_rank=2), rank_state(1, 2, 21, id=9, name="tp", number=1, global_rank=2)),
    ]  # fmt: skip
    dead = [replace(one, life=DEAD, how="its process is gone") for one in snapshots]
    first, second = judge(dead).verdicts
    assert (first.name, first.culprits, first.because_of) == ("dp", (2,), "")
    assert (second.name, second.culprits, second.because_of) == ("tp", (2,), "dp")
    first, _ = judge(snapshots).verdicts  # while they live, clocks of hosts do not count
    assert first.name == "tp"


def test_what_follows_from_what() -> None:
    """Rank 2 never called tp's; so rank 3 waits in it, and dp waits for rank 3."""
    tp = {"name": "tp", "id": 9, "number": 1}
    snapshots = [
        snapshot(0, rank_state(0, 2, in_flight=(operation(100, 39),), id=5, name="dp0")),
        snapshot(1, rank_state(1, 2, id=8, name="dp1"), rank_state(0, 2, **tp, in_flight=())),
        snapshot(2, rank_state(0, 2, id=8, name="dp1"), rank_state(1, 2, calls=49, in_flight=(), **tp)),
        snapshot(3, rank_state(1, 2, calls=99, id=5, name="dp0"), rank_state(0, 2, calls=50, in_flight=(operation(50),), **tp)),
    ]  # fmt: skip
    snapshots[1] = snapshot(1, rank_state(1, 2, id=8, name="dp1"))
    snapshots = [
        replace(p, rank_states=tuple(replace(s, global_rank=p.global_rank) for s in p.rank_states))
        for p in snapshots
    ]
    first, second = [v for v in judge(snapshots).verdicts if v.hung]
    assert (first.name, first.culprits, first.because_of) == ("tp", (2,), "")
    assert (second.name, second.culprits, second.because_of) == ("dp0", (3,), "tp")
    assert second.activities[0].communicator == "tp"


def test_who_waits_for_those_who_hang_is_told_so_at_once() -> None:
    """Rank 2 is dead, rank 1 waits for it in tp, and rank 0 for rank 1 in dp, not yet for long."""
    tp = {"name": "tp", "id": 9, "number": 1}
    snapshots = [
        snapshot(0, rank_state(0, 2, in_flight=(operation(100, 3),), id=5, name="dp0")),
        snapshot(
            1,
            rank_state(1, 2, calls=99, id=5, name="dp0"),
            rank_state(0, 2, 50, (operation(50, 4),), **tp),
        ),
        snapshot(2, rank_state(1, 2, 49, (), **tp)),
    ]
    snapshots = [
        replace(p, rank_states=tuple(replace(s, global_rank=p.global_rank) for s in p.rank_states))
        for p in snapshots
    ]
    snapshots[2] = replace(snapshots[2], life=DEAD, how="its process is gone")
    status = judge(snapshots)
    first, second = status.verdicts
    assert (first.name, first.verdict, first.culprits) == ("tp", "dead", (2,))
    assert (second.verdict, second.culprits, second.because_of) == ("waiting", (1,), "tp")
    assert len(hang.find(status, "c")) == 1
    (_, _, *details, last_line) = lines(status)
    assert last_line.startswith("waiting dp0 ")
    assert last_line.endswith("(follows from tp)")
    assert len(details) == 2, "of what does not follow from another one"


def test_a_receive_without_a_send() -> None:
    def pair(peer: int, function: str) -> dict[str, Any]:
        return {"in_flight": (operation(100, function=function, peer=peer),), "last": last(function=function)}  # fmt: skip

    found = verdict_of(job(4, r0=pair(1, "Recv"), r1={"in_flight": ()}, r2={"in_flight": ()}, r3={"in_flight": ()}))  # fmt: skip
    assert (found.verdict, found.culprits, found.waiting) == ("never_called", (1,), (0,))
    found = verdict_of(job(4, r0=pair(1, "Recv"), r1=pair(0, "Send"), r2={"in_flight": ()}, r3={"in_flight": ()}))  # fmt: skip
    assert (found.verdict, found.waiting) == ("stalled", (0, 1))


def test_replays_are_counted_by_works() -> None:
    replayed = {f"r{rank}": {"calls": 2, "works": 300, "in_flight": (operation(300, replay=True),)} for rank in range(3)}  # fmt: skip
    found = verdict_of(job(4, r3={"calls": 2, "works": 299, "in_flight": ()}, **replayed))
    assert (found.verdict, found.culprits, found.order) == ("never_called", (3,), 300)


def test_kernels_that_nobody_reports_are_no_hang() -> None:
    """All operations so far seem to be in flight, because no kernel is ever heard of."""
    flying = tuple(operation(order, started=0) for order in range(1, 101))
    silent = {
        f"r{rank}": {"in_flight": flying, "done_ns": None, "finished": 0} for rank in range(4)
    }
    found = verdict_of(job(4, **silent))
    assert (found.verdict, found.hung) == ("unknown", False)
    assert "reports no kernels" in found.reason


def test_more_in_flight_than_a_page_has_room_for() -> None:
    """Ranks 0 to 2 have called 900 and stand in the hundredth; their pages show some."""
    shown = tuple(operation(order) for order in range(300, 500))
    ahead = {"calls": 900, "works": 900, "in_flight": shown, "finished": 99}
    other = ahead | {"in_flight": (operation(200, function="AllGather"), *shown)}
    found = verdict_of(job(4, r0=ahead, r1=ahead, r2=other, r3={"calls": 99, "in_flight": ()}))
    assert (found.verdict, found.culprits, found.order) == ("never_called", (3,), 100)


def test_who_went_on_does_not_wait_for_a_communicator() -> None:
    """The world is made and nobody calls on it; a rank without files is not missed there."""
    made = {"calls": 0, "in_flight": (), "last": None, "opened_ns": 90 * S}
    tp = {"name": "tp", "id": 9, "number": 1, "opened_ns": 80 * S}
    snapshots = [
        replace(snapshot(rank, rank_state(rank, 3, **made), rank_state(rank, 2, **tp, in_flight=(operation(100, 0.1),))), world=3)
        for rank in range(2)
    ]  # fmt: skip
    assert {one.verdict for one in judge(snapshots).verdicts} == {"ok"}


def test_a_group_like_others_tells_who_is_missing() -> None:
    """Of a pair one rank is on record; the other pair of that name says how far apart they are."""
    made = {"calls": 0, "in_flight": (), "opened_ns": 40 * S, "name": "tp", "number": 1}
    used = {"last": last(50), "in_flight": (), "opened_ns": 60 * S}
    snapshots = [
        snapshot(
            rank, rank_state(rank, 4, **used), rank_state(rank % 2, 2, **made, id=20 + rank // 2)
        )
        for rank in range(3)
    ]
    snapshots.append(snapshot(3, rank_state(3, 4, **used)))
    snapshots = [
        replace(p, rank_states=tuple(replace(s, global_rank=p.global_rank) for s in p.rank_states))
        for p in snapshots
    ]
    for life in ("alive", DEAD):
        found = judge([replace(p, life=life) for p in snapshots]).verdicts[0]
        assert (found.verdict, found.culprits, found.waiting) == ("never_joined", (3,), (2,))


def test_nothing_was_called_for_long() -> None:
    idle = {f"r{rank}": {"in_flight": (), "last": last(600)} for rank in range(4)}
    (first, *_) = lines(judge(job(4, **idle)))
    assert first == "ok: 4 processes, all alive, 1 communicator, no NCCL call for 600 s"


def test_what_to_do_with_a_process_that_lives_and_with_one_that_does_not() -> None:
    snapshots = job(4, r2={"calls": 99, "in_flight": ()})
    (alive,) = hang.find(judge(snapshots), "c")
    assert "`py-spy dump --pid 1002` on node0" in alive.advice
    (dead,) = hang.find(judge([replace(p, life=DEAD) for p in snapshots]), "c")
    assert "--pid" not in dead.advice


def test_stacks_of_many_are_asked_for_by_host() -> None:
    """A few commands, not hundreds."""
    idle = {"calls": 99, "in_flight": ()}
    (one,) = hang.find(judge(job(32, r12=idle, r13=idle, r17=idle)), "c")
    assert one.advice.endswith(
        "their stacks: `for p in 1012 1013; do py-spy dump --pid $p; done` on node1, "
        "`py-spy dump --pid 1017` on node2"
    )
    snapshots = job(96, **{f"r{rank}": idle for rank in range(1, 90)})
    (many,) = hang.find(judge(snapshots), "c")
    assert many.advice.count("py-spy") == 3
    assert many.advice.endswith("on node2; 66 more processes: `ncclscope status --json`")
    assert len(many.advice) < 500
    (_, line, *_) = lines(judge(snapshots))
    assert "ranks 1-89 (on 12 hosts: node0, node1, node2, node3 and 8 more) never called" in line
    assert "    and 85 ranks more to blame: --json has all" in lines(judge(snapshots))


def test_many_communicators_in_few_lines() -> None:
    """A job of 64 pairs, each of which waits for one of its own."""
    snapshots = []
    for rank in range(128):
        odd = {"calls": 99} if rank % 2 else {"in_flight": (operation(100),)}
        snapshots.append(
            snapshot(rank, rank_state(rank % 2, 2, id=100 + rank // 2, global_rank=rank, **odd))
        )
    text = list(lines(judge(snapshots)))
    assert sum(line.startswith("HANG") for line in text) == 16
    assert text[-1] == "and 48 communicators more that are not fine: --json has all"


def test_many_ranks_in_few_words() -> None:
    assert ranks_in_words((3,)) == "rank 3"
    assert ranks_in_words((0, 1)) == "ranks 0, 1"
    assert ranks_in_words(tuple(range(512))) == "ranks 0-511"
    assert ranks_in_words((*range(12), 14, *range(16, 512))) == "ranks 0-11, 14, 16-511"
    assert ranks_in_words(tuple(range(0, 512, 2))).endswith("12, 14 and 248 more")


def test_ranks_of_one_process_have_gpus_of_their_own() -> None:
    comm_state = [
        rank_state(rank, 3, **({"calls": 99} if rank == 2 else {"in_flight": (operation(100),)}),
             gpu_bus_id=f"0000:1{rank}:00.0")
        for rank in range(3)
    ]  # fmt: skip
    (line,) = [text for text in lines(judge([snapshot(0, *comm_state)])) if text.startswith("HANG")]
    assert "rank 2 (node0 GPU 0000:12:00.0; pid 1000) never called it" in line


def test_copy_engines_and_sends_are_not_taken_for_lost_collectives() -> None:
    def tally(level: int, function: int, calls: int) -> CallCount:
        key = CallKey(level, 0, function, 1, 0, 0, 0, 0)
        return CallCount(key, calls, calls, np.zeros(1, dtypes.OURS.times)[0])

    made = rank_state(0, 2, 11, (operation(11),))
    tallies = [
        tally(layout.LEVEL_CALL, 1, 31), tally(layout.LEVEL_CALL, 2, 5),
        tally(layout.LEVEL_WORK, 1, 11), tally(layout.LEVEL_COPY_ENGINE, 1, 20),
    ]  # fmt: skip
    process = SimpleNamespace(call_counts=tallies, strings={1: "AllReduce", 2: "Send"})
    found = with_unrecorded_calls(made, process)  # type: ignore[arg-type]
    assert (found.calls, found.works, found.finished) == (36, 11, 10)
    assert (found.collectives, found.in_flight) == (31, made.in_flight)


def test_a_first_page_before_any_call_is_not_all_that_is_known() -> None:
    """A process died right after its first heartbeat: its memory tells more than that page."""
    communicators = np.zeros(1, [("t_last_call", "u8"), ("t_last_done", "u8")])
    header = SimpleNamespace(start_ticks=5_000_000 * S)
    page = SimpleNamespace(ticks=header.start_ticks + S // 100, communicators=communicators)
    assert was_busy(header, page, 1.0)  # type: ignore[arg-type]
    page.ticks += 60 * S
    assert not was_busy(header, page, 1.0)  # type: ignore[arg-type]


def test_the_fate_of_a_process_of_another_host(tmp_path: Path) -> None:
    """Its live page alone tells: while it is written, and when it is not any more."""
    write_hang(tmp_path, 2, frozenset({1}), time.time_ns())
    folder = process_folders(tmp_path)[0]
    assert life_in(folder) == ALIVE
    write_hang(tmp_path / "old", 2, frozenset({1}), time.time_ns() - 60 * S)
    folder = process_folders(tmp_path / "old")[0]
    assert life_in(folder) == UNHEARD
    (folder / "arena").write_bytes((folder / "meta").read_bytes())
    assert life_in(folder) == DEAD
    shutil.rmtree(folder)
    assert life_in(folder) == ""


def exited(
    snapshots: list[ProcessSnapshot], in_flight_s: float, first: tuple[int, ...] = ()
) -> list[ProcessSnapshot]:
    """All of them exited by themselves, those of `first` before the others."""
    return [
        replace(
            p,
            life=ENDED,
            how="it exited by itself",
            at_ns=p.at_ns
            - (S if p.global_rank in first else -S * (not p.rank_states[0].in_flight)),
        )
        for p in killed(snapshots, in_flight_s)
    ]


def test_a_hang_that_ends_in_timeouts_is_a_hang() -> None:
    snapshots = exited(job(4, r2={"calls": 99, "in_flight": ()}), 5.1)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("never_called", True, (2,))
    assert found.waiting == (0, 1, 3)
    heading, line, *_ = lines(judge(snapshots))
    assert heading == "hung: 4 processes, all ended by themselves, 1 communicator"
    assert line.endswith("never called it; 3 ranks waited 5.1 s until they exited")
    (finding,) = hang.find(judge(snapshots), "c")
    assert finding.severity == "critical"
    assert "its process ended without it" in finding.advice
    assert "outside NCCL" not in finding.advice


def test_ranks_that_gave_up_wait_no_longer() -> None:
    """They have exited after 5 s; rank 2, for which they waited, still runs."""
    snapshots = exited(job(4, r2={"calls": 99, "in_flight": ()}), 5.1)
    snapshots[2] = replace(snapshots[2], life=ALIVE, how="its process runs")
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("never_called", True, (2,))
    (heading, *_) = lines(judge(snapshots))
    assert heading.startswith("hung: 4 processes, 1 alive")
    short = exited(job(4), 0.0005)
    short[2] = replace(short[2], life=ALIVE, how="its process runs")
    assert not judge(short).hung, "it exits in a moment, too"


def test_a_mismatch_that_ends_in_timeouts_is_a_mismatch() -> None:
    wrong = {"in_flight": (operation(100, count=7),), "last": last(count=7)}
    found = verdict_of(exited(job(4, r2=wrong), 5))
    assert (found.verdict, found.hung, found.culprits) == ("mismatch", True, (2,))


def test_an_exception_of_one_rank_and_timeouts_of_the_others() -> None:
    snapshots = exited(job(4, r2={"calls": 99, "in_flight": ()}), 3, first=(2,))
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("dead", True, (2,))
    (_, line, *_) = lines(judge(snapshots))
    assert (
        "rank 2 (node0 GPU 2; pid 1002) exited by itself without calling it; 3 ranks waited" in line
    )


def test_what_was_in_flight_for_a_moment_at_exit_is_fine() -> None:
    assert verdict_of(exited(job(4), 0.0005)).verdict == "ok"
    status = judge(exited(job(4), 0.0005))
    assert not status.hung


def test_a_stall_that_ends_in_timeouts_is_a_hang() -> None:
    found = verdict_of(exited(job(4), 30))
    assert (found.verdict, found.hung) == ("stalled", True)
    # One of two channels was never reported: what began has ended.
    lost = {f"r{rank}": {"in_flight": (operation(100, started=1, stopped=1),)} for rank in range(4)}
    assert verdict_of(exited(job(4, **lost), 30)).verdict == "ok"


def test_a_communicator_that_was_aborted_after_a_timeout() -> None:
    """Live pages forget what was in flight on it: the numbers of calls stay."""
    aborted = {"in_flight": (), "closed": True, "closed_ns": S, "last": last(6)}
    others = {f"r{rank}": aborted for rank in (0, 1, 3)}
    short = {"calls": 99, "in_flight": (), "last": last(6)}
    snapshots = exited(job(4, r2=short, **others), 0)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("never_called", True, (2,))
    assert (found.order, found.waited_ns) == (100, 5 * S)
    # Who went on with another communicator recovered.
    new = rank_state(0, 4, 5, id=11, number=1, last=last(0.5))
    snapshots = [replace(p, rank_states=(*p.rank_states, new)) for p in snapshots]
    assert not judge(snapshots).hung
    # A communicator that all destroyed after equal numbers of calls is fine.
    assert verdict_of(exited(job(4, r2=aborted, **others), 0)).verdict == "ok"


def test_communicators_that_wait_for_each_other_are_a_circle() -> None:
    inside_21 = {"calls": 21, "in_flight": (operation(21),)}
    snapshots = [
        snapshot(0, rank_state(0, 2, id=5, name="A", **inside_21), rank_state(0, 2, 20, id=6, name="B", number=1)),
        snapshot(1, rank_state(1, 2, 20, id=5, name="A"), rank_state(1, 2, id=6, name="B", number=1, **inside_21)),
    ]  # fmt: skip
    status = judge(snapshots)
    assert [(v.verdict, v.culprits, v.because_of) for v in status.verdicts] == [("circle", (0, 1), "")] * 2  # fmt: skip
    assert status.verdicts[0].circle == ("A", "B")
    text = " ".join(lines(status))
    assert "A waits for rank 1, which is in B; B waits for rank 0, which is in A" in text
    (finding,) = hang.find(status, "c")
    assert (finding.kind, finding.ranks, finding.communicators) == ("circle", (0, 1), ("A", "B"))
    assert "outside NCCL" not in finding.advice


def test_what_waits_for_a_circle_follows_from_it() -> None:
    inside_21 = {"calls": 21, "in_flight": (operation(21),)}
    world = {"id": 4, "name": "world", "number": 2}
    waits = {"calls": 1, "in_flight": (operation(1),)}
    snapshots = [
        snapshot(0, rank_state(0, 2, id=5, name="A", **inside_21), rank_state(0, 2, 20, id=6, name="B", number=1), rank_state(0, 3, 0, **world)),
        snapshot(1, rank_state(1, 2, 20, id=5, name="A"), rank_state(1, 2, id=6, name="B", number=1, **inside_21), rank_state(1, 3, 0, **world)),
        snapshot(2, rank_state(2, 3, **world, **waits)),
    ]  # fmt: skip
    last_verdict = judge(snapshots).verdicts[-1]
    assert (last_verdict.name, last_verdict.because_of) == ("world", "A")


def test_a_circle_with_a_way_out_is_none() -> None:
    """Rank 5 has not come to A, either, and is outside NCCL: with it the circle would go on."""
    inside_21 = {"calls": 21, "in_flight": (operation(21),)}
    snapshots = [
        snapshot(0, rank_state(0, 3, id=5, name="A", **inside_21), rank_state(0, 2, 20, id=6, name="B", number=1)),
        snapshot(1, rank_state(1, 3, 20, id=5, name="A"), rank_state(1, 2, id=6, name="B", number=1, **inside_21)),
        snapshot(2, rank_state(2, 3, 20, id=5, name="A")),
    ]  # fmt: skip
    first, second = judge(snapshots).verdicts
    assert {first.verdict, second.verdict} == {"never_called"}
    assert [v.because_of for v in (first, second) if v.name == "B"] == ["A"]


def test_a_call_too_many_names_who_made_it() -> None:
    """Ranks 0 and 2 are through with dp, rank 1 waits for rank 3 in tp."""
    through = {"calls": 30, "in_flight": (), "closed": True}
    extra = {"calls": 31, "in_flight": (operation(31),)}
    snapshots = [
        snapshot(0, rank_state(0, 4, **through)),
        snapshot(1, rank_state(1, 4, 30), rank_state(0, 2, 1, (operation(1),), id=9, name="tp", number=1, global_rank=1)),
        snapshot(2, rank_state(2, 4, **through)),
        snapshot(3, rank_state(3, 4, **extra), rank_state(1, 2, 0, id=9, name="tp", number=1, global_rank=3)),
    ]  # fmt: skip
    for number in (0, 2):
        snapshots[number] = replace(snapshots[number], life=ENDED, how="it exited by itself")
    status = judge(snapshots)
    first, second = status.verdicts
    assert (first.verdict, first.culprits, first.order) == ("extra_call", (3,), 31)
    assert (second.name, second.because_of) == ("tp", "dp")
    assert "ranks 0, 2 destroyed the communicator after #30, rank 1 waits for rank 3 in tp" in first.reason  # fmt: skip
    (finding,) = hang.find(status, "c")
    assert (finding.kind, finding.ranks) == ("extra_call", (3,))
    assert "outside NCCL" not in finding.advice
    # Where most ranks have called it, those that left are to blame.
    snapshots = job(4, r2={"calls": 99, "in_flight": (), "closed": True})
    snapshots[2] = replace(snapshots[2], life=ENDED, how="it exited by itself")
    assert verdict_of(snapshots).culprits == (2,)


def pair_in_flight(peer: int, function: str) -> dict[str, Any]:
    return {
        "in_flight": (operation(100, function=function, peer=peer),),
        "last": last(function=function),
    }


def test_a_chain_of_sends_ends_at_the_rank_that_answers_nobody() -> None:
    snapshots = job(
        4, r0=pair_in_flight(1, "Send"), r1=pair_in_flight(2, "Send"), r2={"in_flight": ()},
        r3=pair_in_flight(2, "Recv"),
    )  # fmt: skip
    found = verdict_of(snapshots)
    assert (found.verdict, found.culprits, found.waiting) == ("never_called", (2,), (0, 1, 3))
    (_, line, _, *details) = lines(judge(snapshots))
    assert "dp Send to rank 2 on rank 1 (1 MiB float32): rank 2" in line
    assert "never called the Recv that answers it" in line
    assert details[0] == "    rank 0 is in Send to rank 1 on dp for 40 s"


def test_ranks_that_receive_from_each_other_first_are_a_circle() -> None:
    idle = {"in_flight": ()}
    snapshots = job(4, r0=pair_in_flight(1, "Recv"), r1=pair_in_flight(0, "Recv"), r2=idle, r3=idle)
    found = verdict_of(snapshots)
    assert (found.verdict, found.hung, found.culprits) == ("circle", True, (0, 1))
    assert found.reason == "rank 0 waits for rank 1; rank 1 waits for rank 0"


def test_who_waits_in_a_send_is_not_blamed_for_a_collective() -> None:
    """Ranks 0 and 3 are in an AllReduce; rank 1 sends to rank 2, which is outside NCCL."""
    sends = pair_in_flight(2, "Send") | {"calls": 100, "collectives": 99}
    snapshots = job(4, r1=sends, r2={"calls": 99, "in_flight": ()})
    assert verdict_of(snapshots).culprits == (2,)


def test_a_rank_that_died_early_is_not_said_to_have_called_nothing() -> None:
    snapshots = job(4, r2={"calls": 0, "in_flight": (), "last": None})
    snapshots[2] = replace(snapshots[2], life=DEAD, how="its process is gone")
    text = " ".join(lines(judge(snapshots)))
    assert "rank 2 has no call on record" in text
    assert "called nothing" not in text
