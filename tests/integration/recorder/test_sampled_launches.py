"""Launches that are timed by CUDA events: which, what is written of them, and every way in which it
can fail. On the simulated NCCL and CUDA.
"""

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import layout
from ncclscope.capture.process import open_process
from ncclscope.capture.salvage import salvage
from ncclscope.nccl.events import BIT
from tests.support.player import ncclscope
from tests.support.sampled_jobs import (
    EVENT_FUNCTIONS,
    MARKER_FUNCTIONS,
    REASONS,
    SIMULATED_EXCESS_NS,
    launches,
    run_calibrated,
    run_sampled,
    sums,
)

FIRSTS, BLOCK = 8, 256  # of small messages in profile mode, as in native/src/sampling.h
CALLS = FIRSTS + BLOCK


# ---- what is timed ----
def test_the_first_calls_and_one_of_a_block_are_timed_and_all_are_counted(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", f"eager:{CALLS}"):
        assert rank.identity["gpu_timing.in_force"] == "sampled"
        assert launches(rank) == {"sampled": 9, "timed": 9}
        assert sums(rank) == (CALLS, 9, BLOCK - 1, 0)


def test_profile_mode_keeps_no_slots_of_launches_that_are_not_timed(tmp_path: Path) -> None:
    """The process is killed, so its slots are found in its shared memory."""
    ranks = run_sampled(tmp_path / "c", "eager:100", "die", codes=-signal.SIGKILL)
    salvage(tmp_path / "c")
    slots = open_process(ranks[0].folder).slots.segments
    kinds = Counter(int(kind) for segment in slots for kind in segment["kind"])
    made = {name: kinds[layout.KINDS[name]] for name in ("CollApi", "KernelLaunch", "Coll")}
    assert made["CollApi"] == 100
    assert FIRSTS <= made["KernelLaunch"] == made["Coll"] <= FIRSTS + 1


@pytest.mark.parametrize("timing", ["sampled", "kernel"])
def test_a_change_of_the_mode_does_not_part_a_call_and_its_launch(
    tmp_path: Path, timing: str
) -> None:
    """On record are the calls between the changes, and the group that began before the second."""
    for rank in run_sampled(
        tmp_path / "c", "mode_changes_in_groups:30", NCCLSCOPE_GPU_TIMING=timing
    ):
        of_kind = {
            kind: rank.slots(kind) for kind in ("GroupApi", "CollApi", "KernelLaunch", "Coll")
        }
        checks = {kind: set(slots["check"].tolist()) for kind, slots in of_kind.items()}
        parents = {
            kind: {int(parent) & 0xFFFFFFFF for parent in slots["parent"]}
            for kind, slots in of_kind.items()
        }
        assert len(checks["CollApi"]) == 30 + 2
        assert parents["Coll"] == checks["CollApi"]
        assert parents["CollApi"] == checks["GroupApi"]
        assert len(checks["GroupApi"]) == 30 + 1
        # With KernelCh nobody needs launches in profile mode: NCCL does not report the last one.
        asked_for = (
            checks["GroupApi"] if timing == "sampled" else set(sorted(checks["GroupApi"])[:-1])
        )
        assert parents["KernelLaunch"] == asked_for
        assert sums(rank)[0] == 3 * 30 + 4


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_nothing_is_timed_while_sampling_is_switched_off(tmp_path: Path, mode: str) -> None:
    """Of three times 600 calls those in the middle: no launch is chosen, and all are counted as made
    then, exactly.
    """
    calls = 600
    for rank in run_sampled(tmp_path / "c", f"switched_off:{calls}", mode=mode):
        made = launches(rank)
        # And one in each block of 256 calls: of the whole ones, 1, 5 and 6 have no call of these.
        assert made["timed"] == made["sampled"] >= FIRSTS + 3
        (count,) = rank.call_counts(layout.LEVEL_WORK)
        assert int(count.times["timing_off"]) == calls
        timed, not_sampled = sums(rank)[1:3]
        assert (count.calls, timed, not_sampled) == (3 * calls, made["timed"], 2 * calls - timed)
        (call,) = rank.call_counts(layout.LEVEL_CALL)
        assert int(call.times["timing_off"]) == calls
        if mode == "trace":
            noted = rank.slots("KernelLaunch")["states"] & layout.STATE_NOTED != 0
            before, off, after = (int(part.sum()) for part in np.split(noted, 3))
            assert (off, before + after) == (0, made["sampled"])
            assert before >= FIRSTS
            assert after >= calls // 64 - 1, "it goes on"


def test_kernel_events_are_not_asked_for(tmp_path: Path) -> None:
    rank, _ = run_sampled(tmp_path / "c", "eager:10")
    mask = int(rank.meta("Comm")["mask"][0])
    assert not mask & BIT["KernelCh"]
    assert mask & BIT["KernelLaunch"]


def test_all_ranks_time_the_same_calls(tmp_path: Path) -> None:
    chosen = []
    for rank in run_sampled(tmp_path / "c", "eager:300", ranks=3, mode="trace"):
        starts = rank.slots("KernelLaunch")
        noted = starts["states"] & layout.STATE_NOTED != 0
        assert len(starts) == 300
        chosen.append(list(np.flatnonzero(noted)))
    assert chosen[0] == chosen[1] == chosen[2]
    assert chosen[0][:8] == list(range(8))


def test_a_launch_time_names_its_launch_and_lies_after_it(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "eager:100", mode="trace"):
        times, starts = rank.slots("LaunchTime"), rank.slots("KernelLaunch")
        noted = starts[starts["states"] & layout.STATE_NOTED != 0]
        assert (times["reason"] == 0).all()
        handles = {int(parent) & 0xFFFFFFFF for parent in times["parent"]}
        assert handles == {int(check) for check in noted["check"]}
        assert (times["gpu_stop_ns"] > times["gpu_start_ns"]).all()
        assert (times["t1"] > times["t0"]).all()
        # The simulated GPU is on the host's clock: no time may lie outside of what the host saw.
        in_order = np.sort(times, order="gpu_start_ns")
        assert (np.diff(in_order["t0"].astype(np.int64)) >= 0).all()


def test_the_excess_of_events_is_measured_with_markers(tmp_path: Path) -> None:
    """The simulated GPU takes 2 µs for an event."""
    for rank in run_calibrated(tmp_path / "c", "eager:4", ranks=1, excess_ns=SIMULATED_EXCESS_NS):
        (clock,) = rank.meta("EventClock")
        assert clock["calibrated"] == 1
        assert clock["samples"] == 32
        assert clock["excess_busy_ns"] == 2000
        assert clock["excess_idle_ns"] >= 2000


def test_operations_of_one_launch_share_its_time(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", f"messages:{CALLS}"):
        for count in rank.call_counts(layout.LEVEL_WORK):
            assert count.times["event_count"] == count.times["event_grouped"] == 9


def test_a_broadcast_without_a_launch_is_timed_around_its_group(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", f"broadcast:{CALLS}", release="2.30"):
        assert sums(rank, layout.LEVEL_CALL)[:2] == (CALLS, 9)
        assert not rank.call_counts(layout.LEVEL_WORK)


@pytest.mark.parametrize("release", ["2.28", "2.30"])
def test_symmetric_kernels_without_launches_are_timed_around_their_groups(
    tmp_path: Path, release: str
) -> None:
    """NCCL reports their calls alone. The first one shows that no launch comes."""
    for rank in run_sampled(
        tmp_path / "c", f"eager:{CALLS}", release=release, NCCLSCOPE_SIM_SYMMETRIC="1"
    ):
        assert sums(rank, layout.LEVEL_CALL)[:2] == (CALLS, 8)
        assert launches(rank) == {"sampled": 8, "timed": 8}
        assert not rank.call_counts(layout.LEVEL_WORK)


def test_symmetric_kernels_with_launches_are_timed_as_all_others(tmp_path: Path) -> None:
    for rank in run_sampled(
        tmp_path / "c", f"eager:{CALLS}", release="2.32", mode="trace", NCCLSCOPE_SIM_SYMMETRIC="1"
    ):
        assert (rank.slots("Coll")["bits"] & layout.COLL_IS_SYMMETRIC).all()
        timed = launches(rank)["timed"]
        assert timed == launches(rank)["sampled"] > FIRSTS
        assert sums(rank) == (CALLS, timed, CALLS - timed, 0)


def test_symmetric_kernels_in_graphs_are_counted_by_replay(tmp_path: Path) -> None:
    """The first captured call shows that no launch comes; the graphs after it have their marker."""
    for rank in run_sampled(tmp_path / "c", "graphs:5", NCCLSCOPE_SIM_SYMMETRIC="1"):
        replays = {int(slot["capture"]): int(slot["replays"]) for slot in rank.meta("GraphReplays")}
        assert sorted(replays.values()) == [5, 6, 7]


@pytest.mark.parametrize(
    "case", [f"default_streams:{CALLS}", f"short_lived_streams:{CALLS}", f"fork:{CALLS - 4}"]
)
def test_streams_and_forks_of_all_kinds(tmp_path: Path, case: str) -> None:
    for rank in run_sampled(tmp_path / "c", case):
        assert launches(rank)["timed"] == launches(rank)["sampled"] == 9


def test_threads_share_a_pool(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "threads:40"):
        made = launches(rank)
        assert made["sampled"] == made["timed"] >= 16


def test_every_context_has_its_own_clock_and_unknown_ones_have_none(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "devices:8", mode="trace"):
        clocks = rank.meta("EventClock")
        assert list(clocks["clock"]) == [0, 1]
        times = rank.slots("LaunchTime")
        timed = times[times["reason"] == 0]
        assert {(int(t["comm"]), int(t["clock"])) for t in timed} == {(0, 0), (1, 1)}
        assert launches(rank) == {"sampled": 24, "timed": 16, "no_context": 8}


# ---- graphs ----
def test_replays_are_counted_in_every_capture_mode(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "graphs:5"):
        last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
        assert sorted(int(slot["replays"]) for slot in last.values()) == [5, 6, 7]
        assert {int(slot["launches"]) for slot in last.values()} == {3}
        assert {int(slot["reason"]) for slot in last.values()} == {0}
        assert {int(slot["at_least"]) for slot in last.values()} == {0}
        calls = {int(slot["capture"]): int(slot["calls"]) for slot in rank.meta("GraphCall")}
        assert calls == dict.fromkeys(last, 3)
        assert launches(rank)["captured"] == 9


@pytest.mark.parametrize("come_back", [0, 1])
def test_graphs_are_written_again_where_metadata_is_begun_anew(
    come_back: int, tmp_path: Path
) -> None:
    for rank in run_sampled(tmp_path / "c", "graphs:5", f"delete_metadata:{come_back}"):
        last = {int(slot["capture"]): int(slot["replays"]) for slot in rank.meta("GraphReplays")}
        assert sorted(last.values()) == [5, 6, 7]
        calls = {int(slot["capture"]): int(slot["calls"]) for slot in rank.meta("GraphCall")}
        assert calls == dict.fromkeys(last, 3)


def test_captured_launches_say_which_capture_took_them(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "graphs:5", mode="trace"):
        starts = rank.slots("KernelLaunch")
        captured = starts[starts["flags"] & layout.FLAG_GRAPH != 0]
        assert len(captured) == 9
        assert len(set(captured["capture"])) == 3


def test_replays_are_counted_where_nccl_reports_them_too(tmp_path: Path) -> None:
    """Over a network NCCL reports every replay: its works are counted, and the marker agrees."""
    for rank in run_sampled(tmp_path / "c", "graphs:5", one_host=False):
        last = {int(slot["capture"]): int(slot["replays"]) for slot in rank.meta("GraphReplays")}
        assert sorted(last.values()) == [5, 6, 7]
        works = {count.key.count: count.calls for count in rank.call_counts(layout.LEVEL_WORK)}
        assert works[1024] == 3 * (5 + 6 + 7)


@pytest.mark.parametrize(
    "fault",
    ["cuMemAlloc_v2=missing", "cuMemAlloc_v2@1=2", "cuMemcpyHtoDAsync_v2@1=1",
     "cuDevicePrimaryCtxGetState@1+=3"],
)  # fmt: skip
def test_replays_are_counted_without_memory_of_the_gpu(tmp_path: Path, fault: str) -> None:
    rank, _ = run_sampled(tmp_path / "c", "graphs:5", NCCLSCOPE_SIM_CUDA_FAULTS=fault)
    last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
    assert sorted(int(slot["replays"]) for slot in last.values()) == [5, 6, 7]
    assert {int(slot["at_least"]) for slot in last.values()} == {0}


@pytest.mark.parametrize(
    "fault", ["cuMemcpyDtoHAsync_v2@1+=1", "cuStreamQuery@1+=600", "cuStreamQuery@1+=709"]
)
def test_a_count_that_cannot_be_read_at_the_end_is_a_lower_bound(
    tmp_path: Path, fault: str
) -> None:
    rank, _ = run_sampled(tmp_path / "c", "graphs:5", NCCLSCOPE_SIM_CUDA_FAULTS=fault)
    last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
    in_order = [slot for _, slot in sorted(last.items())]
    for slot, made in zip(in_order, (5, 6, 7), strict=True):
        assert 1 <= slot["replays"] <= made
        assert slot["at_least"]


def test_replays_are_exact_where_the_communicator_stays_open(tmp_path: Path) -> None:
    """The helper thread reads the counts when the process ends."""
    rank, _ = run_sampled(tmp_path / "c", "graphs:5", "leave:1")
    last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
    assert sorted(int(slot["replays"]) for slot in last.values()) == [5, 6, 7]
    assert {int(slot["at_least"]) for slot in last.values()} == {0}


def test_replays_of_a_context_that_is_gone_are_a_lower_bound(tmp_path: Path) -> None:
    rank, _ = run_sampled(tmp_path / "c", "graphs:5", "device_reset:1")
    for slot in {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}.values():
        assert 1 <= slot["replays"] <= 7
        assert slot["at_least"]


def test_markers_can_be_switched_off(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "graphs:5", NCCLSCOPE_GRAPH_MARKERS="0"):
        assert rank.identity["graph_markers"] == "off: NCCLSCOPE_GRAPH_MARKERS=0"
        slots = rank.meta("GraphReplays")
        assert {int(slot["replays"]) for slot in slots} == {0}
        assert {int(slot["reason"]) for slot in slots} == {REASONS["switched off"]}


def test_a_capture_by_another_thread_is_not_disturbed(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "capture_in_another_thread:20"):
        assert rank.printed == [{"end_capture": 0}]
        assert launches(rank)["timed"] == launches(rank)["sampled"]


# ---- faults ----
@pytest.mark.parametrize("function", EVENT_FUNCTIONS)
def test_without_a_function_nothing_is_sampled(tmp_path: Path, function: str) -> None:
    faults = f"{function}=missing"
    for rank in run_sampled(tmp_path / "c", "eager:20", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        assert rank.identity["gpu_timing.in_force"] == "off"
        assert function in rank.identity["gpu_timing.reason"]
        assert sums(rank)[0] == 20


@pytest.mark.parametrize("function", MARKER_FUNCTIONS)
@pytest.mark.parametrize("fault", ["=missing", "@1+=999"])
def test_without_markers_launches_are_timed_all_the_same(
    tmp_path: Path, function: str, fault: str
) -> None:
    faults = f"{function}{fault}"
    for rank in run_sampled(
        tmp_path / "c", "eager:20", "graphs:2", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        (clock,) = rank.meta("EventClock")
        made = launches(rank)
        assert made["timed"] == made["sampled"] > 0
        if (function, fault) != ("cuStreamGetCaptureInfo_v2", "@1+=999"):
            assert clock["calibrated"] == 0
            assert clock["reason"] != 0
        assert {int(slot["replays"]) for slot in rank.meta("GraphReplays")} <= {0} or (
            function == "cuStreamCreate"
        )


FAILING = {
    "cuEventRecord@70+=700": "cuda_error",  # 64 are recorded at init
    "cuEventQuery@20+=709": "cuda_error",  # at least 17 at init, and one for each launch
    "cuEventElapsedTime@33+=1": "cuda_error",
    "cuStreamIsCapturing@1+=700": "cuda_error",
    "cuCtxGetCurrent@2+=3": "no_context",  # the first one is at init
    "cuStreamIsCapturing@2=capturing": "captured",  # between the two records
}


@pytest.mark.parametrize("faults", FAILING)
def test_a_launch_that_fails_is_counted_with_its_reason(tmp_path: Path, faults: str) -> None:
    for rank in run_sampled(tmp_path / "c", f"eager:{CALLS}", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        made = launches(rank)
        sampled = made.pop("sampled")
        assert sampled == 9
        assert made.pop(FAILING[faults]) >= 1
        assert set(made) <= {"timed", "cuda_error"}
        operations, timed, not_sampled, failed = sums(rank)
        assert operations == timed + not_sampled + failed == CALLS
        assert failed >= 1


def test_a_context_is_given_up_after_errors_and_said_once(tmp_path: Path) -> None:
    faults = "cuEventRecord@65+=700"
    for rank in run_sampled(
        tmp_path / "c", "sizes:40", mode="trace", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        reasons = [layout.TIMING_REASONS[slot["reason"]] for slot in rank.slots("LaunchTime")]
        assert reasons[:8] == ["CUDA error"] * 8
        assert set(reasons[8:]) == {"too many CUDA errors before"}
        notes = b"".join(
            slot["text"].tobytes() for slot in rank.meta("Text") if slot["what"] == layout.TEXT_NOTE
        )
        assert notes.count(b"cuEventRecord") == 1


def test_a_pool_that_runs_dry_times_no_further_launch(tmp_path: Path) -> None:
    """Nothing is ever finished."""
    faults = "cuEventQuery@1+=600"
    for rank in run_sampled(tmp_path / "c", "sizes:300", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        (clock,) = rank.meta("EventClock")
        assert clock["reason"] == REASONS["the GPU was busy"]
        assert launches(rank) == {"sampled": 300, "pool_empty": 300 - 256, "unfinished": 256}
        assert sums(rank) == (300, 0, 0, 300)


def test_a_device_reset_ends_the_timing_of_its_context(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "device_reset:30", mode="trace"):
        made = launches(rank)
        assert made["sampled"] == made.get("timed", 0) + made["cuda_error"]
        times = rank.slots("LaunchTime")
        timed = times[times["reason"] == 0]
        assert (timed["gpu_stop_ns"] > timed["gpu_start_ns"]).all(), "none of an event that is gone"


def test_a_process_may_end_while_events_are_pending(tmp_path: Path) -> None:
    for rank in run_sampled(tmp_path / "c", "leave:8"):
        made = launches(rank)
        assert made["sampled"] == made.get("timed", 0) + made["unfinished"] == 8


# ---- policies ----
@pytest.mark.parametrize(
    ("mode", "asked", "in_force", "why"),
    [
        ("profile", "auto", "sampled", "profile mode samples"),
        ("trace", "auto", "kernel", "single operations"),
        ("trace", "sampled", "sampled", ""),
        ("profile", "kernel", "kernel", ""),
        ("full", "off", "off", ""),
    ],
)
def test_the_identity_says_which_timing_is_in_force(
    tmp_path: Path, mode: str, asked: str, in_force: str, why: str
) -> None:
    rank, _ = run_sampled(tmp_path / "c", "eager:4", mode=mode, NCCLSCOPE_GPU_TIMING=asked)
    assert rank.identity["gpu_timing.asked"] == asked
    assert rank.identity["gpu_timing.in_force"] == in_force
    assert why in rank.identity["gpu_timing.reason"]
    assert bool(int(rank.meta("Comm")["mask"][0]) & BIT["KernelCh"]) == (in_force == "kernel")


@pytest.mark.parametrize("mode", ["profile", "trace", "full"])
def test_nothing_is_sampled_where_nccl_reports_no_launches(tmp_path: Path, mode: str) -> None:
    """Interface v4, NCCL 2.27: KernelCh in its place is not switched on at any time."""
    ranks = run_sampled(
        tmp_path / "c", "eager:40", "messages:10", "graphs:3", mode=mode, release="2.27"
    )
    why = "NCCL's profiler interface v4 reports no launches to sample"
    for rank in ranks:
        assert rank.identity["gpu_timing.in_force"] == "off"
        assert rank.identity["gpu_timing.reason"] == why
        assert not int(rank.meta("Comm")["mask"][0]) & BIT["KernelCh"]
        assert launches(rank) == {}
        calls = {count.key.count: count.calls for count in rank.call_counts(layout.LEVEL_WORK)}
        assert calls[4096] == 40 + 3 + 4 + 5, "eager, and between replays"
        assert sums(rank)[1:] == (0, 0, 0)
    said = ncclscope("report", tmp_path / "c", env={"COLUMNS": "160"}).stdout
    assert f"GPU timing off (asked for sampled): {why}" in said
    assert "from a sample" not in said
    refused = ncclscope("ctl", tmp_path / "c", "--gpu-timing", "sampled")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
