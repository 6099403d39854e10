"""Sampled timing where CUDA is not what it should be: no driver, one without a function, contexts and
graphs that go away, forks. The job goes on, nothing is timed wrongly, everything is counted. On the
simulated NCCL and CUDA, which ends the process where the real driver's behaviour is undefined.
"""

import re
from pathlib import Path

import pytest

from ncclscope.analysis import summary_from_counters, summary_from_operations
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.capture import layout
from ncclscope.capture.call_counts import CallKey
from ncclscope.capture.housekeeping import identity_of, process_folders
from ncclscope.model.build import open_model
from tests.support.callback_script import every_event
from tests.support.paths import ROOT
from tests.support.player import player, recording, write_transcript
from tests.support.sampled_jobs import (
    EVENT_FUNCTIONS,
    MARKER_FUNCTIONS,
    REASONS,
    Rank,
    launches,
    run_calibrated,
    run_sampled,
    run_without_plugin,
    sums,
)

MEMORY_FUNCTIONS = (
    "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamQuery",
    "cuCtxGetDevice", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
)  # fmt: skip
IDENTITY_FUNCTIONS = ("cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId")


def last_counts(rank: Rank) -> list[tuple[int, int]]:
    """The last count of each capture, in order, and whether there may be more."""
    last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
    return [(int(slot["replays"]), int(slot["at_least"])) for _, slot in sorted(last.items())]


def calls_by_key(rank: Rank) -> list[tuple[CallKey, int]]:
    return [(count.key, count.calls) for count in rank.call_counts(layout.LEVEL_WORK)]


def notes_of(rank: Rank) -> bytes:
    texts = rank.meta("Text")
    return b"".join(slot["text"].tobytes() for slot in texts if slot["what"] == layout.TEXT_NOTE)


# ---- the driver ----
def test_without_libcuda_nothing_is_sampled_and_all_is_counted(tmp_path: Path) -> None:
    """The player loads no CUDA: looking for the library fails, and nobody loads it."""
    path = write_transcript(tmp_path / "s.jsonl", every_event(5).lines)
    env = recording(tmp_path / "c", "profile", NCCLSCOPE_GPU_TIMING="sampled")
    done = player("play", path, env=env)
    assert done.returncode == 0, done.stderr
    (folder,) = process_folders(tmp_path / "c")
    identity = identity_of(folder)
    assert identity["gpu_timing.in_force"] == "off"
    assert identity["gpu_timing.reason"] == "no CUDA events: libcuda is missing"
    rank = Rank(folder)
    assert launches(rank) == {}
    assert sums(rank)[0] > 0


def test_each_function_of_the_driver_is_missing_in_a_test() -> None:
    header = (ROOT / "native/src/cuda_driver.h").read_text()
    used = re.findall(r'F\(\w+, "(cu\w+)"', header)
    tried = EVENT_FUNCTIONS + MARKER_FUNCTIONS + MEMORY_FUNCTIONS + IDENTITY_FUNCTIONS
    assert sorted(used) == sorted(tried)


