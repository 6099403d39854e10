"""A running job is looked at more closely for a while, and its counts stay exact."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ncclscope import open as opened
from ncclscope.capture import layout
from ncclscope.capture.control import request
from ncclscope.capture.dump_events import events_of
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.live_page import read_live_page
from ncclscope.capture.liveness import DEAD
from ncclscope.capture.metadata import by_kind, read_meta_file
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture
from ncclscope.capture.segment import Damage
from ncclscope.cli import ctl, main
from ncclscope.cli.ctl import _has_ring
from ncclscope.simulation.scenario import Call, Communicators, Scenario
from ncclscope.snapshot.process import read_snapshots
from tests.support.player import folder_of, ncclscope, recording, start_player
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually, wait_for_heartbeats_of

CALLS = (
    Call("world", "AllReduce", 1 << 18),
    Call("tp", "AllReduce", 1 << 14),
    Call("tp", "AllGather", 1 << 14, "bfloat16"),  # NCCL's own events tell its bytes only
)
JOB = Scenario(
    name="zoomed",
    ranks=4,
    ranks_per_host=2,
    steps=450,
    compute_ms=10,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=CALLS,
)


def modes(capture: Path) -> dict[str, str]:
    """By process the mode that its live page tells."""
    folders = process_folders(capture) if capture.is_dir() else []
    pages = {folder.name: read_live_page(folder) for folder in folders}
    return {name: page.mode for name, page in pages.items() if page}


def kinds(process: Process) -> set[str]:
    """Event types on record."""
    return {event["event"] for event in events_of(process)} - {"Comm"}


def calls_made(capture: Path) -> list[int]:
    """By rank, as the live pages tell."""
    snapshots = {
        snapshot.global_rank: snapshot for snapshot in read_snapshots(process_folders(capture))[0]
    }
    return [
        sum(rank_state.calls for rank_state in snapshots[rank].rank_states) for rank in range(4)
    ]


def wait_for_calls(capture: Path, rank: int, more: int) -> None:
    enough = calls_made(capture)[rank] + more
    eventually(lambda: calls_made(capture)[rank] > enough)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The capture of a job that runs in profile mode, and that nobody changes for long."""
    yield from _lasting(tmp_path_factory.mktemp("profiled") / "capture", "profile")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same in trace mode."""
    yield from _lasting(tmp_path_factory.mktemp("traced") / "capture", "trace")


def _lasting(capture: Path, mode: str) -> Iterator[Path]:
    with running(replace(JOB, steps=1_000_000), capture, "--mode", mode):
        eventually(lambda: len(modes(capture)) == 4)
        yield capture


def counted(process: Process) -> int:
    """Calls in the tally."""
    return sum(t.calls for t in process.call_counts if t.key.level == layout.LEVEL_CALL)


def test_a_window_in_full_mode(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    with running(JOB, capture, "--mode", "profile") as job:
        eventually(lambda: set(modes(capture).values()) == {"profile"} and len(modes(capture)) == 4)
        words = ["ctl", str(capture), "--mode", "full", "--seconds", "2", "--rank", "0-2"]
        ctl = [sys.executable, "-m", "ncclscope", *words]
        with subprocess.Popen(ctl, stdout=subprocess.PIPE, text=True) as asked:
            # Looked at meanwhile: on a busy machine the window is over when ctl has ended.
            eventually(lambda: sorted(modes(capture).values()) == ["full"] * 3 + ["profile"])
            assert asked.communicate()[0] == "3 of 3 processes record in full mode for 2 s\n"
        assert asked.returncode == 0
        eventually(lambda: set(modes(capture).values()) == {"profile"})
        assert job.wait(timeout=60) == 0
    _calls_are_matched_with_themselves(capture)
    assert opened(capture).completeness().mismatched_instances == 0
    written = ncclscope("export", capture, "--to", "jsonl", "-o", tmp_path / "x.jsonl")
    assert written.returncode == 0, written.stderr
    assert "not on record: " in written.stderr
    _counters_make_the_report(capture)
    processes = {process.rank: process for process in open_capture(capture).processes}
    for rank, process in processes.items():
        assert counted(process) == JOB.steps * len(CALLS), rank
        assert process.dropped() == 0
        on_record = [e for e in events_of(process) if e["event"] == "CollApi"]
        if rank == 3:
            assert not on_record
            assert not process.mode_changes
            continue
        assert 0 < len(on_record) < JOB.steps * len(CALLS) / 2
        # KernelCh is never switched on in a running job: profile mode samples instead.
        assert {"Group", "Coll", "CollApi", "KernelLaunch", "ProxyStep"} <= kinds(process)
        assert [zoom.mode for zoom in process.mode_changes] == ["full", "profile"]
        # Without a hole: the events of a window follow each other in NCCL's own count.
        sequences = [
            e["fields"]["seqNumber"]
            for e in events_of(process)
            if e["event"] == "Coll" and e["fields"]["nWarps"] and e["fields"]["count"] == 1 << 16
        ]
        assert sequences == list(range(sequences[0], sequences[-1] + 1))


def _counters_make_the_report(capture: Path) -> None:
    """The whole from counters; what is on record where that is asked for."""
    made = 4 * JOB.steps * len(CALLS)
    printed = ncclscope("report", capture, "--require-complete")
    assert printed.returncode == 0, printed.stderr
    assert f"4 of 4 processes, {made:,} calls, {made:,} operations" in printed.stdout
    assert "4 processes recorded single calls for" in printed.stdout
    window = json.loads(ncclscope("report", capture, "--json", "--since", "0").stdout)
    completeness = window["completeness"]
    assert completeness["calls"] + completeness["calls_outside"] == made
    assert window["total"]["calls"] == completeness["calls"] > 0
    assert window["total"]["calls_counted"] is None  # counters know no times
    assert completeness["missing_operations"] == 0
    assert sorted({one["rank"] for one in window["windows"]}) == [0, 1, 2]
    # Time with kernels is a share of the windows, not of the run.
    assert window["total"]["run_share"] > 0
    refused = ncclscope("report", capture, "--since", "0", "--require-complete")
    assert refused.returncode == 5
    assert f"of {made:,} calls" in refused.stderr
    diagnosed = ncclscope("diagnose", capture)
    assert f"{completeness['calls']:,} of {made:,} calls" in diagnosed.stdout


def _calls_are_matched_with_themselves(capture: Path) -> None:
    """Windows of ranks begin at different calls, so counting from their first would be wrong."""
    model = opened(capture)
    rows = model.sql(
        "SELECT instance, count(*), count(DISTINCT sequence), count(DISTINCT communicator_rank), "
        "count(DISTINCT communicator) FROM operations WHERE instance >= 0 GROUP BY instance"
    ).fetchall()
    several = [row for row in rows if row[1] > 1]
    assert len(several) > 50
    assert all(row[2] == 1 and row[4] == 1 and row[3] == row[1] for row in rows)
    assert any("did not record all calls" in note for note in model.completeness().notes)


def test_so_many_calls_and_back(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    longer = replace(JOB, steps=900)  # asked twice while it runs
    with running(longer, capture, "--mode", "trace") as job:
        eventually(lambda: len(modes(capture)) == 4)
        said = ncclscope("ctl", capture, "--mode", "profile")
        assert said.returncode == 0, said.stderr
        wait_for_heartbeats_of(process_folders(capture), 2)
        quiet = {p.folder: len(p.slots) for p in open_capture(capture).processes}
        said = ncclscope(
            "ctl", capture, "--mode", "full", "--events", "Group,ProxyOp", "--calls", "20"
        )
        # Over before a live page could tell, and yet it was heard.
        assert said.returncode == 0, said.stderr
        assert said.stdout == "4 of 4 processes record in full mode for 20 calls\n"
        eventually(lambda: set(modes(capture).values()) == {"trace"}, 20)
        assert job.wait(timeout=60) == 0
    for process in open_capture(capture).processes:
        assert len(process.slots) > quiet[process.folder]
        assert counted(process) == longer.steps * len(CALLS)
        assert [zoom.mode for zoom in process.mode_changes] == ["profile", "full", "trace"]
        assert "ProxyStep" not in kinds(process)


def test_nothing_is_copied_where_there_is_no_flight_recorder(traced: Path) -> None:
    said = ncclscope("ctl", traced, "--copy-out")
    assert (said.returncode, said.stdout) == (1, "")
    assert "none of 4 processes has one. Start the job with NCCLSCOPE_RING=64M" in said.stderr
    assert "on disk anyway" in said.stderr
    assert not (traced / "control").exists(), "nobody is asked in vain"


def test_kernel_events_cannot_be_switched(traced: Path) -> None:
    done = ncclscope("ctl", traced, "--gpu-timing", "off")
    assert done.returncode != 0
    assert "started with kernel" in done.stderr


def test_who_has_a_flight_recorder() -> None:
    assert _has_ring({"mode": "trace", "env.NCCLSCOPE_RING": "64M"})
    assert not _has_ring({"mode": "trace"})
    assert not _has_ring({"mode": "full", "env.NCCLSCOPE_RING": "0"})
    assert not _has_ring({"mode": "profile", "env.NCCLSCOPE_RING": "64M"})
    assert not _has_ring({"mode": "trace", "env.NCCLSCOPE_RING": "much"})


def test_killed_after_a_pause_of_one_rank(tmp_path: Path) -> None:
    """Nothing of its memory is taken twice, and what it did not record is still counted."""
    capture = tmp_path / "capture"
    busy = replace(JOB, ranks_per_host=4, steps=1_000_000, compute_ms=1)
    with running(busy, capture, "--mode", "trace"):
        eventually(lambda: len(modes(capture)) == 4)
        for change in (("--mode", "profile"), ("--reset",)):
            said = ncclscope("ctl", capture, *change, "--rank", "1")
            assert said.returncode == 0, said.stderr
            # Readers take a killed rank's newest chunks of 1,024 slots, in whatever mode.
            wait_for_calls(capture, rank=1, more=1500)
    eventually(
        lambda: (
            {snapshot.life for snapshot in read_snapshots(process_folders(capture))[0]} == {DEAD}
        )
    )
    assert ncclscope("salvage", capture).returncode == 0
    calls = calls_made(capture)
    assert max(calls) - min(calls) <= len(CALLS), calls
    status = ncclscope("status", capture)
    assert status.returncode == 0, status.stdout
    rows = opened(capture).sql(
        "SELECT global_rank, count(*), count(DISTINCT (communicator, function, sequence)) "
        "FROM operations GROUP BY global_rank"
    )
    on_record = {rank: (count, different) for rank, count, different in rows.fetchall()}
    assert all(count == different for count, different in on_record.values()), on_record
    assert 0 < on_record[1][0] < calls[1] - 20
    assert all(abs(on_record[rank][0] - calls[rank]) <= len(CALLS) for rank in (0, 2, 3))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "full", "--events", "KernelCh"], "KernelCh cannot be switched"),
        (["--mode", "full", "--seconds", "0"], "--seconds must be positive"),
        (["--reset", "--calls", "5"], "go with --mode"),
        (["--mode", "full", "--rank", "x"], "x names no ranks"),
        (["--mode", "full", "--rank", "99"], "no such process runs. There are ranks 0-3"),
        # Nobody is not everybody.
        (["--mode", "full", "--rank", "3-1"], "3-1 names no ranks"),
    ],
)
def test_mistakes_are_sentences(profiled: Path, words: list[str], said: str) -> None:
    printed = ncclscope("ctl", profiled, *words)
    assert printed.returncode == 2
    assert said in printed.stderr


def test_a_job_that_is_over(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    with running(Scenario(ranks=2, steps=3), capture) as job:
        assert job.wait(timeout=60) == 0
    printed = ncclscope("ctl", capture, "--mode", "full")
    assert printed.returncode == 1
    assert "no process of it runs" in printed.stderr


def test_sampling_can_be_stopped_and_goes_on(profiled: Path) -> None:
    def timings() -> list[list[str]]:
        """GPU timings that the processes have changed to."""
        metas = [
            by_kind(read_meta_file(f / "meta", Damage())[1]) for f in process_folders(profiled)
        ]
        return [[layout.GPU_TIMINGS[int(n)] for n in m.of("Zoom")["gpu_timing"]] for m in metas]

    done = ncclscope("ctl", profiled, "--gpu-timing", "off")
    assert done.stdout == "4 of 4 processes take no GPU times\n", done.stderr
    eventually(lambda: timings() == [["off"]] * 4)
    assert ncclscope("ctl", profiled, "--gpu-timing", "sampled").returncode == 0
    eventually(lambda: timings() == [["off", "sampled"]] * 4)
    pid = process_folders(profiled)[0].name.split(".")[-2]
    said = ncclscope("doctor", "--pid", pid)
    assert f"process {pid} has sampled; it began with sampled: profile mode samples" in said.stdout
    assert re.search(r"switched off from \d+\.\d s to \d+\.\d s of its life, by", said.stdout)


def test_a_request_that_another_one_replaced_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes look twice a second: of two requests in between they see the last."""

    def request_and_another(capture: Path, *lines: str) -> int:
        serial = request(capture, *lines)
        request(capture, "mode trace")
        return serial

    monkeypatch.setattr(ctl, "request", request_and_another)
    env = recording(tmp_path / "c", "profile")
    with start_player("load", "--collectives", 1 << 30, "--rate", 5_000, env=env) as job:
        wait_for_heartbeats_of([folder_of(tmp_path / "c")], 2)
        assert main(["ctl", str(tmp_path / "c"), "--mode", "full"]) == 1
        job.kill()
    assert "did not see this request: another one took its place" in capsys.readouterr().err
