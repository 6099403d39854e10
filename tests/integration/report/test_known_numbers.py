"""What a report must show of real and simulated jobs: calls exactly, bandwidth by nccl-tests'
formulas, no time that cannot be, and a clear statement about captures that are odd.
"""

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope.capture import header
from ncclscope.model.build import open_model
from ncclscope.model.detail_tables import details_of_process
from ncclscope.model.model import Model
from ncclscope.model.schema import GPU_SOURCES, NONE, SOURCES, STAMPS
from tests.support.player import FOLDERS, TRANSCRIPTS, ncclscope, transcript_files
from tests.support.writer import SyntheticSpec, Work, from_transcript, synthetic

FIVE = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
SIZES = (1 << 10, 1 << 15, 1 << 20)
GPU_CODES = [SOURCES.index(name) for name in GPU_SOURCES]
# Lone Broadcasts, and of releases from 2.31 on the Reduces behind them, lose their kernel events.
WITHOUT_KERNELS = ("2.30.7-v6-2ranks", "2.31.2-v7-2ranks", "2.32.3-v7-2ranks-one-host")


def report(capture: Path) -> dict[str, Any]:
    printed = ncclscope("report", "--json", capture)
    assert printed.returncode == 0, printed.stderr
    made: dict[str, Any] = json.loads(printed.stdout)
    return made


def calls_per_rank(folder: str) -> Counter[str]:
    """What each rank called: the table in tests/data/transcripts/README.md."""
    if "straggler" in folder:
        return Counter(AllReduce=20)
    if "4ranks" in folder:
        return Counter(dict.fromkeys(FIVE, 6 + 2) | {"Send": 2, "Recv": 2, "AlltoAll": 2})
    calls = Counter(dict.fromkeys(FIVE, 9 + 3) | {"Send": 3, "Recv": 3})
    if folder.startswith(("2.23", "2.26", "2.27")):
        calls["AllReduce"] += 1 + 3 * 2  # without API events a replay looks like a call
    else:
        calls += Counter(AlltoAll=3, AllReduce=1 + 2)
    return calls


