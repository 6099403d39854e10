"""`ncclscope status`: a real job that hung, played through the plugin, at each of its ends."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclscope.capture.salvage import arena_dir
from ncclscope.simulation.scenario import Scenario
from tests.support.player import (
    ncclscope,
    play_job,
    read_transcript,
    recording,
    start_player,
    transcript_files,
    write_transcript,
)
from tests.support.waiting import eventually, wait_for_heartbeats
from tests.support.writer.live import write_hang
from tests.support.writer.scenario import write_scenario

HANG = "2.28.9-v5-3ranks-hang"
MODES = ("full", "trace", "profile")


def status(capture: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer."""
    printed = ncclscope("status", "--json", capture, *options)
    assert printed.returncode in (0, 4), printed.stderr
    return printed.returncode, json.loads(printed.stdout)


def the_one(answer: dict[str, Any]) -> dict[str, Any]:
    (communicator,) = answer["communicators"]
    return dict(communicator)


def when(capture: Path, *verdicts: str) -> tuple[int, dict[str, Any]]:
    """The first answer with one of these verdicts."""

    def answered() -> tuple[int, dict[str, Any]] | None:
        if len(list(capture.glob("*/live"))) < 3:
            return None
        code, answer = status(capture)
        return (code, answer) if the_one(answer)["verdict"] in verdicts else None

    answer = eventually(answered, 90)
    assert answer is not None
    return answer


