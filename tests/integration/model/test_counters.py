"""Counters as tables of the model: as processes kept them, saved, exported and read back."""

import json
from pathlib import Path

import numpy as np
import pytest

from ncclscope.analysis import summary_from_counters
from ncclscope.analysis.selection import DEFAULT_BY
from ncclscope.capture import layout, process, reader
from ncclscope.capture.call_counts import bucket_bounds_ns
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.schema import LEVELS, NONE, SOURCES
from tests.support.player import (
    ncclscope,
    play_job,
    read_transcript,
    transcript_files,
    write_transcript,
)

NAME = "2.28.9-v5-2ranks"
LEVEL_NAMES = {
    layout.LEVEL_CALL: "call",
    layout.LEVEL_WORK: "work",
    layout.LEVEL_COPY_ENGINE: "copy-engine",
}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real job's callbacks, recorded by the plugin in mode profile."""
    path = tmp_path_factory.mktemp("counters") / "capture"
    assert play_job(transcript_files(NAME), path, mode="profile") == [0, 0]
    return path


@pytest.fixture(scope="module")
def model(capture: Path) -> Model:
    return open_model(capture)


def names(model: Model, column: str) -> list[str | None]:
    """A column of names of `counters`."""
    listed = [*model.words[column], None]
    return [listed[code] for code in model.tables["counters"][column].tolist()]


def test_every_counter_of_every_process_is_a_row(capture: Path, model: Model) -> None:
    counters = model.tables["counters"]
    expected = [
        (row, LEVEL_NAMES[one.key.level], one.key.count, one.calls, int(one.times["gpu_count"]))
        for row, recorded in enumerate(reader.open_capture(capture).processes)
        for one in recorded.call_counts
    ]
    columns = (counters[name].tolist() for name in ("count", "calls", "gpu_count"))
    found = zip(counters["process"].tolist(), names(model, "level"), *columns, strict=True)
    assert list(found) == expected
    assert {"call", "work"} <= set(names(model, "level")) <= set(LEVELS)
    assert (counters["global_rank"] == counters["process"]).all()


def test_bytes_are_those_of_nccl_tests(model: Model) -> None:
    """AllGather counts one rank's elements when called and its bytes as a work: both are one size."""
    counters = model.tables["counters"]
    gathered = np.array(names(model, "function")) == "AllGather"
    sizes = {
        level: set(counters["size_bytes"][gathered & (counters["level"] == LEVELS.index(level))])
        for level in ("call", "work")
    }
    assert sizes["call"] == sizes["work"] != set()
    assert (counters["bytes"] == counters["size_bytes"] * counters["calls"]).all()


def test_histograms_hold_every_timed_work(capture: Path, model: Model) -> None:
    counters, histograms = model.tables["counters"], model.tables["counter_histograms"]
    for source in ("gpu", "host"):
        own = histograms["source"] == SOURCES.index(source)
        works = np.bincount(
            histograms["counter"][own], histograms["works"][own], len(counters["calls"])
        )
        assert works.tolist() == counters[f"{source}_count"].tolist()
        assert works.sum() > 0
    bounds = bucket_bounds_ns()
    place = np.searchsorted(bounds, histograms["from_ns"])
    assert (bounds[place] == histograms["from_ns"]).all()
    assert (histograms["to_ns"] == np.append(bounds[1:], NONE)[place]).all()


