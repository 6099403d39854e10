"""Readings that fail for a while: `serve` and `top` go on, and old values are not served as new."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope.capture import liveness
from ncclscope.http.server import Request
from ncclscope.live.job_follower import JobFollower
from ncclscope.live.metrics_cache import MetricsCache
from ncclscope.live.metrics_server import MetricsServer
from ncclscope.live.top_screen import Top
from tests.support.top_screen import screen_text
from tests.support.waiting import PATIENCE_S
from tests.support.writer import SyntheticSpec, synthetic


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_serve_goes_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = MetricsCache(JobFollower(("/nowhere",)), 500)
    server = MetricsServer("127.0.0.1", 0, cache)
    cache.read_again()

    def fail(_: JobFollower) -> None:
        raise error

    with monkeypatch.context() as failing:
        failing.setattr(JobFollower, "read", fail)
        cache.read_again()
        cache.read_again()
        assert server._respond(Request("/metrics", {}, {})).status == 200  # one is left out
        failing.setattr(time, "monotonic", lambda: cache.read_at + 20)
        for path in ("/metrics", "/healthz", "/status.json"):
            assert server._respond(Request(path, {}, {})).status == 503
        cache.interval_s = 60  # then that is not long
        assert server._respond(Request("/healthz", {}, {})).status == 200
    cache.read_again()
    assert server._respond(Request("/metrics", {}, {})).status == 200
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].endswith("It goes on trying")
    assert said[1] == "ncclscope: reading works again"


def test_top_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def played() -> tuple[str, bool]:
        app = Top(JobFollower(("/nowhere",)), 3600)
        with monkeypatch.context() as failing:
            failing.setattr(JobFollower, "read", lambda _: [].pop())
            async with app.run_test(size=(80, 24)) as pilot:
                end = time.monotonic() + PATIENCE_S
                while "reading failed" not in screen_text(app) and time.monotonic() < end:
                    await pilot.pause(0.01)
                return screen_text(app), app.reading

    text, reading = asyncio.run(played())
    assert "reading failed: pop from empty list" in text
    assert not reading


@pytest.mark.parametrize(
    ("error", "life"),
    [(FileNotFoundError(2, "gone"), "dead"), (OSError(24, "Too many open files"), "alive")],
)
def test_a_process_is_not_dead_because_it_cannot_be_looked_at(
    error: OSError, life: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=1))
    folder = next((tmp_path / "c").iterdir())
    header = liveness.header_in(folder)
    assert header
    namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    identity = {"boot_id": liveness.boot_id(), "pid_namespace": namespace, "start_ticks": "1"}
    header = replace(header, identity=identity)

    def fail(_: Path) -> str:
        raise error

    monkeypatch.setattr(liveness, "boot_id", lambda: identity["boot_id"])
    monkeypatch.setattr(Path, "read_text", fail)
    assert liveness.life_of(header, False, 0, 10**9, folder)[0] == life
