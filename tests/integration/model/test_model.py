"""Models of whole captures: real jobs, simulated ones, and captures that something is wrong with."""

import gzip
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import dtypes, layout
from ncclscope.capture.header import parse_header
from ncclscope.capture.reader import resolve_capture
from ncclscope.errors import NcclscopeError
from ncclscope.model.build import open_model
from ncclscope.model.detail_tables import details_of
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, SOURCES
from ncclscope.model.store.saved_model import FOLDER, Writer
from tests.support.player import FOLDERS, TRANSCRIPTS, player, recording
from tests.support.writer import SyntheticSpec, Truth, from_transcript, synthetic

MS = 1_000_000


def simulated(capture: Path, spec: SyntheticSpec) -> tuple[Model, Truth]:
    truth = synthetic(capture, spec)
    return open_model(capture), truth


def notes(model: Model) -> str:
    return "\n".join(model.completeness.notes)


def test_the_straggler_is_found_and_waited_for(tmp_path: Path) -> None:
    """Rank 3 slept 20 ms before each call; what it did not sleep is the GPU's taking turns."""
    from_transcript(TRANSCRIPTS / "2.28.9-v5-4ranks-straggler", tmp_path / "c")
    model = open_model(tmp_path / "c")
    operations, instances = model.tables["operations"], model.tables["instances"]
    assert (instances["last_communicator_rank"][1:] == 3).all()
    assert instances["last_communicator_rank"][0] != 3
    late = (operations["call_order"] >= 3) & (operations["rank"] != 3)
    for column in ("wait_ns", "relative_wait_ns"):
        assert abs(np.median(operations[column][late]) - 20 * MS) < MS
        assert (operations[column][late] > 19 * MS).all()
        assert np.mean(operations[column][late] < 21 * MS) > 0.75
    assert np.median(operations["wire_ns"][late]) < 3 * MS
    own = (operations["call_order"] >= 3) & (operations["rank"] == 3)
    assert (operations["wait_ns"][own] == 0).all()


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_missing_and_nobody_disagrees(folder: str, tmp_path: Path) -> None:
    from_transcript(TRANSCRIPTS / folder, tmp_path / "c")
    complete = open_model(tmp_path / "c").completeness
    assert complete.processes_found == complete.processes_expected
    assert complete.mismatched_instances == 0
    assert complete.missing_operations == ("hang" in folder)
    assert complete.in_flight == (2 if "hang" in folder else 0)
    assert not complete.dropped


def test_times_are_those_of_the_simulation(tmp_path: Path) -> None:
    """Every rank on its own node, clocks seconds apart: starts are right within the bar."""
    spec = SyntheticSpec(processes=4, operations=2000, ranks_per_node=1)
    model, truth = simulated(tmp_path / "c", spec)
    operations, instances = model.tables["operations"], model.tables["instances"]
    error = int(instances["error_ns"].max())
    assert 0 < error < 100_000
    for rank in range(4):
        own = np.flatnonzero(operations["rank"] == rank)
        own = own[np.argsort(operations["call_order"][own])]
        duration = truth.end_ns[rank] - truth.start_ns[rank]
        assert np.abs(operations["duration_ns"][own] - duration).max() < 1000
        last = truth.start_ns.max(axis=0)
        wait = last - truth.start_ns[rank]
        assert np.abs(operations["wait_ns"][own] - wait).max() <= error
        both = operations["wait_ns"][own] + operations["wire_ns"][own]
        assert np.abs(both - operations["duration_ns"][own]).max() <= 5  # times are rounded


def test_a_missing_rank_is_said(tmp_path: Path) -> None:
    spec = SyntheticSpec(processes=8, operations=200, ranks_per_node=4, missing=frozenset({3}))
    model, _ = simulated(tmp_path / "c", spec)
    assert (model.completeness.processes_found, model.completeness.processes_expected) == (7, 8)
    assert model.completeness.missing_operations == 200
    assert not model.completeness.is_complete
    assert "7 of 8 processes" in model.completeness.line()
    missing = ["1 of 8 processes missing", "200 operations missing on some ranks"]
    assert model.completeness.missing() == missing
    assert model.completeness.notes[0] == "this is a simulation: nothing of it was measured"
    assert model.communicator_names == ["world"]