def test_a_report_opens_no_raw_file_again(
    capture: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = summary_from_counters.summarize(model, None, None, DEFAULT_BY)

    def opened(folder: Path) -> None:
        raise AssertionError(folder)

    for module in (process, reader):
        monkeypatch.setattr(module, "open_process", opened)
    again = summary_from_counters.summarize(open_model(capture), None, None, DEFAULT_BY)
    assert (again.groups, again.untimed, again.sizes) == (
        expected.groups,
        expected.untimed,
        expected.sizes,
    )
    assert again.total.calls > 0


def test_a_dataset_of_totals_reports_the_same(capture: Path, model: Model, tmp_path: Path) -> None:
    done = ncclscope("export", capture, "--to", "parquet", "-o", tmp_path / "dataset")
    assert done.returncode == 0, done.stderr
    dataset = open_model(tmp_path / "dataset")
    by = (*DEFAULT_BY, "rank")
    found, expected = (
        summary_from_counters.summarize(one, None, None, by) for one in (dataset, model)
    )
    assert found.groups == expected.groups
    assert dataset.gpus == model.gpus


def test_references_to_counters_that_are_not_there_are_refused(
    capture: Path, tmp_path: Path
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    dataset = tmp_path / "dataset"
    assert ncclscope("export", capture, "--to", "parquet", "-o", dataset).returncode == 0
    file = dataset / "counter_histograms" / "part-00000.parquet"
    table = parquet.read_table(file)
    wrong = pyarrow.array([10**6] * len(table), pyarrow.int64())
    parquet.write_table(table.set_column(0, "counter", wrong), file)
    done = ncclscope("report", dataset)
    assert done.returncode == 1
    assert "counter_histograms refers to counters that are not there" in done.stderr


# ---- a datatype that this release does not know ----
@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same job; the datatype of its AllReduces has a name that this release does not know."""
    folder = tmp_path_factory.mktemp("renamed")
    files = []
    for path in transcript_files(NAME):
        lines = read_transcript(path)
        for line in lines:
            if line.get("func") == "AllReduce":
                assert line["dtype"] == "ncclFloat32"
                line["dtype"] = "ncclFloat19"
        files.append(write_transcript(folder / path.name.removesuffix(".gz"), lines))
    return files


def total_bytes(model: Model, table: str, column: str, without: str = "") -> int:
    """The sum of the known values of a table, without those of one function."""
    columns = model.tables[table]
    codes = [code for code, name in enumerate(model.words["function"]) if name == without]
    counts = (columns[column] != NONE) & ~np.isin(columns["function"], codes)
    return int(columns[column][counts].sum())


@pytest.mark.parametrize(
    ("mode", "table", "column"),
    [("trace", "operations", "size_bytes"), ("profile", "counters", "bytes")],
)
def test_an_unknown_datatype_has_no_size_and_totals_do_not_count_it(
    mode: str, table: str, column: str, renamed: list[Path], tmp_path: Path
) -> None:
    for name, files in (("known", transcript_files(NAME)), ("unknown", renamed)):
        assert play_job(files, tmp_path / name, mode=mode) == [0, 0]
    known, unknown = (open_model(tmp_path / name) for name in ("known", "unknown"))
    columns = unknown.tables[table]
    reduced = columns["function"] == unknown.words["function"].index("AllReduce")
    is_unknown = columns["datatype"] == unknown.words["datatype"].index("float19")
    assert (reduced == is_unknown).all()
    assert is_unknown.sum() > 10
    for name in {"size_bytes", column}:
        assert ((columns[name] == NONE) == is_unknown).all()
    expected = total_bytes(known, table, column, without="AllReduce")
    assert total_bytes(unknown, table, column) == expected > 0


def test_a_report_names_the_datatype_that_it_does_not_count(
    renamed: list[Path], tmp_path: Path
) -> None:
    assert play_job(renamed, tmp_path / "c", mode="trace") == [0, 0]
    done = ncclscope("report", tmp_path / "c", "--by", "datatype", "--json")
    made = json.loads(done.stdout)
    size_of = {group["datatype"]: group["total_bytes"] for group in made["operations"]}
    assert size_of["float19"] == 0 < size_of["float32"]
    assert sum(row["total_bytes"] for row in made["communicators"]) == size_of["float32"]
    (note,) = [text for text in made["completeness"]["notes"] if "float19" in text]
    assert note.endswith("operations of unknown size: unknown datatype float19")
    assert not any("impossible size" in text for text in made["completeness"]["notes"])
