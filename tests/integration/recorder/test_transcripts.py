"""Every callback of every real job comes back from `dump --json`: nothing missing, nothing
invented, fields equal.
"""

import functools
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest

from ncclscope.capture.salvage import arena_dir, salvage
from tests.support.exhaustive import sample
from tests.support.player import FOLDERS, dump, play_job, read_transcript, transcript_files
from tests.support.transcript_check import Line, check_process


@functools.lru_cache(maxsize=8)  # the three ends of a job come one after the other
def callbacks_in(file: Path) -> list[Line]:
    return read_transcript(file)


def split_by_process(events: list[Line]) -> dict[int, list[Line]]:
    processes: dict[int, list[Line]] = defaultdict(list)
    for event in events:
        processes[event["rank"]].append(event)
    return processes


# Every job, with ends in turn; all ends of each in an exhaustive run.
@pytest.mark.parametrize(
    ("end", "folder"), sample([*product(["finalize", "exit", "kill"], FOLDERS)], 2)
)
def test_every_callback_comes_back(folder: str, end: str, tmp_path: Path) -> None:
    files = transcript_files(folder)
    capture = tmp_path / "capture"
    assert set(play_job(files, capture, "--end", end)) == {-9 if end == "kill" else 0}
    processes = split_by_process(dump(capture))
    assert len(processes) == len(files)
    compared = 0
    for rank, file in enumerate(files):
        lines = callbacks_in(file)
        pid = int(processes[rank][0]["process"].split(".")[1])
        compared += check_process(lines, processes[rank], end == "finalize", pid)
    assert compared > 100
    left = salvage(capture)
    assert not left, "dump has brought in what dead processes left"
    folders = {events[0]["process"] for events in processes.values()}
    assert not [path for path in arena_dir().glob("*") if path.name in folders]
