"""Threads read processes where every file takes its time, and only there."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.settled_process import read_settled
from ncclscope.snapshot import process
from tests.support.writer import SyntheticSpec, synthetic


@pytest.mark.parametrize(("slow", "in_threads"), [(0, False), (3, False), (12, True)])
def test_threads_read_where_all_files_are_slow(
    slow: int, in_threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some seem slow on a machine whose CPUs are busy."""
    synthetic(tmp_path / "c", SyntheticSpec(processes=12, operations=30))
    folders = process_folders(tmp_path / "c")
    expected = process.read_snapshots(folders).processes
    readers: set[str] = set()
    clock = SimpleNamespace(wall_s=0.0, cpu_s=0.0)

    def read(chosen: list[Path], *rest: object) -> object:
        readers.add(threading.current_thread().name)
        clock.cpu_s += 1
        clock.wall_s += 10 if folders.index(chosen[0]) < slow else 1
        time.sleep(0.01)  # the next one is another thread's
        return read_settled(chosen, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "_wall_and_cpu_s", lambda: (clock.wall_s, clock.cpu_s))
    monkeypatch.setattr(process, "read_settled", read)
    assert process.read_snapshots(folders).processes == expected
    assert (len(readers) > 1) == in_threads
