"""A process with nothing open is read in one compiled pass: the same ranks as event by event."""

from pathlib import Path

import pytest

from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.process import open_process
from ncclscope.capture.settled_process import read_settled
from ncclscope.snapshot.from_events import (
    rank_states_event_by_event,
    rank_states_of_settled,
    reporting_of,
    settled_rank_states,
)
from ncclscope.snapshot.process import read_snapshot, read_snapshots
from tests.support.player import TRANSCRIPTS
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic


def settled_of(capture: Path) -> tuple[int, int]:
    """How many of a capture's processes are settled, and how many there are."""
    folders, settled = process_folders(capture), 0
    for folder in folders:
        ranks = settled_rank_states(open_process(folder))
        if ranks is not None:
            assert ranks == rank_states_event_by_event(open_process(folder))
            settled += 1
    return settled, len(folders)


@pytest.mark.parametrize("version", [5, 6, 7])
def test_all_sorts_of_calls(version: int, tmp_path: Path) -> None:
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=4, operations=200, ranks_per_process=2, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2, version=version, killed=frozenset({2}),
    )  # fmt: skip
    synthetic(tmp_path / "capture", spec)
    assert settled_of(tmp_path / "capture") == (8, 8)


# Processes of real jobs that are settled. Of interfaces before v4 works alone tell ranks, with v7
# another thread reports states, and two ranks of the hang wait.
SETTLED = {
    "2.23.4-v1-2ranks": 0,
    "2.26.5-v3-2ranks": 0,
    "2.27.7-v4-2ranks": 2,
    "2.28.9-v5-2ranks": 2,
    "2.28.9-v5-3ranks-hang": 1,
    "2.28.9-v5-4ranks-straggler": 4,
    "2.30.7-v6-2ranks": 2,
    "2.31.2-v7-2ranks": 0,
}


@pytest.mark.parametrize("name", SETTLED)
def test_real_jobs(name: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / name, tmp_path / "capture")
    assert settled_of(tmp_path / "capture")[0] == SETTLED[name]


def test_logs_are_read_without_a_list_of_their_slots(tmp_path: Path) -> None:
    """Of thousands of processes: the same ranks, and the same snapshots, as one by one."""
    groups = ((0, 1, 2, 3), tuple(range(4)))
    synthetic(tmp_path / "capture", SyntheticSpec(processes=4, operations=90, communicators=groups))
    folders = process_folders(tmp_path / "capture")
    for folder, settled in zip(folders, read_settled(folders, reporting_of), strict=True):
        assert settled is not None
        states = rank_states_of_settled(*settled)
        assert states == rank_states_event_by_event(open_process(folder))
    one_by_one = [read_snapshot(folder, 0) for folder in folders]
    assert read_snapshots(folders).processes == one_by_one


def test_what_is_out_of_the_ordinary_is_read_as_a_whole(tmp_path: Path) -> None:
    """A misplaced slot, a log in two files, a log that is missing, and one that is too short."""
    synthetic(tmp_path / "capture", SyntheticSpec(processes=5, operations=90))
    folders = process_folders(tmp_path / "capture")
    logs = [folder / "log.000000" for folder in folders]
    content = bytearray(logs[0].read_bytes())
    content[-100 * 64 :] = content[-99 * 64 :] + content[-100 * 64 : -99 * 64]
    logs[0].write_bytes(content)
    logs[1].with_name("log.000001").write_bytes(logs[1].read_bytes())
    logs[2].unlink()
    logs[3].write_bytes(logs[3].read_bytes()[:50])
    settled = read_settled(folders, reporting_of)
    assert [one is not None for one in settled] == [False, False, False, False, True]
    one_by_one = [read_snapshot(folder, 0) for folder in folders]
    assert read_snapshots(folders).processes == one_by_one
