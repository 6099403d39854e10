"""Ten million hostile calls: any handle, any context, any state. Nothing breaks, everything is counted."""

from pathlib import Path

from ncclscope.capture.reader import open_capture
from tests.support.player import player, recording

CALLS = 10_000_000


def test_hostile_handles(tmp_path: Path) -> None:
    env = recording(tmp_path / "c", NCCLSCOPE_DISK_LIMIT="64M")
    played = player("fuzz", "--calls", CALLS, "--version", 7, "--seed", 20261115, env=env)
    assert played.returncode == 0, played.stderr
    process = open_capture(tmp_path / "c").processes[0]
    counted = {name for (name, _), count in process.counters.items() if count}
    expected = {"handle_null", "handle_foreign", "handle_dead", "stop_repeated", "context_foreign"}
    assert expected <= counted
    assert process.damage.bad_slots == 0
    assert not process.damage.unreadable
