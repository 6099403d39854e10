"""`ncclscope top` beside running simulated jobs, through textual's pilot."""

import asyncio
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from ncclscope.live.job_follower import JobFollower
from ncclscope.live.recent_operations import recent_operations
from ncclscope.live.top_screen import Top
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.player import ncclscope as command
from tests.support.simulated_jobs import running
from tests.support.top_screen import screen_text
from tests.support.waiting import eventually

JOB = Scenario(
    name="watched",
    ranks=4,
    steps=100_000,
    compute_ms=5,
    give_up_s=0,
    communicators=(Communicators("world"), Communicators("tp[red]", 2)),
    calls=(Call("world", "AllReduce", 1 << 20), Call("tp[red]", "AllGather", 1 << 18, "bfloat16")),
    late=(Late(2, 20.0),),
)
OTHER = Scenario(name="other", ranks=2, steps=100_000, compute_ms=5)


async def until(pilot: Pilot[None], ask: Callable[[str], object], seconds: float = 60) -> str:
    """The first screen that the question is true of."""
    assert isinstance(pilot.app, Top)
    end = time.monotonic() + seconds
    while True:
        await pilot.pause(0.2)
        text = screen_text(pilot.app)
        if ask(text) or time.monotonic() > end:
            assert ask(text), text
            assert all(len(line) <= 80 for line in text.splitlines())
            return text


def line_of(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "")


def test_a_job_from_its_start_to_a_death(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()

    async def watched() -> None:
        app = Top(JobFollower((str(captures),), all_hosts=True), 0.3)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda text: "no running job" in text)
            with running(JOB, captures / "c", "--mode", "trace"):
                # world: 4 ranks, and they wait for rank 2.
                text = await until(
                    pilot,
                    lambda text: (
                        line_of(text, "world").split()[8:9] == ["2"] and line_of(text, "tp[red]#2")
                    ),
                )
                assert "SIMULATION c: 4 of 4 processes alive" in text
                await pilot.press("enter")  # the one with most time on the GPU: world
                text = await until(pilot, lambda text: "world, intra-node" in text)
                alive = [line for line in text.splitlines() if " alive  " in line]
                assert len(alive) == 4
                await pilot.press("enter")
                text = await until(pilot, lambda text: "float32   RING" in text)
                assert "world, rank 0 on" in text
                await pilot.press("escape")
                with running(OTHER, captures / "d", "--mode", "profile"):
                    await until(pilot, lambda text: "d: 2 of 2 processes alive" in text)
                pid = int(alive[2].split()[3])
                launcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                os.kill(launcher, signal.SIGSTOP)  # it would kill the others at once
                os.kill(pid, signal.SIGKILL)
                text = await until(
                    pilot, lambda text: line_of(text, "c: HANG") and " dead " in text
                )
                said = " ".join(text.split())
                assert f"rank 2 (vm GPU 2; pid {pid}) is dead: its process is gone" in said.replace(
                    socket.gethostname(), "vm"
                )
                # All stay to be looked at, also when the launcher has killed the others.
                rows = [
                    line for line in text.splitlines() if " alive  " in line or " dead  " in line
                ]
                assert [" dead " in row for row in rows] == [False, False, True, False]
                os.kill(launcher, signal.SIGCONT)
                text = await until(pilot, lambda text: text.count(" dead  ") == 4)
                assert "c: 0 of 4 processes alive" in text

    asyncio.run(watched())


def test_once_and_a_real_terminal(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    with running(JOB, capture, "--mode", "profile"):
        eventually(lambda: len(list(capture.glob("*/tally"))) == 4)
        printed = command("top", capture, "--once")
        assert printed.returncode == 0, printed.stderr
        assert line_of(printed.stdout, "world").split()[1:3] == ["4", "1"]
        folder = next(path.parent for path in capture.glob("*/tally"))
        assert recent_operations(folder, 0, 10) == []  # profile keeps no operations
        for keys in (b"q", b"\x03", b"/\x03"):  # \x03 is Ctrl-C, also while a filter is typed
            shown = _in_terminal(keys, "top", str(capture))
            assert b"communicators" in shown
            assert b"Traceback" not in shown


def _in_terminal(keys: bytes, *words: str) -> bytes:
    """What a terminal gets until the keys have ended the command, which exits with 0."""
    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    job = subprocess.Popen(
        [sys.executable, "-m", "ncclscope", *words], stdin=side, stdout=side, stderr=side, env=env
    )
    os.close(side)
    shown, end, asked = b"", time.monotonic() + 60, False
    while time.monotonic() < end:
        if select.select([main], [], [], 0.2)[0]:
            try:
                shown += os.read(main, 1 << 16)
            except OSError:  # it has closed its side
                break
        if b"world" in shown and not asked:
            os.write(main, keys)
            asked = True
    os.close(main)
    assert job.wait(timeout=60) == 0
    return shown
