"""Operations of jobs whose launches were sampled: sources, reasons, replays, and reports of both."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis import summary_from_counters, summary_from_operations
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.capture.contents import contents_of_capture
from ncclscope.cli.run_summary import timing_lines
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.process.durations import COUNTED_REPLAYS
from ncclscope.model.schema import NOT_SAMPLED, TIMING_OFF
from tests.support.player import ncclscope
from tests.support.sampled_jobs import SIMULATED_EXCESS_NS, run_calibrated, run_sampled


def names_of(model: Model, column: str) -> dict[str, int]:
    """How often each name occurs in a column of operations."""
    codes, counts = np.unique(model.tables["operations"][column], return_counts=True)
    return {model.words[column][code]: int(n) for code, n in zip(codes, counts, strict=True)}


def calibrated(folder: Path, mode: str) -> Path:
    """The capture of a job whose events were measured, on all ranks."""
    cases = ("eager:300", "messages:72", "graphs:5")
    ranks = run_calibrated(folder, *cases, mode=mode, excess_ns=SIMULATED_EXCESS_NS)
    return ranks[0].folder.parent


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrated(tmp_path_factory.mktemp("sampled"), "trace")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrated(tmp_path_factory.mktemp("sampled"), "profile")


def test_launches_give_operations_their_times(traced: Path) -> None:
    model = open_model(traced)
    operations = model.tables["operations"]
    sources = names_of(model, "source")
    by_events = sum(sources.get(name, 0) for name in ("gpu-event", "gpu-event-rough"))
    assert by_events >= 2 * 12, "8 first calls and one of each block, on two ranks"
    assert sources["gpu-event-upper"] == 2 * 2 * 9, "a Send and a Recv share their launch"
    timed = operations["duration_ns"] >= 0
    assert (operations["start_ns"][timed] >= operations["launch_ns"][timed] - 1_000_000).all()
    # The simulated GPU takes 2 µs for an event, and takes them off again.
    assert {row.event_excess_ns for row in model.processes} == {SIMULATED_EXCESS_NS}
    assert {row.gpu_timing for row in model.processes} == {"sampled"}


def test_what_was_not_chosen_has_that_reason(traced: Path) -> None:
    reasons = names_of(open_model(traced), "reason")
    assert reasons[NOT_SAMPLED] > 500
    assert reasons[COUNTED_REPLAYS] == 2 * 9, "captured calls"


def test_replays_that_markers_counted_are_operations(traced: Path, profiled: Path) -> None:
    """Graphs of 3 calls, replayed 5, 6 and 7 times on each of two ranks."""
    model = open_model(traced)
    replays = model.tables["operations"]["replays"]
    assert int(replays[replays > 0].sum()) == 2 * 3 * (5 + 6 + 7)
    assert model.completeness.untimed[COUNTED_REPLAYS] == 108
    by_operations = summary_from_operations.summarize(model, Selection(), DEFAULT_BY)
    by_counters = summary_from_counters.summarize(open_model(profiled), None, None, DEFAULT_BY)
    for summary in (by_operations, by_counters):
        graphs = next(group for group in summary.groups if group.keys["size"] == 4096)
        assert (graphs.calls, graphs.operations, graphs.bytes) == (18, 108, 108 * 4096)
        assert graphs.durations is None
    assert by_operations.total.operations == by_counters.total.operations
    assert by_operations.total.bytes == by_counters.total.bytes


def test_totals_of_a_sample_have_intervals(traced: Path, profiled: Path) -> None:
    """The simulated GPU takes the same time for each AllReduce of 16 KiB but the first."""
    model = open_model(traced)
    by_operations = summary_from_operations.summarize(model, Selection(), DEFAULT_BY)
    by_counters = summary_from_counters.summarize(open_model(profiled), None, None, DEFAULT_BY)
    for summary in (by_operations, by_counters):
        group = next(group for group in summary.groups if group.keys["size"] == 16384)
        assert group.sample
        assert group.durations
        assert group.sample.operations == group.operations == 2 * 318
        assert group.sample.timed == group.durations.operations < 40
        total = group.sample.total_ns
        assert total.low is not None
        assert total.high is not None
        assert total.low <= total.value <= total.high
        assert total.value == pytest.approx(group.durations.total_ns, abs=1)
        median = group.sample.median_ns
        assert median
        assert median.low is not None
        assert median.low <= 28_288 <= (median.high or 10**9)
        shown = summary.total.sample
        assert shown
        assert shown.operations == summary.total.operations - 108, "replays cannot be sampled"


@pytest.mark.parametrize("mode", ["profile", "trace"])
def test_what_was_called_while_sampling_was_off_is_not_estimated(tmp_path: Path, mode: str) -> None:
    """The middle third of three times 600 calls on two ranks."""
    calls = 600
    capture = run_calibrated(tmp_path, f"switched_off:{calls}", mode=mode)[0].folder.parent
    model = open_model(capture)
    if mode == "trace":
        assert names_of(model, "reason")[TIMING_OFF] == 2 * calls
        summary = summary_from_operations.summarize(model, Selection(), DEFAULT_BY)
    else:
        summary = summary_from_counters.summarize(model, None, None, DEFAULT_BY)
    assert summary.untimed[TIMING_OFF] == 2 * calls
    (group,) = summary.groups
    for shown in (group, summary.total):
        assert shown.operations == 2 * 3 * calls
        assert shown.sample
        assert shown.sample.operations == 2 * 2 * calls
        mean_ns = shown.sample.total_ns.value / (2 * 2 * calls)
        assert 20_000 < mean_ns < 10**6, "the total is of the operations that it stands for"
        assert shown.run_share is None
    for row in model.processes:
        (off, began), (on, ended) = row.timing_changes
        assert (row.gpu_timing, off, on) == ("sampled", "off", "sampled")
        assert row.gpu_timing_off_ns / 1e9 == pytest.approx(ended - began, abs=0.11)
    text = ncclscope("report", capture, env={"COLUMNS": "200"}).stdout
    assert re.search(
        r"GPU timing was switched off by ctl in 2 processes: off from \d+\.\d s to \d+\.\d s; "
        rf"no number covers the GPU times of the {2 * calls:,} operations of that time",
        text,
    )
    assert f"{2 * calls:,} operations could not be sampled, and no number above" in text
    made = json.loads(ncclscope("report", "--json", capture).stdout)
    assert [change["in_force"] for change in made["gpu_timing"][0]["changes"]] == ["off", "sampled"]
    said = timing_lines(contents_of_capture(capture))
    assert re.fullmatch(
        r"GPU timing was switched off from \d+\.\d s to \d+\.\d s( in 1 process)?, by ctl", said[1]
    )


def test_a_broadcast_without_a_kernel_event_is_timed(tmp_path: Path) -> None:
    run_sampled(tmp_path / "c", "broadcast:40", mode="trace", release="2.30")
    model = open_model(tmp_path / "c")
    assert names_of(model, "reason")[NOT_SAMPLED] < 2 * 40
    summary = summary_from_operations.summarize(model, Selection(), DEFAULT_BY)
    (group,) = summary.groups
    assert group.durations
    assert group.durations.operations >= 16


@pytest.mark.parametrize("kind", ["traced", "profiled"])
def test_the_report_says_what_was_timed(kind: str, request: pytest.FixtureRequest) -> None:
    capture = request.getfixturevalue(kind)
    text = ncclscope("report", capture, env={"COLUMNS": "160"}).stdout
    assert "GPU timing sampled (asked for sampled)" in text
    assert "CUDA events: 2.00 µs taken off, exact to ±" in text
    assert "── from a sample ──" in text
    assert "108 operations could not be sampled" in text
    made = json.loads(ncclscope("report", "--json", capture).stdout)
    assert {row["in_force"] for row in made["gpu_timing"]} == {"sampled"}
    sample = made["total"]["sample"]
    assert sample["total_ns"]["low"] <= sample["total_ns"]["value"] <= sample["total_ns"]["high"]
    lines = ncclscope("report", "--csv", capture).stdout.splitlines()
    assert len({line.count(",") for line in lines}) == 1
    assert "total_ns_low" in lines[0]


@pytest.mark.parametrize("kind", ["traced", "profiled"])
def test_sends_and_receives_take_at_most_so_long(kind: str, request: pytest.FixtureRequest) -> None:
    """A Send and its Recv share a launch: each gets its whole time."""
    capture = request.getfixturevalue(kind)
    lines = ncclscope("report", capture, env={"COLUMNS": "200"}).stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("Send ", "Recv "))]
    assert len(rows) == 2
    for row in rows:
        assert [cell[0] for cell in row[5:10]] == ["≤"] * 5, "min, median, mean, p99, max"
        assert all(cell.startswith("≤≈") for cell in row[6:9])
    intervals = [line for line in lines if line.split()[1:3] in (["Send", "8K"], ["Recv", "8K"])]
    assert len(intervals) == 2
    assert all("≤" in line and "[" not in line for line in intervals)
    assert sum(line.startswith("≤: at most") for line in lines) == 2
    made = json.loads(ncclscope("report", "--json", capture).stdout)
    rows_with_sends = [made["total"], *made["communicators"]]
    rows_with_sends += [row for row in made["operations"] if row["function"] in ("Send", "Recv")]
    assert [row.get("duration_is_upper_bound") for row in rows_with_sends] == [True] * 4


def test_totals_within_and_across_nodes_are_of_all_operations(tmp_path: Path) -> None:
    """Profile mode: what is timed is a sample, and stands for all in every table."""
    scenario = tmp_path / "job.toml"
    scenario.write_text(
        "ranks = 4\nranks_per_host = 2\nsteps = 60\ncompute_ms = 0\n"
        'communicator = [{name = "tp", size = 2}, {name = "dp", size = 2, stride = 2}]\n'
        'call = [{communicator = "tp", function = "AllReduce", size = "1M"},'
        ' {communicator = "dp", function = "AllReduce", size = "1M"}]\n'
    )
    job = (sys.executable, "-m", "ncclscope.simulation", scenario)
    done = ncclscope("run", "--mode", "profile", "-o", tmp_path / "c", "--", *job)
    assert done.returncode == 0, done.stderr
    made = json.loads(ncclscope("report", "--json", tmp_path / "c").stdout)
    scopes = {row["scope"]: row for row in made["scopes"]}
    assert set(scopes) == {"intra-node", "inter-node"}
    for row in scopes.values():
        assert row["sample"]["operations"] == row["operations"] == 2 * 2 * 60
    totals = sum(row["total_ns"] for row in scopes.values())
    assert totals == pytest.approx(made["total"]["total_ns"], abs=4)
    by_size = sum(row["gpu_ns_estimate"]["value"] for row in made["sizes"])
    assert by_size == pytest.approx(made["total"]["total_ns"], abs=4)


def test_a_lower_bound_of_replays_is_said(tmp_path: Path, traced: Path) -> None:
    """The GPU's last counts cannot be read."""
    fault = {"NCCLSCOPE_SIM_CUDA_FAULTS": "cuMemcpyDtoHAsync_v2@1+=1"}
    run_sampled(tmp_path / "c", "graphs:5", mode="trace", **fault)
    said = "replays of 3 CUDA graphs are counted up to the last heartbeat: there may be more"
    assert sum(note.endswith(said) for note in open_model(tmp_path / "c").completeness.notes) == 1
    assert not any("there may be more" in note for note in open_model(traced).completeness.notes)
