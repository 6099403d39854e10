"""One rank of a job records totals only for a while: everybody says which share is not on record."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclscope import open as opened
from ncclscope.analysis.own_time import own_times
from ncclscope.analysis.recording_coverage import recorded_ns
from ncclscope.analysis.run import Run
from ncclscope.capture.reader import open_capture
from ncclscope.capture.recording_windows import windows_of
from ncclscope.model.build import open_model
from ncclscope.simulation.scenario import Call, Communicators, Scenario
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.timelines import wait_until_done
from tests.support.waiting import eventually

CALLS = (Call("world", "AllReduce", 1 << 18), Call("tp", "AllReduce", 1 << 14))
JOB = Scenario(
    name="paused",
    ranks=4,
    ranks_per_host=2,
    steps=500,
    compute_ms=10,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=CALLS,
)
EACH = JOB.steps * len(CALLS)  # calls of a rank
MADE = 4 * EACH


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 pauses after a moment, and goes on a second or two later."""
    path = tmp_path_factory.mktemp("paused") / "capture"
    with running(JOB, path, "--mode", "trace") as job:
        eventually(lambda: len(list(path.glob("*/live"))) == 4)
        for change in (("--mode", "profile"), ("--reset",)):
            said = ncclscope("ctl", path, *change, "--rank", "1")
            assert said.returncode == 0, said.stderr
        assert job.wait(timeout=90) == 0
    return path


def report(capture: Path, *options: str) -> dict[str, Any]:
    printed = ncclscope("report", capture, "--json", *options)
    assert printed.returncode == 0, printed.stderr
    answer: dict[str, Any] = json.loads(printed.stdout)
    return answer


def test_what_is_not_on_record_is_counted(capture: Path) -> None:
    model = open_model(capture)
    whole, rows = model.completeness, {row.global_rank: row for row in model.processes}
    assert {rank: row.calls_counted for rank, row in rows.items()} == dict.fromkeys(range(4), EACH)
    assert [rows[rank].calls for rank in (0, 2, 3)] == [EACH] * 3
    assert 0 < rows[1].calls < EACH
    assert [rank for rank, row in sorted(rows.items()) if row.paused] == [1]
    assert whole.calls_outside == EACH - rows[1].calls
    assert whole.calls + whole.calls_outside == MADE
    assert (whole.paused_processes, whole.missing_operations) == (1, 0)
    assert 0 < whole.recorded_ns < whole.lived_ns
    assert "stamps are ambiguous" not in whole.untimed, "an operation at the edge misled the rest"
    assert f"{whole.calls:,} of {MADE:,} calls" in whole.line()


def test_windows_are_those_of_the_zoom_records(capture: Path) -> None:
    (one,) = (process for process in open_capture(capture).processes if process.rank == 1)
    first, second = windows_of(one).recorded
    paused_ns = second[0] - first[1]
    assert paused_ns > 500_000_000
    assert windows_of(one).lived_ns - windows_of(one).recorded_ns == paused_ns
    for process in open_capture(capture).processes:
        if process.rank != 1:
            assert windows_of(process).lived_ns == windows_of(process).recorded_ns > 0
    rows = (
        opened(capture)
        .sql(
            "SELECT count(*), sum(w.end_ns - w.start_ns), max(p.global_rank) "
            "FROM windows w JOIN processes p USING (process)"
        )
        .fetchall()
    )
    assert rows == [(2, windows_of(one).recorded_ns, 1)]


def test_the_report_says_so_for_every_group(capture: Path) -> None:
    whole = report(capture)
    assert whole["total"]["calls_counted"] == MADE
    assert whole["completeness"]["calls_outside"] == MADE - whole["total"]["calls"]
    of_communicators = {one["name"]: one["calls_counted"] for one in whole["communicators"]}
    assert of_communicators == {"world": MADE // 2, "tp": MADE // 4, "tp#2": MADE // 4}
    assert {one["calls_counted"] for one in whole["operations"]} == {MADE // 2, MADE // 4}
    by_rank = {one["rank"]: one for one in report(capture, "--by", "rank")["operations"]}
    assert {one["calls_counted"] for one in by_rank.values()} == {EACH}
    assert by_rank[1]["calls"] < by_rank[0]["calls"] == EACH
    by_algorithm = report(capture, "--by", "algorithm")["operations"]
    assert {one["calls_counted"] for one in by_algorithm} == {None}, "counters cannot tell"
    text = ncclscope("report", capture).stdout
    assert "1 process recorded single calls for" in text
    assert f"of {MADE:,} calls" in text
    assert "counted: calls that were made" in text


def test_shares_are_of_the_time_on_record(capture: Path) -> None:
    model = open_model(capture)
    whole = model.tables["operations"]
    assert (whole["call_ns"] >= 0).all(), "an operation without its call"
    began, ended = int(whole["call_ns"].min()), int(whole["end_ns"].max())
    on_record = recorded_ns(model, began, ended)
    assert list(on_record) == [1]
    windows = model.tables["windows"]
    first, second = windows["end_ns"][0], windows["start_ns"][1]
    assert on_record[1] == ended - began - (second - first) + min(windows["end_ns"][1] - ended, 0)


def test_nobody_takes_the_pause_for_computing(capture: Path) -> None:
    model = open_model(capture)
    run = Run(model)
    gap_ns = own_times(run).gap_ns
    (paused,) = {int(process) for process in model.tables["windows"]["process"]}
    again = int(model.tables["windows"]["start_ns"][1])
    ops = model.tables["operations"]
    later = np.flatnonzero((ops["process"] == paused) & run.timed & (ops["start_ns"] >= again))
    first = later[np.argmin(ops["start_ns"][later])]
    assert np.isnan(gap_ns[first])
    assert not np.isnan(gap_ns[later]).all()
    printed = ncclscope("diagnose", capture)
    assert f"of {MADE:,} calls" in printed.stdout
    assert ncclscope("status", capture).returncode == 0


def test_the_timeline_says_so(capture: Path) -> None:
    timeline = Timeline(capture)
    timeline.start()
    try:
        wait_until_done(timeline)
        scene = json.loads(Routes(timeline)("api/scene", {}).body)
        first_ns = timeline.scene.first_ns
    finally:
        timeline.stop()
    assert f"of {MADE:,} calls" in scene["completeness"]
    model = open_model(capture)
    (one,) = {int(process) for process in model.tables["windows"]["process"]}
    assert [bool(pauses) for pauses in scene["pauses"]] == [n == one for n in range(4)]
    windows = model.tables["windows"]
    pause = [int(windows["end_ns"][0]) - first_ns, int(windows["start_ns"][1]) - first_ns]
    assert pause in scene["pauses"][one]
