"""Operations of the real jobs: which there are, and that no time of theirs is wrong."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture.reader import open_capture
from ncclscope.model.process.channels import on_host_clock
from ncclscope.model.process.inferred_collectives import expand_groups
from ncclscope.model.process.operations import ProcessOperations, operations_of
from ncclscope.model.schema import NONE
from ncclscope.model.vocabulary import Vocabulary
from tests.support.player import FOLDERS, TRANSCRIPTS
from tests.support.writer import from_transcript

# Works of all ranks: valid, repaired, recovered, some channels, rejected, without any stamp.
STAMPS = {
    "2.28.9-v5-2ranks": (144, 8, 12, 2, 4, 0),
    "2.28.9-v5-4ranks": (208, 0, 0, 0, 16, 16),
    "2.30.7-v6-2ranks": (120, 8, 12, 2, 4, 0),
    "2.31.2-v7-2ranks": (54, 48, 18, 2, 22, 2),
    "2.32.3-v7-2ranks-one-host": (78, 16, 6, 18, 26, 2),
}
# These wait for the GPU after every call or group, so that nothing can run into the next one.
SYNCHRONISED = [name for name in FOLDERS if "ddp" not in name]
FIVE = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ProcessOperations]]:
    """Each job's processes, decoded once."""
    found = {}
    for name in FOLDERS:
        capture = tmp_path_factory.mktemp("captures") / name
        from_transcript(TRANSCRIPTS / name, capture)
        words = Vocabulary()
        found[name] = [operations_of(process, words) for process in open_capture(capture).processes]
    return found


@pytest.mark.parametrize("name", STAMPS)
def test_stamps_are_repaired(name: str, processes: dict[str, list[ProcessOperations]]) -> None:
    found = [made.stamp_counts for made in processes[name]]
    sums = tuple(sum(getattr(counts, field) for counts in found) for field in found[0].__slots__)
    assert sums == STAMPS[name]


@pytest.mark.parametrize("name", SYNCHRONISED)
def test_every_time_lies_between_its_launch_and_the_next_call(
    name: str, processes: dict[str, list[ProcessOperations]]
) -> None:
    checked = 0
    for made in processes[name]:
        columns, channels = made.columns, made.channels
        start_ns, end_ns = on_host_clock(channels.channels, made.clocks)
        calls = np.append(np.sort(columns["call_ns"][columns["call_ns"] != NONE]), 1 << 62)
        timed = np.flatnonzero((start_ns != NONE) & (channels.row != NONE))
        row = channels.row[timed]
        replayed = columns["replay"][row] == 1
        before = np.where(replayed, columns["enqueue_ns"][row], columns["launch_ns"][row])
        reported = np.maximum(columns["call_end_ns"][row], columns["enqueue_ns"][row])
        after = calls[np.searchsorted(calls, reported)]
        assert (start_ns[timed] >= before).all()
        assert (end_ns[timed] <= after).all()
        assert (end_ns[timed] >= start_ns[timed]).all()
        valid = channels.channels.seen_end_ns[timed] != NONE
        lag_free = channels.channels.stamp[timed] == 0
        seen = channels.channels.seen_end_ns[timed]
        assert (end_ns[timed] <= seen)[valid & lag_free].all()
        checked += len(timed)
    assert checked or "v1" in name or "v3" in name


def calls_of(made: ProcessOperations, words: Vocabulary) -> Counter[str]:
    """Calls, without the parts of others, and replays, by function."""
    columns = expand_groups(made.columns, made.local.ranks, words)
    whole = columns["part_of"] == NONE
    names = words.lists["function"]
    found: Counter[str] = Counter()
    for function, replay in zip(
        columns["function"][whole].tolist(), columns["replay"][whole].tolist(), strict=True
    ):
        found[("replayed " if replay else "") + names[function]] += 1
    return found


@pytest.mark.parametrize("name", [name for name in SYNCHRONISED if "2ranks" in name])
def test_calls_are_those_that_the_job_made(name: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / name, tmp_path / "c")
    words = Vocabulary()
    modern = "v1" not in name and "v3" not in name and "v4" not in name
    for process in open_capture(tmp_path / "c").processes:
        found = calls_of(operations_of(process, words), words)
        expected: Counter[str] = Counter(dict.fromkeys(FIVE, 9 + 3))
        expected |= {"Send": 3, "Recv": 3}
        if modern:  # before v5 captured calls are not reported, and replays look like calls
            expected["AlltoAll"] = 3
            expected["AllReduce"] += 1 + 2
            expected["replayed AllReduce"] = 6
        else:
            expected["AllReduce"] += 1 + 6
        assert found == expected