def test_damage_is_counted(tmp_path: Path) -> None:
    """Times and sizes that cannot be, one of each: said, and out of all sums."""
    synthetic(tmp_path / "c", SyntheticSpec(processes=1, operations=50))
    log = next((tmp_path / "c").glob("*/log.000000"))
    data = bytearray(log.read_bytes())
    start = parse_header(bytes(data), log).header_bytes
    slots = np.frombuffer(data, dtypes.ANY_SLOT, offset=start)
    calls = slots[slots["kind"] == layout.KINDS["CollApi"]].view(dtypes.OURS.dtypes["CollApi"])
    at = np.flatnonzero(slots["kind"] == layout.KINDS["CollApi"])
    calls["t0"][3], calls["count"][7] = 1 << 62, 1 << 63
    slots[at] = calls.view(dtypes.ANY_SLOT)
    log.write_bytes(data)
    model = open_model(tmp_path / "c")
    assert model.completeness.lost == {"damaged": 1}
    assert model.completeness.missing() == ["1 event lost"]
    assert "nothing dropped" not in model.completeness.line()
    assert "1 event damaged" in notes(model)
    assert "1 operation with an impossible size" in notes(model)
    assert (model.tables["operations"]["size_bytes"] == NONE).sum() == 1


def test_two_attempts_are_told_apart(tmp_path: Path) -> None:
    model, _ = simulated(tmp_path / "c", SyntheticSpec(processes=4, operations=100, attempts=2))
    assert model.completeness.processes_found == 4
    assert "2 attempts of the job" in notes(model)
    assert "4 processes silent for over 10 s on another host" in notes(model)
    assert (model.tables["instances"]["ranks_seen"] == 4).all()
    assert len(model.communicator_names) == 2


def test_jobs_side_by_side_expect_the_processes_of_each(tmp_path: Path) -> None:
    """Two pairs that share no communicator: four processes are expected, also if one is absent."""
    pairs = SyntheticSpec(processes=4, operations=40, communicators=((0, 1), (2, 3)))
    model, _ = simulated(tmp_path / "c", pairs)
    assert model.completeness.processes_expected == model.completeness.processes_found == 4
    model, _ = simulated(tmp_path / "d", replace(pairs, missing=frozenset({3})))
    assert (model.completeness.processes_found, model.completeness.processes_expected) == (3, 4)
    assert {row.attempt for row in model.processes} == {0}


def test_a_mesh_without_a_communicator_of_all_expects_all_processes(tmp_path: Path) -> None:
    """Rows and columns of two ranks each are one job of four processes, also if one is absent."""
    mesh = SyntheticSpec(processes=4, operations=40, communicators=((0, 1), (2, 3), (0, 2), (1, 3)))
    model, _ = simulated(tmp_path / "c", mesh)
    assert model.completeness.processes_expected == model.completeness.processes_found == 4
    model, _ = simulated(tmp_path / "d", replace(mesh, missing=frozenset({3})))
    assert (model.completeness.processes_found, model.completeness.processes_expected) == (3, 4)


