"""A dataset of Parquet files opens like the capture it was exported from, or says why it does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

import ncclscope as package
from ncclscope.analysis.selection import Selection
from ncclscope.api import Capture
from ncclscope.errors import FormatError, NcclscopeError
from ncclscope.export import parquet, parquet_files
from ncclscope.export.parquet import TABLES_WRITTEN, write_parquet
from ncclscope.model.schema import SCHEMA_VERSION
from tests.support.player import TRANSCRIPTS, ncclscope
from tests.support.writer import from_transcript

NAMES = ("2.28.9-v5-2ranks", "2.28.9-v5-3ranks-hang", "2.31.2-v7-2ranks")


def dataset_of(capture: Capture, path: Path, chosen: Selection | None = None) -> Path:
    write_parquet(capture.model, chosen or Selection(), path)
    return path


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / NAMES[0]
    from_transcript(TRANSCRIPTS / NAMES[0], path)
    return package.open(path)


@pytest.fixture
def dataset(capture: Capture, tmp_path: Path) -> Path:
    return dataset_of(capture, tmp_path / "dataset")


@pytest.mark.parametrize(
    ("name", "with_pyarrow"), [*((name, True) for name in NAMES), (NAMES[0], False)]
)
def test_a_dataset_is_the_capture_it_was_exported_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_pyarrow: bool
) -> None:
    monkeypatch.setattr(parquet, "has_pyarrow", lambda: with_pyarrow)
    monkeypatch.setattr(parquet_files, "ROWS", 50)  # many files, which must fit together
    from_transcript(TRANSCRIPTS / name, tmp_path / "capture")
    capture = package.open(tmp_path / "capture")
    again = package.open(dataset_of(capture, tmp_path / "dataset"))
    for table in TABLES_WRITTEN:
        assert again.table(table).fetchall() == capture.table(table).fetchall(), table
    assert again.completeness() == capture.completeness()
    assert again.realtime_offset_ns == capture.realtime_offset_ns
    third = package.open(dataset_of(again, tmp_path / "third"))
    assert third.operations.fetchall() == capture.operations.fetchall()


def test_all_files_declare_alike_which_columns_have_unknown_values(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_files, "ROWS", 50)
    folder = dataset_of(capture, tmp_path / "dataset") / "operations"
    parts = [files.read_table(path) for path in sorted(folder.rglob("*.parquet"))]
    assert len(parts) > 2
    for name in parts[0].column_names:
        unknown = any(part[name].null_count for part in parts)
        assert {part.schema.field(name).nullable for part in parts} == {unknown}, name
    assert {field.nullable for field in parts[0].schema} == {True, False}


def test_report_of_a_dataset_is_that_of_its_capture(
    capture: Capture, dataset: Path, tmp_path: Path
) -> None:
    found = [
        json.loads(ncclscope("report", "--json", str(path)).stdout)
        for path in (capture.path, dataset, dataset)  # the second time from the kept model
    ]
    for report in found:
        del report["capture"]
    assert found[0] == found[1] == found[2]
    assert (dataset / "model").is_dir()


def test_a_part_keeps_its_references(capture: Capture, tmp_path: Path) -> None:
    chosen = Selection(functions=("AllGather", "Recv", "Send", "AlltoAll"))
    part = package.open(dataset_of(capture, tmp_path / "part", chosen))
    count = part.sql("select count(*) from operations where instance is not null").fetchall()
    assert count[0][0] > 0
    joined = "operations o join instances i on o.instance = i.instance"
    wrong = f"select count(*) from {joined} where o.communicator <> i.communicator"
    wrong += " or (o.form = 'collective' and o.function <> i.function)"
    assert part.sql(wrong).fetchall() == [(0,)]
    parts = "operations o join operations w on o.part_of = w.operation"
    found = part.sql(f"select distinct w.function from {parts}").fetchall()
    assert found == [("AlltoAll",)]


def test_a_dataset_has_no_events(dataset: Path) -> None:
    with pytest.raises(NcclscopeError, match="a dataset has no events"):
        package.open(dataset).table("channels")
    done = ncclscope("dump", str(dataset))
    assert done.returncode == 2
    assert "a dataset has no events" in done.stderr


def test_the_newest_capture_may_be_a_dataset(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dataset.parent)
    assert package.open().path == dataset


def rewrite(dataset: Path, table: str, query: str) -> None:
    """A table's files replaced by what a query over it gives."""
    folder = dataset / table
    files = str(folder / "**" / "*.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"create table t as select * from read_parquet('{files}')")
        shutil.rmtree(folder)
        folder.mkdir()
        connection.execute(f"copy ({query}) to '{folder / 'part-0.parquet'}' (format parquet)")


@pytest.mark.parametrize(
    ("table", "query", "cause"),
    [
        ("operations", "select * replace (99 as communicator) from t", "not there"),
        ("operations", "select * replace (-7 as process) from t", "not there"),
        ("operations", "select * replace ('x' as duration_ns) from t", "Conversion"),
        ("operations", "select * replace (1e30::double as start_ns) from t", "Conversion"),
        ("operations", "select * exclude (operation) from t", "no column operation"),
        ("members", "select * replace (12 as node) from t", "not there"),
        ("communicators", "select * replace (communicator + 1 as communicator) from t", "numbered"),
        ("processes", "select * replace (7 as process) from t", "numbered"),
        ("processes", "select 1 as nothing", "no column process"),
        ("processes", "select * replace (4611686018427387905 as lived_ns) from t", "cannot be"),
        (
            "windows",
            'select * from (values (0, null::integer, 0::bigint, 1::bigint)) as t("window", '
            "process, start_ns, end_ns)",
            "not there",
        ),
    ],
)
def test_damaged_tables(dataset: Path, table: str, query: str, cause: str) -> None:
    rewrite(dataset, table, query)
    with pytest.raises(FormatError, match=cause):
        package.open(dataset).completeness()
    assert not list(dataset.glob(".model-*"))


def test_files_that_are_no_parquet(dataset: Path) -> None:
    (dataset / "operations" / "node=0" / "part-00000.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(FormatError, match="cannot read the dataset"):
        package.open(dataset).completeness()
    done = ncclscope("report", str(dataset))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "damaged"),
        ("[]", "no schema_version"),
        ("[" * 100_000, "damaged"),
        (json.dumps({"schema_version": SCHEMA_VERSION + 1}), "newer"),
        (json.dumps({"schema_version": SCHEMA_VERSION}), "no completeness"),
        (json.dumps({"schema_version": SCHEMA_VERSION, "completeness": {"processes": 3}}), "no c"),
    ],
)
def test_damaged_schema(dataset: Path, text: str, cause: str) -> None:
    (dataset / "schema.json").write_text(text)
    with pytest.raises(FormatError, match=cause):
        package.open(dataset).completeness()


def test_columns_of_later_releases_and_missing_ones(capture: Capture, dataset: Path) -> None:
    """Within a version, columns are added: an older dataset lacks them, a newer one has more."""
    rewrite(dataset, "operations", "select *, 1 as later from (select * exclude (tag) from t)")
    again = package.open(dataset)
    got: list[Any] = again.sql("select operation, duration_ns, tag from operations").fetchall()
    expected = "select operation, duration_ns, null from operations"
    assert got == capture.sql(expected).fetchall()


def test_more_names_than_codes(dataset: Path) -> None:
    """Beyond 127 names of a column, the rest is called other."""
    query = "select * replace ('f' || (operation % 160) as function) from t"
    rewrite(dataset, "operations", query)
    again = package.open(dataset)
    named = again.sql("select count(distinct function) from operations").fetchall()[0][0]
    assert 100 < named <= 127
    assert again.sql("select count(*) from operations where function is null").fetchall() == [(0,)]
