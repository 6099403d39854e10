"""The critical path of a job with a late rank, in traces, in Parquet and in the timeline."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ncclscope.cli import main
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.recording import Recording
from tests.support.timelines import TimelineClient, all_lanes
from tests.support.trace_processor import needs_trace_processor, query


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 of 2 is 8 ms late in each of 25 steps."""
    path = tmp_path_factory.mktemp("path") / "c"
    all_kinds()["ddp 2, late rank"].write(path, 1)
    return path


def export(capture: Path, target: Path) -> None:
    assert main(["export", str(capture), "-o", str(target), "--critical-path"]) == 0


@pytest.fixture(scope="module")
def rows(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The table `critical_path` of a dataset."""
    dataset = tmp_path_factory.mktemp("dataset") / "d.parquet"
    export(capture, dataset)
    table = duckdb.sql(f"select * from '{dataset}/critical_path/*.parquet'")
    names = table.columns
    described = json.loads((dataset / "schema.json").read_text())["tables"]["critical_path"]
    assert [column["name"] for column in described] == names
    assert main(["report", str(dataset)]) == 0  # readers leave the table alone
    return [dict(zip(names, row, strict=True)) for row in table.fetchall()]


def test_the_path_has_no_gaps_and_holds_the_planted_delays(rows: list[dict[str, Any]]) -> None:
    assert all(one["end_ns"] == two["start_ns"] for one, two in pairwise(rows))
    late = [r for r in rows if r["global_rank"] == 1 and r["kind"].startswith("host")]
    planted_ns = 8_000_000
    long = [row for row in late if row["excess_ns"] > 0.9 * planted_ns]
    assert len(long) >= 20
    assert {row["function"] for row in long} == {"AllReduce"}


def test_chrome_draws_the_path_on_the_ranks_that_it_runs_through(
    capture: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    export(capture, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in events if event.get("cat") == "critical path"]
    assert sorted((s["ts"], s["args"]["operation"]) for s in slices) == [
        (row["start_ns"] / 1000, row["operation"]) for row in rows
    ]


@needs_trace_processor()
def test_perfetto_has_one_line_through_the_path(
    capture: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    trace = tmp_path / "t.pftrace"
    export(capture, trace)
    slices, arrows = query(
        trace,
        "select ts, dur from slice where category = 'critical path' order by ts",
        "select count(*) as n from flow f join slice a on a.id = f.slice_out "
        "join slice b on b.id = f.slice_in "
        "where a.category = 'critical path' and b.category = 'critical path'",
    )
    assert [(s["ts"], s["ts"] + s["dur"]) for s in slices] == [
        (row["start_ns"], row["end_ns"]) for row in rows
    ]
    assert arrows[0]["n"] == len(rows) - 1


def test_the_timeline_has_a_lane_for_it_above_all_hosts(
    capture: Path, rows: list[dict[str, Any]]
) -> None:
    asked = TimelineClient(capture)
    scene = asked.ask("scene")
    lane = scene["lanes"][0]
    assert (lane["level"], lane["title"]) == ("path", "critical path")
    assert [one["level"] for one in all_lanes(scene)].count("path") == 1
    number = lane["tracks"][0]["rows"][0]
    longest = max(range(len(rows)), key=lambda n: rows[n]["end_ns"] - rows[n]["start_ns"])
    bar = asked.ask("item", row=number, item=longest)
    assert bar["title"] == f"rank 1: {rows[longest]['kind']}"
    assert bar["fields"][0]["value"] == "AllReduce on world"


def test_a_capture_of_one_rank_has_no_path_and_export_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = replace(all_kinds()["ddp 2, healthy"], recording=Recording(missing=(1,)))
    job.write(tmp_path / "c", 1)
    export(tmp_path / "c", tmp_path / "d.parquet")
    assert "no critical path: fewer than two ranks have GPU times" in capsys.readouterr().err
    assert not (tmp_path / "d.parquet" / "critical_path").exists()


def test_formats_without_a_place_for_it_refuse_it(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(capture), "-o", str(tmp_path / "x.csv"), "--critical-path"]) == 2
    assert "It is for parquet, perfetto and chrome" in capsys.readouterr().err
