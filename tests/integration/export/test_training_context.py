"""Exports of a capture with a training context."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.export.chrome import write_chrome
from ncclscope.export.otf2 import write_otf2
from ncclscope.export.parquet import write_parquet
from ncclscope.export.perfetto import write_perfetto
from ncclscope.export.text import write_csv
from ncclscope.model.model import Model
from ncclscope.simulation.scenario import Scenario
from tests.support.player import ncclscope
from tests.support.writer.scenario import write_scenario
from tests.support.writer.training import write_fsdp2

ALL = Selection()
_BY_CONTEXT = """
select step, phase, module_name, prefetch, context, dimension, count(*) from operations
group by all order by all
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("training")
    write_fsdp2(place, steps=3)
    return place


@pytest.fixture(scope="module")
def model(capture: Path) -> Model:
    return package.open(capture).model


def test_chrome_has_steps_phases_ranges_and_arguments(model: Model, tmp_path: Path) -> None:
    write_chrome(model, ALL, tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    counts = Counter(event["cat"] for event in slices)
    assert (counts["step"], counts["phase"]) == (2 * 3, 2 * 3 * 4)
    names = {event["name"] for event in slices if event["cat"] == "range"}
    assert "FSDP::backward_prefetch for layers.1" in names
    arguments = [event["args"] for event in slices if event["cat"] == "nccl"]
    ahead = [one for one in arguments if one.get("prefetch")]
    assert len(ahead) == 2 * 3 * 2
    assert {one["phase"] for one in ahead} == {"backward"}
    assert {one["Process Group Description"] for one in arguments} == {"mesh_dp"}


def test_perfetto_is_larger_by_its_training(model: Model, tmp_path: Path) -> None:
    written = write_perfetto(model, ALL, tmp_path / "a.pftrace")
    content = (tmp_path / "a.pftrace").read_bytes()
    assert written.count == len(model.tables["operations"]["event"])
    for text in (b"step 2", b"forward", b"FSDP::all_gather (layers.0)", b"layers.2"):
        assert text in content


def test_otf2_has_ranges_as_user_regions(model: Model, tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2")
    write_otf2(model, ALL, tmp_path / "archive")
    regions: Counter[str] = Counter()
    with otf2.reader.open(str(tmp_path / "archive" / "traces.otf2")) as trace:
        for location, event in trace.events:
            if isinstance(event, otf2.events.Enter) and location.name.startswith("thread"):
                regions[event.region.name] += 1
    assert regions["Optimizer.step#AdamW.step"] == 2 * 3
    assert regions["FSDP::post_backward_reduce (layers.1)"] == 2 * 3


def test_csv_has_the_context(model: Model, tmp_path: Path) -> None:
    write_csv(model, ALL, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert Counter(row["module_name"] for row in rows)["layers.1"] == 2 * 3 * 3


def test_a_dataset_keeps_the_context(capture: Path, model: Model, tmp_path: Path) -> None:
    write_parquet(model, ALL, tmp_path / "dataset")
    dataset = package.open(tmp_path / "dataset")
    expected = package.open(capture).sql(_BY_CONTEXT).fetchall()
    assert dataset.sql(_BY_CONTEXT).fetchall() == expected
    described = "select name, dimension, described from communicators"
    assert dataset.sql(described).fetchall() == [("dp", "dp", "mesh_dp")]
    assert dataset.sql("select count(*) from steps").fetchall() == [(6,)]


def test_every_output_groups_by_step_phase_module_and_dimension(
    capture: Path, tmp_path: Path
) -> None:
    keys = ("step", "phase", "module", "dimension")
    by = ",".join(keys)
    answered = json.loads(ncclscope("report", capture, "--by", by, "--json").stdout)
    groups = {tuple(group[key] for key in keys): group["calls"] for group in answered["operations"]}
    counted = package.open(capture).sql(
        "select step, phase, module_name, dimension, count(*) from operations group by all"
    )
    assert groups == {tuple(row[:4]): row[4] for row in counted.fetchall()}
    lines = ncclscope("report", capture, "--by", by, "--csv").stdout.splitlines()
    rows = list(csv.DictReader(lines))
    assert {tuple(row[key] for key in keys) for row in rows} == {
        tuple("" if value is None else str(value) for value in group) for group in groups
    }
    text = ncclscope("report", capture, "--by", by).stdout
    ncclscope("report", capture, "--by", by, "--html", tmp_path / "page.html")
    python = package.open(capture).report(by)
    for output in (text, (tmp_path / "page.html").read_text(), str(python)):
        assert "layers.2" in output


# ---- steps by the period of calls ----
@pytest.fixture(scope="module")
def periodic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture without ranges, of a loop of 12 steps."""
    place = tmp_path_factory.mktemp("periodic") / "job"
    write_scenario(place, Scenario(ranks=2, steps=12, compute_ms=4), 1)
    return place


def exported(capture: Path, file: Path) -> Path:
    done = ncclscope("export", capture, "-o", file)
    assert done.returncode == 0, done.stderr
    return file


def test_periodic_steps_are_in_tables(periodic: Path, tmp_path: Path) -> None:
    expected = package.open(periodic).sql("select step from operations order by operation")
    steps = [step for (step,) in expected.fetchall()]
    assert set(steps) == set(range(12))
    lines = exported(periodic, tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == steps
    rows = list(csv.DictReader(exported(periodic, tmp_path / "a.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == steps
    assert "phase" not in rows[0], "nobody said phases"
    dataset = package.open(exported(periodic, tmp_path / "a.parquet"))
    assert dataset.sql("select step from operations order by operation").fetchall() == [
        (step,) for step in steps
    ]
    assert dataset.sql("select distinct origin, count(*) from steps group by 1").fetchall() == [
        ("period", 2 * 12)
    ]
    texts = [ncclscope("report", path, "--by", "step").stdout for path in (periodic, dataset.path)]
    assert texts[0].partition("operations ─")[2] == texts[1].partition("operations ─")[2] != ""


def test_periodic_steps_are_in_traces(periodic: Path, tmp_path: Path) -> None:
    events = json.loads(exported(periodic, tmp_path / "a.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert Counter(event["cat"] for event in slices)["step"] == 2 * 11
    begun = [event["name"] for event in events if event["ph"] == "B" and event["cat"] == "step"]
    assert begun == ["step 11"] * 2, "where the last one ends nobody knows"
    assert {event["args"]["step"] for event in slices if event["cat"] == "nccl"} == set(range(12))
    assert b"step 11" in exported(periodic, tmp_path / "a.pftrace").read_bytes()
