"""Exports hold what the model holds, appear whole or not at all, and stay small."""

import csv
import gzip
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.parquet
import pytest

import ncclscope as package
from ncclscope.analysis.query import connect, sql_text
from ncclscope.analysis.selection import Selection
from ncclscope.api import Capture
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.export import chunks, parquet, parquet_files, text
from ncclscope.export.parquet import TABLES_WRITTEN, write_parquet
from ncclscope.export.result import ExportResult
from ncclscope.export.text import write_csv, write_jsonl
from ncclscope.model.model import Model, Progress
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.schema import SCHEMA_VERSION
from ncclscope.model.sql_views import open_connection, shown_columns
from ncclscope.notebook import views
from tests.support import sql_engines
from tests.support.model_builders import random_model
from tests.support.player import TRANSCRIPTS, ncclscope, play_job, transcript_files
from tests.support.writer import SyntheticSpec, Work, from_transcript, synthetic

NAME = "2.28.9-v5-2ranks"
ALL = Selection()
# Several communicators, sizes, algorithms and gaps as in training: what makes columns hard to pack.
TRAINING = (
    Work("AllReduce", 1 << 22, "ncclBfloat16", weight=4),
    Work("AllReduce", 1 << 18, "ncclBfloat16", "TREE", "LL128", weight=2),
    Work("AllReduce", 256, "ncclFloat32", proto="LL"),
    Work("AllReduce", 12_345_678),
    Work("AllGather", 65_536, "ncclBfloat16", weight=2),
    Work("ReduceScatter", 65_536, "ncclBfloat16", weight=2),
    Work("SendRecv", 1 << 20, "ncclBfloat16", weight=2),
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / NAME
    from_transcript(TRANSCRIPTS / NAME, path)
    return package.open(path)


@pytest.fixture
def model(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> Model:
    """ExportResult in many pieces, so that they must fit together."""
    monkeypatch.setattr(text, "ROWS", 50)
    monkeypatch.setattr(parquet_files, "ROWS", 50)
    return capture.model


@cache
def connected(capture: Capture, has_steps: bool) -> duckdb.DuckDBPyConnection:
    """All tables in one database: making them takes longer than any question."""
    return views.connect(with_periodic_steps(capture.model) if has_steps else capture.model)


def of_schema(
    capture: Capture, table: str = "operations", has_steps: bool = False
) -> duckdb.DuckDBPyRelation:
    """A table with the columns of docs/schema.md; without steps by the period of calls, which
    the verb adds.
    """
    names = ", ".join(
        f'"{views.name_in_python(column.name)}" as "{column.name}"'
        for column in shown_columns(table)
    )
    return connected(capture, has_steps).table(table).project(names)


def shown(capture: Capture, table: str = "operations") -> list[tuple[Any, ...]]:
    """The rows of a table, in their order."""
    return of_schema(capture, table).fetchall()


def by_name(columns: list[str], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


@pytest.mark.parametrize("with_pyarrow", [True, False])
def test_parquet_is_the_model(
    capture: Capture,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    with_pyarrow: bool,
) -> None:
    monkeypatch.setattr(parquet, "has_pyarrow", lambda: with_pyarrow)
    dataset = tmp_path / "dataset"
    assert write_parquet(model, ALL, dataset).count == len(shown(capture))
    assert len(list((dataset / "operations" / "node=0").iterdir())) > 2
    for table in TABLES_WRITTEN:
        files = f"{dataset}/{table}/**/*.parquet"
        names = ", ".join(f'"{column.name}"' for column in shown_columns(table))
        keys = ", hive_types = {'node': integer}" if table == "operations" else ""
        read = duckdb.sql(f"select {names} from read_parquet('{files}'{keys})")
        assert read.columns == [column.name for column in shown_columns(table)]
        assert [str(kind) for kind in read.types] == [
            str(kind) for kind in of_schema(capture, table).types
        ]
        assert sorted(read.fetchall(), key=repr) == sorted(shown(capture, table), key=repr)
        frame = polars.read_parquet(dataset / table).select(read.columns)
        assert frame.sort(read.columns[0], maintain_order=True).rows() == shown(capture, table)
    schema = json.loads((dataset / "schema.json").read_text())
    assert schema["schema_version"] == SCHEMA_VERSION
    assert schema["completeness"] == model.completeness.as_json()
    assert [column["name"] for column in schema["tables"]["operations"]] == of_schema(
        capture
    ).columns


@pytest.mark.parametrize("with_pyarrow", [True, False])
def test_parquet_is_made_of_what_every_reader_knows(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_pyarrow: bool
) -> None:
    monkeypatch.setattr(parquet, "has_pyarrow", lambda: with_pyarrow)
    write_parquet(model, ALL, tmp_path / "dataset")
    for file in (tmp_path / "dataset").rglob("*.parquet"):
        meta = pyarrow.parquet.read_metadata(file)
        assert meta.metadata[b"ncclscope_schema"] == str(SCHEMA_VERSION).encode()
        for field in pyarrow.parquet.read_schema(file):
            assert str(field.type) in ("int8", "int16", "int32", "int64", "string", "large_string")
        encodings = {
            encoding
            for group in range(meta.num_row_groups)
            for column in range(meta.num_columns)
            for encoding in meta.row_group(group).column(column).encodings
        }
        delta = {"DELTA_BINARY_PACKED"} if with_pyarrow else set()
        assert encodings <= {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"} | delta


def test_jsonl_is_the_model(capture: Capture, model: Model, tmp_path: Path) -> None:
    expected = by_name(of_schema(capture).columns, shown(capture))
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert write_jsonl(model, ALL, tmp_path / name) == ExportResult(len(expected))
        data = (tmp_path / name).read_bytes()
        lines = (gzip.decompress(data) if name.endswith("gz") else data).splitlines()
        assert [json.loads(line) for line in lines] == expected


def test_csv_is_the_model(capture: Capture, model: Model, tmp_path: Path) -> None:
    assert write_csv(model, ALL, tmp_path / "a.csv") == ExportResult(len(shown(capture)))
    with (tmp_path / "a.csv").open(newline="") as lines:
        header, *rows = list(csv.reader(lines))
    kept = of_schema(capture).columns.index("step")  # this capture has no training context
    assert header == of_schema(capture).columns[:kept]
    assert rows == [
        ["" if value is None else str(value) for value in row[:kept]] for row in shown(capture)
    ]


def test_names_from_the_job_do_not_break_lines(tmp_path: Path) -> None:
    name = "a,b\"c\n'd\u2028\x01"
    synthetic(tmp_path / "c", SyntheticSpec(processes=2, operations=3, communicator_names=(name,)))
    capture = package.open(tmp_path / "c")
    kept = capture.model.communicator_names[0]
    write_csv(capture.model, ALL, tmp_path / "a.csv")
    write_jsonl(capture.model, ALL, tmp_path / "a.jsonl")
    with (tmp_path / "a.csv").open(newline="") as lines:
        assert {row["communicator_name"] for row in csv.DictReader(lines)} == {kept}
    lines_read = (tmp_path / "a.jsonl").read_text().removesuffix("\n").split("\n")
    assert [json.loads(line)["communicator_name"] for line in lines_read] == [kept] * 6


def test_pieces_are_neither_small_nor_lost(capture: Capture) -> None:
    model = capture.model
    only = Selection(functions=("Reduce",))
    query = f"select operation from ({chunks.row_query(model, 'operations', only)})"
    pieces = []
    with open_connection() as connection:
        for piece in chunks.chunks(connection, model, "operations", only, 20):
            chunks.register_rows(connection, model, "operations", piece.parts)
            pieces.append((piece.rows, connection.execute(query).fetchall()))
    assert all(count == len(rows) for count, rows in pieces)
    assert all(count >= 10 for count, _ in pieces[:-1])
    assert len(pieces) > 1
    found = [row for _, rows in pieces for row in rows]
    assert found == capture.operations.filter("function = 'Reduce'").project("operation").fetchall()


def test_a_selection_is_kept_to(capture: Capture, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    done = ncclscope("export", capture.path, "-o", out, "--op", "allreduce", "--rank", "1")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    condition = "function = 'AllReduce' and global_rank = 1"
    expected = of_schema(capture, has_steps=True)
    assert rows == by_name(expected.columns, expected.filter(condition).fetchall())
    assert f"{len(rows)} operations" in done.stderr
    done = ncclscope(
        "export", capture.path, "--to", "csv", "-o", "-", "--comm", "world", "--last", "1ms"
    )
    last = capture.sql(
        "select max(coalesce(end_ns, launch_end_ns, call_end_ns, enqueue_ns, call_ns)) from operations"
    )
    since = last.fetchall()[0][0] - 1_000_000
    late = capture.operations.filter(
        f"coalesce(start_ns, launch_ns, call_ns, enqueue_ns) >= {since}"
    )
    assert len(done.stdout.splitlines()) == 1 + len(late.fetchall())
    assert 1 < len(done.stdout.splitlines()) < len(shown(capture))


def test_instances_are_selected_as_operations_are(capture: Capture, tmp_path: Path) -> None:
    write_parquet(capture.model, Selection(functions=("AllGather",)), tmp_path / "d")
    for table in ("operations", "instances"):
        read = polars.read_parquet(tmp_path / "d" / table)
        assert set(read["function"]) == {"AllGather"}
    assert set(polars.read_parquet(tmp_path / "d" / "operations")["instance"].drop_nulls()) <= set(
        read["instance"]
    )


def test_nothing_is_chosen(capture: Capture, tmp_path: Path) -> None:
    nobody = Selection(ranks=(99,))
    assert write_parquet(capture.model, nobody, tmp_path / "d").count == 0
    read = polars.read_parquet(tmp_path / "d" / "operations")
    assert (len(read), set(read.columns)) == (0, set(of_schema(capture).columns))
    assert write_csv(capture.model, nobody, tmp_path / "a.csv").count == 0
    columns = of_schema(capture).columns
    named = columns[: columns.index("step")]  # this capture has no training context
    assert (tmp_path / "a.csv").read_text().strip() == ",".join(named)
    assert write_jsonl(capture.model, nobody, tmp_path / "a.jsonl").count == 0
    assert (tmp_path / "a.jsonl").read_text() == ""


class DiskFullError(Exception):
    """What happens in the middle of an export."""


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_fails_leaves_what_was_there(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def fail(done: int, of: int) -> None:
        if done > 50:
            raise DiskFullError

    def write(progress: Progress | None = None) -> ExportResult:
        if form == "parquet":
            return write_parquet(model, ALL, path, force=True, progress=progress)
        return write_jsonl(model, ALL, path, progress)

    path = tmp_path / "out"
    write()
    content = path.read_text() if path.is_file() else ""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DiskFullError):
        write(fail)
    assert sorted(tmp_path.rglob("*")) == before
    assert content == (path.read_text() if path.is_file() else "")


def test_directories_that_are_not_ours_are_left_alone(model: Model, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("")
    with pytest.raises(UsageError, match="is not a dataset"):
        write_parquet(model, ALL, tmp_path / "mine", force=True)
    write_parquet(model, ALL, tmp_path / "d")
    with pytest.raises(UsageError, match="Use --force to replace it"):
        write_parquet(model, ALL, tmp_path / "d")
    write_parquet(model, Selection(ranks=(0,)), tmp_path / "d", force=True)
    assert set(polars.read_parquet(tmp_path / "d" / "operations")["global_rank"]) == {0}
    assert (tmp_path / "mine" / "thesis").exists()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["-o", "x.dat"], ".otf2, or use --to jsonl, csv, parquet, ", 2),
        (["-o", "x.csv", "--op", "Nonsense"], "cannot select operation Nonsense", 2),
        (["-o", "x.csv", "--comm", "tp9"], "cannot select communicator tp9", 2),
        (["-o", "x.csv", "--since", "soon"], "cannot understand the time soon", 2),
        (["-o", "x.csv", "--since", "1", "--last", "5m"], "--since and --last at once", 2),
        (["-o", "-", "--to", "parquet"], "cannot write parquet to stdout", 2),
        (["-o", "nowhere/x.csv"], "cannot write nowhere/x.csv: No such file or directory", 2),
        (["-o", "nowhere/x", "--to", "parquet"], "cannot write nowhere/x: No such file or", 1),
        (["-o", ".", "--to", "csv"], "cannot write .: it is a directory", 2),
        (["--to", "csv"], "the following arguments are required: -o", 2),
    ],
)
def test_mistakes_are_explained(
    capture: Capture, tmp_path: Path, arguments: list[str], message: str, code: int
) -> None:
    done = ncclscope("export", capture.path, *arguments, cwd=tmp_path)
    assert message in done.stderr
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(text.shutil, "copyfileobj", full)
    with pytest.raises(NcclscopeError, match="No space left on device"):
        write_jsonl(model, ALL, tmp_path / "x.jsonl")
    assert not list(tmp_path.iterdir())


def test_totals_are_no_operations(tmp_path: Path) -> None:
    assert play_job(transcript_files(NAME), tmp_path / "c", mode="profile") == [0, 0]
    done = ncclscope("export", tmp_path / "c", "-o", tmp_path / "x.csv")
    assert done.returncode == 2
    assert "it has totals only. Record with --mode trace" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(capture: Capture) -> None:
    command = [
        sys.executable,
        "-m",
        "ncclscope",
        "export",
        str(capture.path),
        "--to",
        "jsonl",
        "-o",
        "-",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        assert export.stdout is not None
        export.stdout.close()
        assert export.wait() == 0
        assert b"Traceback" not in (export.stderr.read() if export.stderr else b"")


def test_the_terminal_sees_how_far_it_is(capture: Capture, tmp_path: Path) -> None:
    script = f"ncclscope export {capture.path} -o {tmp_path}/x.csv"
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "\x1b[K" in done.stdout
    assert "written:" in done.stdout


def test_an_operation_takes_thirty_bytes(tmp_path: Path) -> None:
    ranks, layers = 8, ((0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7))
    spec = SyntheticSpec(
        processes=ranks,
        operations=30_000,
        ranks_per_node=4,
        communicators=(tuple(range(ranks)), *layers),
        mix=TRAINING,
    )
    synthetic(tmp_path / "c", spec)
    model = package.open(tmp_path / "c").model
    count = write_parquet(model, ALL, tmp_path / "d").count
    size = sum(file.stat().st_size for file in (tmp_path / "d" / "operations").rglob("*.parquet"))
    assert count > ranks * 30_000
    assert size / count <= 30


def test_formats_share_one_order(capture: Capture, tmp_path: Path) -> None:
    """Rows of operations come by process and time, whatever the format."""
    write_jsonl(capture.model, ALL, tmp_path / "a.jsonl")
    numbers = [
        json.loads(line)["operation"] for line in (tmp_path / "a.jsonl").read_text().splitlines()
    ]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("with_pyarrow", [True, False])
def test_analyses_run_over_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_pyarrow: bool
) -> None:
    """The same SQL, on engines that read the files as they are."""
    monkeypatch.setattr(parquet, "has_pyarrow", lambda: with_pyarrow)
    model = random_model(3_000, seed=5)
    write_parquet(model, ALL, tmp_path / "d")
    makers = (sql_engines.on_duckdb, sql_engines.on_polars, sql_engines.on_datafusion)
    engines = [make(tmp_path / "d") for make in makers]
    with connect(model, ALL) as connection:
        for name, places in sql_engines.TEXTS:
            query = sql_text(name, **places)
            connection.execute(f"create temp table {name} as {query}")
            expected = sql_engines.in_order(connection.execute(f"from {name}").fetchall())
            for run in engines:
                rows = sql_engines.in_order(run(name, query))
                assert len(rows) == len(expected), name
                for row, other in zip(rows, expected, strict=True):
                    assert row == pytest.approx(other), name