@pytest.mark.parametrize("one_thread", [True, False])
def test_several_ranks_in_a_process(one_thread: bool, tmp_path: Path) -> None:
    spec = SyntheticSpec(
        processes=4, operations=150, ranks_per_process=2, ranks_per_node=4, one_thread=one_thread
    )
    model, truth = simulated(tmp_path / "c", spec)
    operations = model.tables["operations"]
    assert (operations["global_rank"] == operations["rank"]).all()
    assert np.bincount(operations["rank"]).tolist() == [150] * 8
    assert (operations["process"] == operations["rank"] // 2).all()
    assert (model.completeness.processes_found, model.completeness.processes_expected) == (4, 4)
    for rank in range(8):
        own = operations["rank"] == rank
        duration = truth.end_ns[rank] - truth.start_ns[rank]
        assert np.abs(operations["duration_ns"][own] - duration).max() < 1000


def test_names_follow_from_membership(tmp_path: Path) -> None:
    groups = ((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7))
    groups += ((0, 4), (1, 5), (2, 6), (3, 7), tuple(range(8)))
    spec = SyntheticSpec(processes=8, operations=80, ranks_per_node=4, communicators=groups)
    model, _ = simulated(tmp_path / "c", spec)
    found = set(model.communicator_names)
    assert {"world", "tp:0-1", "tp:6-7", "dp:0,2", "one-per-node:3,7"} <= found
    assert (model.tables["communicators"]["name_inferred"] == 1).all()
    world = model.communicator_names.index("world")
    parents = model.tables["communicators"]["parent"].tolist()
    assert [parent for row, parent in enumerate(parents) if row != world] == [world] * 12


def test_releases_clocks_and_silent_processes_that_differ(tmp_path: Path) -> None:
    """Folders of different jobs in one directory: everything is said, nothing fails."""
    capture = tmp_path / "c"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", capture)
    from_transcript(TRANSCRIPTS / "2.32.3-v7-2ranks-one-host", tmp_path / "other")
    for folder in (tmp_path / "other").iterdir():
        shutil.copytree(folder, capture / f"other.{folder.name}")
    (capture / "broken.1.1").mkdir()
    (capture / "broken.1.1" / "meta").write_bytes(b"not a capture")
    model = open_model(capture)
    assert "different NCCL releases: 2.28.9, 2.32.3" in notes(model)
    assert "not read: cannot read" in notes(model)
    assert model.completeness.operations == 2 * 152


def test_the_saved_model_is_used_while_it_is_current(tmp_path: Path) -> None:
    capture = tmp_path / "c"
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", capture)
    first = open_model(capture)
    manifest = capture / FOLDER / "manifest.json"
    made = manifest.stat().st_mtime_ns
    assert open_model(capture).completeness == first.completeness
    assert manifest.stat().st_mtime_ns == made
    log = next(capture.glob("*/log.000000"))
    os.utime(log, ns=(made, made + 5_000_000_000))
    assert open_model(capture).completeness == first.completeness
    assert manifest.stat().st_mtime_ns != made
    manifest.write_text("{")
    assert open_model(capture).completeness == first.completeness


def test_a_capture_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is made elsewhere and leaves nothing behind; without room it is one sentence."""
    from_transcript(TRANSCRIPTS / "2.28.9-v5-2ranks", tmp_path / "c")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.setattr(os, "access", lambda *_: False)
    model = open_model(tmp_path / "c")
    assert not list(elsewhere.iterdir())
    assert not (tmp_path / "c" / FOLDER).exists()
    assert model.tables["operations"]["duration_ns"].max() > 0

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "append", no_room)
    with pytest.raises(NcclscopeError, match="No space left on device"):
        open_model(tmp_path / "c")
    assert not list(elsewhere.iterdir())


def test_a_process_without_a_call_has_no_operations(tmp_path: Path) -> None:
    """A job that was killed before its first call."""
    env = recording(tmp_path / "c", mode="trace")
    player("load", "--collectives", 0, "--end", "kill", env=env)
    model = open_model(resolve_capture(str(tmp_path / "c")))
    assert model.completeness.operations == 0
    assert len(model.tables["operations"]["event"]) == 0
    assert "1 process ended abruptly: rank 3" in notes(model)


def test_time_by_transfers_begins_with_the_proxy_thread(tmp_path: Path) -> None:
    """NCCL queues proxy ops long before: while they wait behind those of earlier calls, the
    operation does not run.
    """
    without_kernels = "0x70f"  # groups, operations, proxy ops, calls
    env = recording(tmp_path / "c", mode="full", NCCLSCOPE_EVENTS=without_kernels)
    file = next((TRANSCRIPTS / "2.28.9-v5-4ranks").glob("*.gz"))
    (tmp_path / "calls").write_bytes(gzip.decompress(file.read_bytes()))
    player("play", tmp_path / "calls", env=env)
    model = open_model(tmp_path / "c")
    operations, proxy_ops = model.tables["operations"], next(details_of(model, "proxy_ops"))
    by_proxy = np.flatnonzero(operations["source"] == SOURCES.index("proxy"))
    began: dict[int, list[int]] = {number: [] for number in by_proxy.tolist()}
    for number, begin_ns in zip(proxy_ops["operation"], proxy_ops["in_progress_ns"], strict=True):
        if int(number) in began:
            began[int(number)].append(int(begin_ns))
    first = {number: min(times) for number, times in began.items() if times}
    assert len(first) > 40
    assert {number: int(operations["start_ns"][number]) for number in first} == first
    assert (proxy_ops["in_progress_ns"] > proxy_ops["start_ns"]).all()


def test_ranks_of_one_process_are_what_they_are_in_processes_of_their_own(tmp_path: Path) -> None:
    """The callbacks of four recorded processes, taken as those of two: the same operations."""
    found = []
    for ranks in (1, 2):
        capture = tmp_path / str(ranks)
        from_transcript(TRANSCRIPTS / "2.28.9-v5-4ranks", capture, ranks_per_process=ranks)
        model = open_model(capture)
        assert model.completeness.processes_found == model.completeness.processes_expected
        assert len(model.processes) == 4 // ranks
        names = ("global_rank", "call_ns", "size_bytes", "peer", "start_ns", "end_ns", "source")
        columns = (model.tables["operations"][name].tolist() for name in names)
        found.append(sorted(zip(*columns, strict=True)))
    assert found[0] == found[1]
