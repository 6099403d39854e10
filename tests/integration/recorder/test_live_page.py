"""What the capture directory tells while a process runs, hangs or has been killed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ncclscope.capture.control import request
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.live_page import LivePage, read_live_page
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.capture.salvage import arena_dir
from tests.support.callback_script import Script
from tests.support.player import dump, folder_of, player, recording, start_player, write_transcript
from tests.support.waiting import eventually, wait_for_heartbeats


def hanging_job(version: int) -> Script:
    """Five AllReduces that end, and one whose kernel starts on one of two channels and never ends."""
    script = Script(version)
    script.init(rank=2)
    for number in range(6):
        call = 0
        if version >= 5:
            api = script.start("GroupApi", depth=1, graph=0)
            fields = {
                "func": "AllReduce",
                "dtype": "ncclFloat32",
                "root": 0,
                "stream": "0",
                "graph": 0,
            }
            call = script.start("CollApi", api, count=65536, **fields)
            script.stop(call)
            script.stop(api)
        group = script.start("Group")
        coll = script.start(
            "Coll", call or group, rank=2, seq=number, func="AllReduce", dtype="ncclFloat32", count=65536,
            root=0, nch=2, nwarps=9, algo="RING", proto="SIMPLE", send="1000", recv="2000",
            **({"group": group} if version >= 5 else {}),
        )  # fmt: skip
        script.stop(coll)
        script.stop(group)
        channels = 1 if number == 5 else 2
        for channel in range(channels):
            kernel = script.start(
                "KernelCh", coll, thread=1, ch=channel, ptimer=1000 * (number + 1)
            )
            if number < 5:
                script.state(kernel, 22, 1000 * (number + 1) + 500, thread=1)
                script.stop(kernel, thread=1)
    script.lines.append({"t": 60_000_000_000, "tid": 101, "cb": "stop", "h": 9999999})
    return script


def play_hanging(tmp_path: Path, mode: str, version: int = 6) -> subprocess.Popen[str]:
    """A process that sits in its sixth AllReduce until it is killed."""
    script = hanging_job(version)
    script.handles = 9999999
    path = write_transcript(tmp_path / "s.jsonl", script.lines)
    env = recording(tmp_path / "c", mode, RANK="2")
    return start_player("play", path, "--realtime", env=env)


def check_page(page: LivePage | None, mode: str) -> None:
    assert page is not None
    assert page.mode == mode
    assert not page.ended
    assert page.comms_open == 1
    (comm,) = page.communicators
    assert (comm["calls"], comm["works"], comm["done"]) == (6, 6, 5)
    (operation,) = page.operations
    assert (operation["channels"], operation["started"], operation["stopped"]) == (2, 1, 0)
    assert operation["count"] == 65536
    assert operation["order"] == 6


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mode", ["profile", "trace", "full"])
def test_the_live_page_tells_what_is_in_flight(mode: str, version: int, tmp_path: Path) -> None:
    with play_hanging(tmp_path, mode, version) as running:
        try:
            folder = folder_of(tmp_path / "c")
            eventually(lambda: (page := read_live_page(folder)) and len(page.open_events) > 0)
            first = read_live_page(folder)
            check_page(first, mode)
            assert first is not None
            eventually(lambda: (page := read_live_page(folder)) and page.serial > first.serial)
            ((_, _, slot),) = first.open_events
            assert slot["kind"] == 7, "the KernelCh that does not end"
        finally:
            running.kill()


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_killed_and_its_shared_memory_deleted(mode: str, tmp_path: Path) -> None:
    """At most the last two seconds are gone, and the live page still names the operation."""
    with play_hanging(tmp_path, mode) as running:
        folder = folder_of(tmp_path / "c")
        eventually(lambda: (page := read_live_page(folder)) and len(page.open_events) > 0)
        wait_for_heartbeats(folder, 2)
        running.send_signal(signal.SIGKILL)
    (arena_dir() / folder.name).unlink()
    check_page(read_live_page(folder), mode)
    process = open_process(folder)
    assert not process.ended
    assert sum(tally.calls for tally in process.call_counts) == 12
    if mode == "trace":
        assert sum(event["event"] == "Coll" for event in events_of(process)) == 6


def test_what_came_to_an_open_event_is_in_the_capture(tmp_path: Path) -> None:
    """A state that comes right after its event was written as it stood, of an event that never ends."""
    script = Script(6)
    script.init()
    begun = script.start("ProxyStep", step=1)
    for number in range(5):  # one of them meets the moment
        script.state(script.start("ProxyStep", step=2 + number), 8, 100 + number)
        script.lines[-1]["t"] = int((1.0 + 0.1 * number) * 1e9)
        script.lines[-2]["t"] = script.lines[1]["t"]
    script.lines[2:] = sorted(script.lines[2:], key=lambda line: line["t"])
    script.lines.append({"t": 60_000_000_000, "tid": 100, "cb": "stop", "h": begun})
    path = write_transcript(tmp_path / "script.jsonl", script.lines)
    with start_player("play", path, "--realtime", env=recording(tmp_path / "c")) as running:
        folder = folder_of(tmp_path / "c")
        eventually(lambda: _states(folder) == [0, 1, 1, 1, 1, 1])
        wait_for_heartbeats(folder, 2)
        running.send_signal(signal.SIGKILL)
    (arena_dir() / folder.name).unlink()
    assert _states(folder) == [0, 1, 1, 1, 1, 1]


def _states(folder: Path) -> list[int]:
    """How many states of each ProxyStep are on record."""
    steps = [e for e in events_of(open_process(folder)) if e["event"] == "ProxyStep"]
    return [len(step["states"]) for step in steps]


def newest_seq(process: Process) -> int:
    return max(e["fields"]["seqNumber"] for e in events_of(process) if e["event"] == "Coll")


def test_the_ring_keeps_the_newest(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_RING="4M")
    # Slow enough for a busy machine: the ring has room for a second of this.
    played = player("load", "--collectives", 300, "--rate", 130_000, env=env)
    assert " 0 starts refused" in played.stdout
    (process,) = open_capture(tmp_path / "c").processes
    assert newest_seq(process) == 299
    assert 2 << 20 < len(process.slots) * 64 <= 5 << 20
    rotated = process.counters["rotated_out", 0]
    assert rotated + len(process.slots) >= 300 * 310
    assert process.damage.bad_slots == 0
    assert sum(tally.calls for tally in process.call_counts) == 600, (
        "counts do not depend on the ring"
    )


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("log.*"))


def test_the_ring_is_copied_out_on_request(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_RING="4M")
    with start_player("load", "--collectives", 1 << 40, "--rate", 300_000, env=env) as running:
        try:
            folder = folder_of(tmp_path / "c")
            wait_for_heartbeats(folder, 2)
            assert not list(folder.glob("log.*")), "nothing is written before it is asked for"
            request(tmp_path / "c", "copy-out")
            eventually(lambda: _log_bytes(folder) > 1 << 20)
            wait_for_heartbeats(folder, 2)
            size = _log_bytes(folder)
            wait_for_heartbeats(folder, 2)
            assert _log_bytes(folder) == size, "nothing is written before it is asked for again"
            request(tmp_path / "c", "copy-out")
            eventually(lambda: _log_bytes(folder) > size + 10_000)
        finally:
            running.send_signal(signal.SIGKILL)
    process = open_capture(resolve_capture(str(tmp_path / "c"))).processes[0]
    numbers = [e["fields"]["seqNumber"] for e in events_of(process) if e["event"] == "Coll"]
    assert len(numbers) == len(set(numbers)), "copied out once each"
    assert process.damage.bad_slots == 0


def test_the_ring_survives_sigkill(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_RING="4M")
    load = ["load", "--collectives", 300, "--rate", 130_000, "--end", "kill"]
    assert player(*load, env=env).returncode == -9
    process = open_capture(resolve_capture(str(tmp_path / "c"))).processes[0]
    assert newest_seq(process) == 299
    assert len(process.slots) * 64 > 2 << 20


def test_requests_from_before_the_process_are_not_for_it(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    request(tmp_path / "c", "copy-out")
    env = recording(tmp_path / "c", NCCLSCOPE_RING="4M")
    with start_player("load", "--collectives", 1 << 40, "--rate", 100_000, env=env) as running:
        folder = folder_of(tmp_path / "c")
        wait_for_heartbeats(folder, 2)
        assert not list(folder.glob("log.*"))
        running.kill()


@pytest.mark.parametrize(
    "text", ["", "serial", "serial x\ncopy-out\n", "copy-out\n", "serial 5\n" + "x" * 9000]
)
def test_a_control_file_of_rubbish_is_harmless(text: str, tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_RING="4M")
    with start_player("load", "--collectives", 1 << 40, "--rate", 100_000, env=env) as running:
        folder = folder_of(tmp_path / "c")
        (tmp_path / "c" / "control").write_text(text)
        wait_for_heartbeats(folder, 2)
        assert not list(folder.glob("log.*"))
        assert running.poll() is None
        running.kill()


def test_the_next_process_brings_in_what_dead_ones_left(tmp_path: Path) -> None:
    """Without the command line: the plugin itself looks for arenas of the dead."""
    dead = recording(tmp_path / "dead")
    with start_player("load", "--collectives", 50, "--end", "kill", env=dead) as killed:
        killed.communicate()
    (left,) = arena_dir().glob(f"*.{killed.pid}.*")
    living = recording(tmp_path / "living")
    with start_player("load", "--collectives", 1 << 40, "--rate", 10_000, env=living) as running:
        eventually(lambda: not left.exists())
        other = arena_dir() / folder_of(tmp_path / "living").name
        assert other.exists(), "its own stays"
        running.kill()
    assert (tmp_path / "dead" / left.name / "arena").exists()
    assert sum(event["event"] == "Coll" for event in dump(tmp_path / "dead")) == 50


def test_living_processes_are_left_alone(tmp_path: Path) -> None:
    env = recording(tmp_path / "c")
    with start_player("load", "--collectives", 1 << 40, "--rate", 10_000, env=env) as running:
        folder = folder_of(tmp_path / "c")
        arena = arena_dir() / folder.name
        open_capture(resolve_capture(str(tmp_path / "c")))
        assert arena.exists()
        assert not (folder / "arena").exists()
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        open_capture(resolve_capture(str(tmp_path / "c")))
        assert not arena.exists()
        assert (folder / "arena").exists()