@pytest.mark.parametrize("folder", [n for n in FOLDERS if "hang" not in n and "ddp" not in n])
def test_calls_are_exactly_those_of_the_job(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    made = report(tmp_path / "c")
    found: Counter[str] = Counter()
    for row in made["operations"]:
        found[row["function"]] += row["calls"]
    ranks = len(transcript_files(folder))
    assert found == Counter({name: n * ranks for name, n in calls_per_rank(folder).items()})


def test_calls_of_the_hang(tmp_path: Path) -> None:
    """Five on three ranks; the sixth on two of them, and never on the third."""
    from_transcript(TRANSCRIPTS / "2.28.9-v5-3ranks-hang", tmp_path / "c")
    made = report(tmp_path / "c")
    [row] = made["operations"]
    assert (row["function"], row["calls"], row["in_flight"]) == ("AllReduce", 17, 2)


def names(model: Model, sort: str, rows: np.ndarray) -> list[str]:
    return [model.words[sort][code] for code in model.tables["operations"][sort][rows]]


@pytest.mark.parametrize("folder", WITHOUT_KERNELS)
def test_broadcasts_without_kernels_and_what_comes_after(folder: str, tmp_path: Path) -> None:
    """There with calls and bytes; without a time and with the reason, or with the right time."""
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    model = open_model(tmp_path / "c")
    operations = model.tables["operations"]
    functions = np.array(names(model, "function", np.arange(len(operations["rank"]))))
    eager = operations["replay"] == 0
    group_calls, members = np.unique(operations["group_call"][eager], return_counts=True)
    alone = np.isin(operations["group_call"], group_calls[members == 2])  # of both ranks
    for function in ("Broadcast", "Reduce"):
        for rank in (0, 1):
            own = np.flatnonzero((functions == function) & alone & (operations["rank"] == rank))
            own = own[np.argsort(operations["call_ns"][own])]
            assert operations["size_bytes"][own].tolist() == np.repeat(SIZES, 3).tolist()
            untimed = own[operations["source"][own] == SOURCES.index("none")]
            assert (operations["duration_ns"][untimed] == NONE).all()
            assert all(names(model, "reason", untimed))
            if function == "Broadcast":
                assert len(untimed) == 9
                assert set(names(model, "reason", untimed)) == {
                    "Broadcast takes NCCL's AllGatherV path, which reports no kernel"
                }
            timed = np.setdiff1d(own, untimed)
            after = np.append(np.sort(operations["call_ns"][operations["rank"] == rank]), 1 << 62)
            following = after[np.searchsorted(after, operations["call_ns"][timed], side="right")]
            assert (operations["start_ns"][timed] > operations["call_ns"][timed]).all()
            assert (operations["end_ns"][timed] < following).all()


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_time_of_the_gpu_that_cannot_be(folder: str, tmp_path: Path) -> None:
    """None starts before its call or ends after NCCL reported it."""
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    model = open_model(tmp_path / "c")
    operations = model.tables["operations"]
    timed = np.isin(operations["source"], GPU_CODES)
    called = timed & (operations["call_ns"] != NONE) & (operations["replay"] == 0)
    assert (operations["start_ns"][called] >= operations["call_ns"][called]).all()
    launched = timed & (operations["launch_ns"] != NONE)
    assert (operations["start_ns"][launched] >= operations["launch_ns"][launched]).all()
    replayed = timed & (operations["replay"] == 1)
    assert (operations["start_ns"][replayed] >= operations["enqueue_ns"][replayed]).all()
    assert (operations["end_ns"][timed] >= operations["start_ns"][timed]).all()
    whole = operations["end_ns"][timed] - operations["start_ns"][timed]
    assert (np.abs(whole - operations["duration_ns"][timed]) <= 1).all()  # times are rounded
    assert timed.any() or folder.startswith(("2.23", "2.26"))
    for number in range(len(model.processes)):
        channels = details_of_process(model, "channels", number)
        own = (channels["stamp"] == STAMPS.index("valid")) & (channels["seen_end_ns"] != NONE)
        assert (channels["end_ns"][own] <= channels["seen_end_ns"][own]).all()
        assert (channels["start_ns"][own] <= channels["end_ns"][own]).all()


FACTORS = {
    "AllReduce": lambda n: 2 * (n - 1) / n,
    "AllGather": lambda n: (n - 1) / n,
    "ReduceScatter": lambda n: (n - 1) / n,
    "Broadcast": lambda n: 1.0,
    "Reduce": lambda n: 1.0,
}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_bandwidth_is_that_of_nccl_tests(ranks: int, tmp_path: Path) -> None:
    """From what happened in the simulation: all bytes by all durations, times the factor."""
    count = 3 * 4096
    mix = (*(Work(name, count, "ncclBfloat16") for name in FIVE), Work("SendRecv", count))
    spec = SyntheticSpec(processes=ranks, operations=240, mix=mix, ranks_per_node=ranks)
    truth = synthetic(tmp_path / "c", spec)
    made = {row["function"]: row for row in report(tmp_path / "c")["operations"]}
    for number, function in enumerate(FIVE):
        own = truth.work == number
        duration_ns = (truth.end_ns - truth.start_ns)[:, own]
        shares = ranks if function in ("AllGather", "ReduceScatter") else 1
        size = 2 * count * shares
        row = made[function]
        assert (row["size_bytes"], row["calls"]) == (size, duration_ns.size)
        algbw = size * duration_ns.size / duration_ns.sum()
        assert row["algbw_gbs"] == pytest.approx(algbw, rel=2e-3)
        assert row["busbw_gbs"] == pytest.approx(algbw * FACTORS[function](ranks), rel=2e-3)
    for function in ("Send", "Recv"):  # their stops may come early: times are lower bounds
        assert made[function]["algbw_gbs"] is None
        assert made[function]["busbw_gbs"] is None


# ---- odd captures ----
def said(capture: Path) -> str:
    """The whole report; nothing on stderr that looks like a failure."""
    printed = ncclscope("report", capture)
    assert printed.returncode == 0, printed.stderr
    assert "Traceback" not in printed.stderr
    return printed.stdout


def test_kinds_of_clock_that_differ(tmp_path: Path) -> None:
    """One process counts CLOCK_MONOTONIC, another one a counter of 1 GHz that shows the same."""
    truth = synthetic(tmp_path / "c", SyntheticSpec(processes=3, operations=60))
    folder = sorted(path for path in (tmp_path / "c").iterdir() if path.is_dir())[1]
    place = header.PLACES["clock_kind"].offset
    for file in folder.iterdir():
        data = bytearray(file.read_bytes())
        assert struct.unpack_from("<Q", data, place) == (3,)  # monotonic
        struct.pack_into("<Q", data, place, 1)  # TSC
        file.write_bytes(data)
    assert "different kinds of clock" in said(tmp_path / "c")
    operations = open_model(tmp_path / "c").tables["operations"]
    for rank in range(3):
        own = operations["rank"] == rank
        duration = truth.end_ns[rank] - truth.start_ns[rank]
        assert np.abs(operations["duration_ns"][own] - duration).max() < 1000


def test_one_empty_process(tmp_path: Path) -> None:
    """It left its metadata and no event: what it must have done is missing."""
    synthetic(tmp_path / "c", SyntheticSpec(processes=4, operations=60))
    folders = sorted(path for path in (tmp_path / "c").iterdir() if path.is_dir())
    for log in folders[2].glob("log.*"):
        log.unlink()
    text = said(tmp_path / "c")
    assert "60 missing on some ranks" in " ".join(text.split())
    complete = open_model(tmp_path / "c").completeness
    assert (complete.processes_found, complete.operations) == (4, 180)
    assert complete.missing_operations == 60
    assert not complete.is_complete


def test_a_folder_without_anything(tmp_path: Path) -> None:
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=60))
    folder = next(path for path in (tmp_path / "c").iterdir() if path.is_dir())
    for file in folder.iterdir():
        file.unlink()
    text = said(tmp_path / "c")
    assert "1 of 2 processes" in " ".join(text.split())
    assert open_model(tmp_path / "c").completeness.operations == 60


def test_releases_that_differ_within_one_job(tmp_path: Path) -> None:
    """A rank of another release in the same communicator, as in a half upgraded cluster."""
    spec = SyntheticSpec(processes=2, operations=80, seed=5)
    synthetic(tmp_path / "c", spec)
    synthetic(tmp_path / "other", SyntheticSpec(processes=2, operations=80, seed=5, version=7))
    folders = sorted(path.name for path in (tmp_path / "c").iterdir() if path.is_dir())
    others = sorted(path.name for path in (tmp_path / "other").iterdir() if path.is_dir())
    for file in (tmp_path / "c" / folders[1]).iterdir():
        file.unlink()
    (tmp_path / "c" / folders[1]).rmdir()
    (tmp_path / "other" / others[1]).rename(tmp_path / "c" / others[1])
    model = open_model(tmp_path / "c")
    assert "different NCCL releases: 2.28.9, 2.32.3" in "\n".join(model.completeness.notes)
    assert (model.tables["instances"]["ranks_seen"] == 2).all()
    assert model.completeness.mismatched_instances == 0
    assert model.completeness.operations == 160
    assert (model.tables["operations"]["wait_ns"] != NONE).all()