@pytest.mark.parametrize("function", MEMORY_FUNCTIONS)
def test_without_a_function_for_memory_replays_are_counted_in_host_memory(
    tmp_path: Path, function: str
) -> None:
    faults = f"{function}=missing"
    for rank in run_sampled(tmp_path / "c", "graphs:2", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        assert last_counts(rank) == [(2, 0), (3, 0), (4, 0)]
        made = launches(rank)
        assert made["timed"] == made["sampled"] > 0


@pytest.mark.parametrize("function", [*IDENTITY_FUNCTIONS, "cuCtxGetDevice"])
def test_without_a_function_for_the_uuid_a_gpu_has_no_name(tmp_path: Path, function: str) -> None:
    rank, _ = run_sampled(
        tmp_path / "c", "eager:4", NCCLSCOPE_SIM_MIG="1",
        NCCLSCOPE_SIM_CUDA_FAULTS=f"{function}=missing",
    )  # fmt: skip
    assert not rank.meta("Comm")["has_gpu"].any()
    assert launches(rank) == {"sampled": 4, "timed": 4}


# ---- MIG ----
def test_instances_of_a_mig_gpu_are_told_apart_by_uuid_and_share_its_bus_id(
    tmp_path: Path,
) -> None:
    ranks = run_sampled(tmp_path / "c", "eager:8", NCCLSCOPE_SIM_MIG="1")
    uuids = [rank.meta("Comm")["gpu_uuid"][0].tobytes().hex() for rank in ranks]
    assert uuids == [f"51309a7e{number:024x}" for number in (1, 2)]
    for rank, uuid in zip(ranks, uuids, strict=True):
        assert launches(rank) == {"sampled": 8, "timed": 8}
        (clock,) = rank.meta("EventClock")
        assert clock["gpu_uuid"].tobytes().hex() == uuid, "its clock is that of its instance"
    gpus = open_model(tmp_path / "c").gpus
    assert sorted((gpu.global_rank, gpu.uuid, gpu.bus_id) for gpu in gpus) == [
        (number, uuid, "0000:01:00.0") for number, uuid in enumerate(uuids)
    ]


# ---- MPS ----
MPS_ERRORS = {
    805: "connection failed", 806: "RPC failure", 807: "server not ready",
    808: "most clients reached", 809: "most connections reached", 810: "client terminated",
}  # fmt: skip


@pytest.mark.parametrize("error", MPS_ERRORS)
def test_an_error_of_mps_at_init_leaves_all_untimed_and_counted(tmp_path: Path, error: int) -> None:
    """The server has no room, or does not answer: no events can be made."""
    faults = f"cuEventCreate@1+={error}"
    for rank in run_sampled(tmp_path / "c", "eager:8", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        assert launches(rank) == {"sampled": 8, "no_context": 8}
        assert sums(rank) == (8, 0, 0, 8)
        assert b"no CUDA events could be made" in notes_of(rank)


@pytest.mark.parametrize("function", ["cuModuleLoadData", "cuMemHostRegister_v2", "cuLaunchKernel"])
def test_an_error_of_mps_at_calibration_leaves_upper_bounds(tmp_path: Path, function: str) -> None:
    faults = f"{function}@1+=809"
    for rank in run_sampled(tmp_path / "c", "eager:8", NCCLSCOPE_SIM_CUDA_FAULTS=faults):
        (clock,) = rank.meta("EventClock")
        assert clock["calibrated"] == 0
        assert launches(rank) == {"sampled": 8, "timed": 8}
        assert sums(rank) == (8, 8, 0, 0)


@pytest.mark.parametrize("error", [805, 806, 810])
@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_a_server_of_mps_that_goes_away_ends_the_timing_of_its_clients(
    tmp_path: Path, error: int, mode: str
) -> None:
    """After the calibration and a few launches every call into the driver fails, for good. Nothing is
    timed from then on, the context is given up, and all calls are counted.
    """
    functions = {"cuEventRecord": 75, "cuEventQuery": 40, "cuEventElapsedTime": 40}
    functions |= {"cuStreamIsCapturing": 12, "cuLaunchKernel": 60, "cuStreamQuery": 1}
    functions |= {"cuMemcpyDtoHAsync_v2": 1}
    faults = ",".join(f"{name}@{first}+={error}" for name, first in functions.items())
    for rank in run_sampled(
        tmp_path / "c", "sizes:40", "graphs:2", mode=mode, NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        made = launches(rank)
        assert made["sampled"] == made.get("timed", 0) + made["cuda_error"] + made.get(
            "unfinished", 0
        )
        assert made["cuda_error"] > 8
        assert f"failed 8 times in a row, with error {error}".encode() in notes_of(rank)
        works = rank.call_counts(layout.LEVEL_WORK)
        assert sum(count.calls for count in works) >= 40
        assert sum(int(count.times["event_count"]) for count in works) == made.get("timed", 0)


@pytest.mark.parametrize("function", ["cuEventRecord", "cuStreamIsCapturing", "cuEventQuery"])
def test_calls_that_wait_for_other_clients_lose_nothing_and_shorten_nothing(
    tmp_path: Path, function: str
) -> None:
    """From after the calibration on each of these calls takes 2 ms, as where other clients of MPS hold
    the driver: all that was chosen is timed, and no time is shorter than its kernel, which takes at
    least 5 µs in the simulation. It may be longer: the GPU waits for the second event then.
    """
    faults = f"{function}@70+=slow2"
    for rank in run_sampled(
        tmp_path / "c", "eager:40", mode="trace", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        times = rank.slots("LaunchTime")
        assert launches(rank) == {"sampled": len(times), "timed": len(times)}
        assert len(times) >= 8
        assert (times["gpu_stop_ns"] - times["gpu_start_ns"] >= 5_000).all()
        assert sums(rank)[0] == 40


# A query is followed by a pause of at least 20 µs, so these are the most of 100 and of 300 ms.
MOST_QUERIES = {"@1+=600": 5_001, "@2+=600": 15_002}


@pytest.mark.parametrize("fault", MOST_QUERIES)
def test_a_gpu_that_is_busy_for_good_holds_an_init_up_for_so_many_looks_at_most(
    tmp_path: Path, fault: str
) -> None:
    """Nothing of the calibration ever ends, or nothing but its first event. Counted, not timed: the
    init gives up, and every call after it is made and counted.
    """
    faults = f"cuEventQuery{fault}"
    for rank in run_sampled(
        tmp_path / "c", "driver_calls_until_now:8", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        assert 1 < rank.printed[0]["cuEventQuery"] <= MOST_QUERIES[fault]
        (clock,) = rank.meta("EventClock")
        assert clock["reason"] == REASONS["the GPU was busy"]
        assert clock["calibrated"] == 0
        assert launches(rank) == {"sampled": 8, "unfinished": 8}
        assert sums(rank) == (8, 0, 0, 8)


# ---- algorithms whose stop stamps come early ----
def test_an_early_stop_is_a_lower_bound_and_an_event_is_not(tmp_path: Path) -> None:
    sources = {}
    for timing in ("kernel", "sampled"):
        capture = tmp_path / timing
        run_sampled(
            capture, "eager:40", mode="trace", NCCL_ALGO="Tree", NCCLSCOPE_GPU_TIMING=timing
        )
        model = open_model(capture)
        operations, words = model.tables["operations"], model.words
        assert {words["algorithm"][code] for code in operations["algorithm"]} == {"TREE"}
        sources[timing] = {words["source"][code] for code in operations["source"]}
    assert sources["kernel"] == {"gpu-early"}
    assert sources["sampled"] & {"gpu-event", "gpu-event-rough"}
    assert "gpu-early" not in sources["sampled"]


# ---- graphs ----
def test_an_updated_graph_counts_for_the_capture_that_it_became(tmp_path: Path) -> None:
    """Five replays, six after an update, seven after one that CUDA refuses."""
    for rank in run_calibrated(tmp_path / "c", "updated_graph:5"):
        assert rank.printed == [{"update": 0}, {"update": 910}]
        assert last_counts(rank) == [(5, 0), (6 + 7, 0), (0, 0)]


def test_child_graphs_count_as_often_as_they_run(tmp_path: Path) -> None:
    """A graph of three calls is in another one twice, which is replayed five times."""
    for rank in run_sampled(tmp_path / "c", "child_graph:5"):
        assert last_counts(rank) == [(10, 0)]
    model = open_model(tmp_path / "c")
    summary = summary_from_counters.summarize(model, None, None, DEFAULT_BY)
    assert summary.total.operations == 2 * 3 * 10


def test_a_graph_that_is_destroyed_while_its_markers_are_pending_is_counted(
    tmp_path: Path,
) -> None:
    for rank in run_calibrated(tmp_path / "c", "destroyed_graph:5"):
        assert last_counts(rank) == [(5, 0)]


@pytest.mark.parametrize("release", ["2.28", "2.32"])
def test_a_capture_over_two_streams_has_one_marker(tmp_path: Path, release: str) -> None:
    """Its first captured call is one of the stream that joined, then one of its own. Each graph has
    four calls; they are replayed five and six times.
    """
    for rank in run_sampled(tmp_path / "c", "forked_captures:5", mode="trace", release=release):
        assert last_counts(rank) == [(5, 0), (6, 0)]
        made = launches(rank)
        assert made["captured"] == 8
        assert made["timed"] == made["sampled"] >= 8
        captured = rank.slots("KernelLaunch")["capture"]
        assert sorted(captured[captured != 0]) == [1] * 4 + [2] * 4, "both streams, one capture"
    model = open_model(tmp_path / "c")
    replays = model.tables["operations"]["replays"]
    assert int(replays[replays > 0].sum()) == 2 * 4 * (5 + 6)
    summary = summary_from_operations.summarize(model, Selection(), DEFAULT_BY)
    assert summary.total.operations == 2 * (4 * (5 + 6) + 2 * (4 + 1) + 5 + 6)


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_two_threads_capture_at_once(tmp_path: Path, mode: str) -> None:
    """Graphs of three and four calls, replayed five and six times. Neither capture is disturbed by
    what the recorder does in the other thread, and timed calls before and after are timed.
    """
    case = "simultaneous_captures:5"
    alone = run_without_plugin(case)
    ranks = run_sampled(tmp_path / "c", case, mode=mode)
    assert [rank.printed for rank in ranks] == alone == [[{"end_capture": [0, 0]}]] * 2
    for rank in ranks:
        last = {int(slot["capture"]): slot for slot in rank.meta("GraphReplays")}
        counted = [
            (int(slot["launches"]), int(slot["replays"]), int(slot["at_least"]))
            for slot in last.values()
        ]
        assert sorted(counted) == [(3, 5, 0), (4, 6, 0)]
        calls = {int(slot["capture"]): int(slot["calls"]) for slot in rank.meta("GraphCall")}
        assert calls == {number: int(slot["launches"]) for number, slot in last.items()}
        made = launches(rank)
        assert made["captured"] == 3 + 4
        assert made["timed"] == made["sampled"] >= 2 * 8


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_a_capture_that_the_program_spoils_stays_its_own_affair(tmp_path: Path, mode: str) -> None:
    """It waits for the stream that it captures (900, then 901), and leaves another one unjoined
    (904): every call returns what it returns without the recorder. Of each graph after that five
    replays are counted, and none of the spoilt ones.
    """
    case = "invalidated_captures:5"
    alone = run_without_plugin(case)
    spoilt = [900, 1, 1, 901, 1, 901, 0], [904, 1, 904, 0]
    ranks = run_sampled(tmp_path / "c", case, mode=mode)
    assert [rank.printed for rank in ranks] == alone == [[{"codes": [*spoilt[0], *spoilt[1]]}]] * 2
    for rank in ranks:
        assert last_counts(rank) == [(0, 0), (5, 0), (0, 0), (5, 0)]
        made = launches(rank)
        assert made["timed"] == made["sampled"] >= 8, "no error of the context"
        eager_calls = 2 * (2 + 20 + 1)
        counted = {key.count: calls for key, calls in calls_by_key(rank)}
        assert counted[4096] == eager_calls
        assert b"not timed any more" not in notes_of(rank)


# ---- contexts ----
def test_a_destroyed_context_takes_its_own_times_alone(tmp_path: Path) -> None:
    """Of 16 timed launches 8 are of a context that is gone when their events are read; the graph's
    replay is what its marker published.
    """
    for rank in run_calibrated(tmp_path / "c", "destroyed_context:8"):
        assert launches(rank) == {"sampled": 16, "timed": 8, "cuda_error": 8, "captured": 1}
        assert last_counts(rank) == [(1, 1)]
        assert sums(rank) == (17, 8, 1, 8)


@pytest.mark.parametrize(
    "cases", [("destroyed_context:8", "leave:1"), ("graphs:5", "reset_and_leave")]
)
def test_a_destroyed_context_is_not_made_current_at_exit(
    tmp_path: Path, cases: tuple[str, ...]
) -> None:
    """The helper thread reads last counts in their context, where that is alive: the simulated driver
    ends the process that makes a destroyed one current.
    """
    for rank in run_calibrated(tmp_path / "c", *cases):
        assert {at_least for _, at_least in last_counts(rank)} == {1}
        assert all(replays >= 1 for replays, _ in last_counts(rank))


def test_a_context_that_cannot_be_made_current_leaves_a_lower_bound(tmp_path: Path) -> None:
    faults = "cuCtxPushCurrent_v2@1+=709"
    rank, _ = run_calibrated(
        tmp_path / "c", "graphs:5", "leave:1", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    )
    assert {at_least for _, at_least in last_counts(rank)} == {1}


# ---- streams ----
def test_the_legacy_stream_while_another_is_captured_is_no_error_of_the_context(
    tmp_path: Path,
) -> None:
    """CUDA answers 906 then. Eight other errors in a row would give the context up."""
    faults = ",".join(f"cuStreamIsCapturing@{call}=906" for call in range(1, 13))
    for rank in run_sampled(
        tmp_path / "c", "sizes:20", mode="trace", NCCLSCOPE_SIM_CUDA_FAULTS=faults
    ):
        assert launches(rank) == {"sampled": 20, "captured": 12, "timed": 8}
        reasons = [int(slot["reason"]) for slot in rank.slots("LaunchTime")]
        assert reasons.count(REASONS["capture began or ended during the launch"]) == 12
        assert b"not timed any more" not in notes_of(rank)
