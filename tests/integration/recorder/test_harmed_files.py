"""Files that somebody deletes, cuts or replaces while they are written: counts stay exact, and what is
missing of the events is counted.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ncclscope.capture.contents import contents_of_capture
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture
from tests.support.player import folder_of, ncclscope, recording, start_player
from tests.support.waiting import eventually, wait_for_heartbeats

COLLECTIVES = 400
LOAD = ["load", "--collectives", COLLECTIVES, "--rate", 180_000]  # for three seconds
EVENTS = COLLECTIVES * 310  # of each collective as the player makes it


def delete(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replace(path: Path) -> None:
    path.with_name("other").write_bytes(b"something else")
    path.with_name("other").rename(path)


def replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def job_with_harm(capture: Path, harm: Callable[[Path], None]) -> tuple[Process, str]:
    """A job during which something is done to the folder of its process, and the report on it."""
    with start_player(*LOAD, env=recording(capture)) as running:
        folder = folder_of(capture)
        wait_for_heartbeats(folder, 2)
        harm(folder)
        assert running.wait(60) == 0
    (process,) = open_capture(capture).processes
    return process, " ".join(ncclscope("report", capture).stdout.split())


def events_on_record(capture: Path) -> int:
    return sum(contents.events for contents in contents_of_capture(capture))


HARMS = pytest.mark.parametrize("harm", [delete, cut, replace, replace_by_link])


@HARMS
def test_harm_to_small_files_takes_nothing_away(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    def harm_all(folder: Path) -> None:
        for name in ("tally", "live", "meta"):
            harm(folder / name)

    process, report = job_with_harm(tmp_path / "c", harm_all)
    assert process.calls_counted() == COLLECTIVES
    assert process.ended
    assert process.communicators
    assert process.live is not None
    assert events_on_record(tmp_path / "c") == EVENTS
    assert "nothing dropped" in report
    for name in ("tally", "live", "meta"):
        assert any(f"{name} was deleted, cut or replaced" in note for note in process.notes)


@HARMS
def test_harm_to_a_log_costs_events_that_are_counted(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    process, report = job_with_harm(tmp_path / "c", lambda folder: harm(folder / "log.000000"))
    assert process.calls_counted() == COLLECTIVES
    missing = EVENTS - events_on_record(tmp_path / "c")
    assert process.counters["write_failed", 0] >= missing > 0
    assert "events lost" in report
    assert "nothing dropped" not in report
    assert any("log.000000 was deleted, cut or replaced" in note for note in process.notes)


def test_counts_survive_a_deleted_folder(tmp_path: Path) -> None:
    process, report = job_with_harm(tmp_path / "c", shutil.rmtree)
    assert process.calls_counted() == COLLECTIVES
    assert process.ended
    missing = EVENTS - events_on_record(tmp_path / "c")
    assert process.counters["write_failed", 0] >= missing > 0
    assert "events lost" in report


def test_a_folder_that_is_moved_is_written_to_where_it_is(tmp_path: Path) -> None:
    capture, moved = tmp_path / "c", tmp_path / "elsewhere"
    with start_player(*LOAD, env=recording(capture, NCCLSCOPE_DISK_LIMIT="64M")) as running:
        wait_for_heartbeats(folder_of(capture), 2)
        capture.rename(moved)
        assert running.wait(60) == 0
    assert not capture.exists()
    (process,) = open_capture(moved).processes
    assert process.ended
    assert process.calls_counted() == COLLECTIVES
    assert events_on_record(moved) == EVENTS


def test_counters_are_written_again_to_a_folder_that_is_begun_anew(tmp_path: Path) -> None:
    """What was dropped before somebody deleted the capture was dropped all the same."""
    capture = tmp_path / "c"
    load = ["load", "--collectives", 1 << 30, "--rate", 3_000_000]
    with start_player(*load, env=recording(capture, NCCLSCOPE_ARENA="512K")) as running:
        folder_of(capture)
        eventually(lambda: open_capture(capture).processes[0].dropped())
        dropped = open_capture(capture).processes[0].dropped()
        shutil.rmtree(capture)
        wait_for_heartbeats(folder_of(capture), 2)
        assert open_capture(capture).processes[0].dropped() >= dropped
        running.kill()