def check_hang(capture: Path, waiting: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """Rank 2 never called the sixth AllReduce, ranks 0 and 1 wait in it."""
    code, answer = status(capture)
    found = the_one(answer)
    assert (code, answer["hung"], found["verdict"]) == (4, True, "never_called"), answer
    assert (found["function"], found["call_order"], found["size_bytes"]) == ("AllReduce", 6, 262144)
    assert found["culprits"] == [2]
    assert found["waiting"] == list(waiting)
    return found


def check_steps(found: dict[str, Any]) -> None:
    """Rank 0 waits for what rank 2 never sent, rank 1 for what rank 0 therefore cannot."""
    steps = {one["rank"]: one["proxy_step"] for one in found["doing"] if one["proxy_step"]}
    assert set(steps) <= {0, 1}
    for rank, step in steps.items():
        assert (step["direction"], step["state"]) == ("recv", "RecvWait")
        assert step["peer"] == {0: 2, 1: 0}[rank]
    assert steps


class Job:
    """The hung job in one mode, its processes alive until they are killed."""

    def __init__(self, directory: Path, mode: str) -> None:
        self.capture = directory / mode
        self.players: list[subprocess.Popen[str]] = []
        for rank, file in enumerate(transcript_files(HANG)):
            lines = read_transcript(file)
            last = lines[-1]
            lines.append({"t": last["t"] + 10**11, "tid": last["tid"], "cb": "stop", "h": 1})
            path = write_transcript(directory / f"{mode}.{rank}.jsonl", lines)
            env = recording(
                self.capture, mode, RANK=str(rank), WORLD_SIZE="3", LOCAL_RANK=str(rank)
            )
            self.players.append(start_player("play", path, "--realtime", env=env))

    def kill(self, *ranks: int) -> None:
        for rank in ranks or range(len(self.players)):
            self.players[rank].send_signal(signal.SIGKILL)
            self.players[rank].communicate()

    def folder(self, rank: int) -> Path:
        (found,) = self.capture.glob(f"*.{self.players[rank].pid}.*")
        return found


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """One in each mode. Each test below goes a step further with them."""
    directory = tmp_path_factory.mktemp("hang")
    (directory / "dying").mkdir()
    started = {mode: Job(directory, mode) for mode in MODES}
    started["one dies"] = Job(directory / "dying", "full")
    yield started
    for job in started.values():
        job.kill()


def test_a_job_that_hangs_until_it_is_killed(jobs: dict[str, Job], tmp_path: Path) -> None:
    # Early: it waits, and nobody calls that a hang.
    code, answer = when(jobs["full"].capture, "waiting")
    assert (code, answer["hung"]) == (0, False)
    assert the_one(answer)["waited_ns"] < 15e9
    # One rank is dead: said at once.
    when(jobs["one dies"].capture, "waiting", "never_called")
    jobs["one dies"].kill(2)
    code, answer = status(jobs["one dies"].capture)
    found = the_one(answer)
    assert (code, found["verdict"], found["culprits"], found["waiting"]) == (4, "dead", [2], [0, 1])
    assert "gone" in found["reason"]
    for mode in MODES:  # live, in every mode
        when(jobs[mode].capture, "never_called")
        found = check_hang(jobs[mode].capture)
        assert found["waited_ns"] > 15e9
        if mode == "full":
            check_steps(found)
    text = ncclscope("status", jobs["full"].capture)
    assert text.returncode == 4
    assert "HANG world AllReduce #6 (256 KiB float32): rank 2 (" in text.stdout
    assert "GPU 2" in text.stdout
    assert "rank 2 last called AllReduce #5 on world" in text.stdout
    # Stopped by a debugger, say: it lives, and is named as it was.
    os.kill(jobs["trace"].players[2].pid, signal.SIGSTOP)
    found = check_hang(jobs["trace"].capture)
    assert "stopped" in found["doing"][0]["seen_by"]
    os.kill(jobs["trace"].players[2].pid, signal.SIGCONT)
    page = jobs["trace"].folder(2) / "live"
    wait_for_heartbeats(page.parent, 1)
    for mode in MODES:
        jobs[mode].kill()
        found = check_hang(jobs[mode].capture)
        assert found["waited_ns"] > 15e9
        assert not any(arena_dir().glob(f"*.{jobs[mode].players[0].pid}.*")), "salvaged"
        if mode == "full":
            check_steps(found)
    # Without what was in shared memory: the directory is enough.
    for mode in MODES:
        for rank in range(3):
            (jobs[mode].folder(rank) / "arena").unlink()
        check_hang(jobs[mode].capture)
    # Without the files of one rank, and with nothing but live pages and metadata.
    gone = tmp_path / "gone"
    shutil.copytree(jobs["full"].capture, gone)
    shutil.rmtree(gone / jobs["full"].folder(1).name)
    check_steps(check_hang(gone, waiting=(0,)))
    shutil.rmtree(gone)
    shutil.copytree(jobs["full"].capture, gone)
    shutil.rmtree(gone / jobs["full"].folder(2).name)
    found = check_hang(gone)
    assert "left no files" in found["reason"]
    for log in jobs["full"].capture.glob("*/log.*"):
        log.unlink()
    check_steps(check_hang(jobs["full"].capture))


def test_killed_at_once(tmp_path: Path) -> None:
    """No heartbeat was ever written: the shared memory alone tells. After a wait of milliseconds
    rank 2 may as well have died first.
    """
    assert play_job(transcript_files(HANG), tmp_path / "c", "--end", "kill") == [-9] * 3
    found = check_hang(tmp_path / "c")
    check_steps(found)
    assert "had not called it and may have died first" in found["line"]
    assert found["waited_ns"] < 2e9


@pytest.mark.parametrize("name", ["2.23.4-v1-2ranks", "2.28.9-v5-4ranks", "2.32.3-v7-2ranks-one-host"])  # fmt: skip
@pytest.mark.parametrize("end", ["finalize", "kill"])
def test_jobs_that_came_to_their_end(name: str, end: str, tmp_path: Path) -> None:
    play_job(transcript_files(name), tmp_path / "c", "--end", end)
    code, answer = status(tmp_path / "c")
    assert (code, answer["hung"]) == (0, False)
    assert {one["verdict"] for one in answer["communicators"]} == {"ok"}
    assert answer["processes"]["ended"] == (answer["processes"]["found"] if end != "kill" else 0)


def test_nothing_there(tmp_path: Path) -> None:
    printed = ncclscope("status", tmp_path / "nowhere")
    assert printed.returncode == 2
    assert "no such directory" in printed.stderr
    (tmp_path / "empty").mkdir()
    printed = ncclscope("status", tmp_path / "empty")
    assert printed.returncode == 2
    assert "no process recorded anything there" in printed.stderr


def test_a_job_that_never_communicated(tmp_path: Path) -> None:
    """It made a communicator, and ended."""
    write_scenario(tmp_path / "c", Scenario(ranks=2, steps=0))
    printed = ncclscope("status", tmp_path / "c")
    assert printed.returncode == 0
    assert printed.stdout.startswith(
        "ok: 2 processes, all ended by themselves, 1 communicator, no NCCL call on record\n"
    )
    printed = ncclscope("diagnose", "--fail-on", "info", tmp_path / "c")
    assert printed.returncode == 0
    assert "nothing to diagnose but hangs and the record itself: no NCCL call" in printed.stdout


def test_a_capture_half_written(tmp_path: Path) -> None:
    """A running job's files, copied while they grow: cut anywhere."""
    write_scenario(tmp_path / "c", Scenario(ranks=2, steps=20))
    for log in (tmp_path / "c").glob("*/log.*"):
        os.truncate(log, log.stat().st_size * 2 // 3 + 13)
    assert ncclscope("status", tmp_path / "c").returncode == 0
    printed = ncclscope("diagnose", tmp_path / "c")
    assert printed.returncode == 0
    assert "cut off at the end" in " ".join(printed.stdout.split())
    for meta in (tmp_path / "c").glob("*/meta"):
        os.truncate(meta, 100)
    printed = ncclscope("status", tmp_path / "c")
    assert printed.returncode == 0
    assert printed.stdout.startswith("unknown: 2 processes, not heard of any more (of another host")
    assert "no communicator on record: nothing can be said" in printed.stdout
    assert ncclscope("diagnose", tmp_path / "c").returncode == 0


def test_watching_ends_with_the_job(tmp_path: Path) -> None:
    play_job(transcript_files(HANG), tmp_path / "c", "--end", "kill")
    printed = ncclscope("status", "--watch", "0.2", "--json", tmp_path / "c")
    assert printed.returncode == 4
    assert len(printed.stdout.splitlines()) == 1


def test_a_thousand_ranks(tmp_path: Path) -> None:
    """From live pages alone, as another host sees them. The bar of 2 s is in the benchmarks."""
    write_hang(tmp_path, 1024, frozenset({12, 13}), time.time_ns())
    _, answer = status(tmp_path)
    found = the_one(answer)
    assert (found["verdict"], found["culprits"]) == ("never_called", [12, 13])
    assert len(found["waiting"]) == 1022


def test_the_word_behind_watch_may_be_the_capture(tmp_path: Path) -> None:
    missing = ncclscope("status", "--watch", tmp_path / "nothing")
    assert missing.returncode == 2
    assert "nothing" in missing.stderr
    assert "seconds" not in missing.stderr
    twice = ncclscope("status", "--watch", "often", tmp_path)
    assert twice.returncode == 2
    assert "--watch often is no number of seconds" in twice.stderr


def test_who_names_no_capture_hears_of_all_that_run(tmp_path: Path) -> None:
    """The newest is fine; another one hangs, and one has ended long ago."""
    write_hang(tmp_path / "hung", 4, frozenset({2}), time.time_ns())
    write_hang(tmp_path / "old", 4, frozenset({2}), time.time_ns() - 600 * 10**9)
    write_scenario(tmp_path / "new", Scenario(ranks=2, steps=20))
    printed = ncclscope("status", cwd=tmp_path)
    assert printed.returncode == 4, printed.stdout
    first, *others = printed.stdout.splitlines()
    assert first.startswith("ok: 2 processes, all ended by themselves")
    assert first.endswith(" (capture new)")
    (place,) = (n for n, line in enumerate(others) if line.startswith("also running, "))
    assert others[place].startswith("also running, capture hung: hung: 4 processes, all alive")
    assert others[place + 1].startswith("    HANG world AllReduce")
    assert "old" not in printed.stdout
    answer = json.loads(ncclscope("status", "--json", cwd=tmp_path).stdout)
    assert not answer["hung"]
    assert [(one["capture"].endswith("/hung"), one["hung"]) for one in answer["others"]] == [(True, True)]  # fmt: skip
    # Who names one hears of that one.
    named = ncclscope("status", "new", cwd=tmp_path)
    assert named.returncode == 0
    assert "hung" not in named.stdout
