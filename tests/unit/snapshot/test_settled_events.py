"""A process with nothing open is read in one compiled pass: the same ranks as event by event."""

from pathlib import Path

import pytest

from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.process import open_process
from ncclscope.snapshot.from_events import rank_states_event_by_event, settled_rank_states
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
