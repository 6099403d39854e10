"""Datasets with a folder for each node: read by other engines, read back, and written by workers."""

import json
import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow
import pyarrow.parquet
import pytest

import ncclscope as package
from ncclscope.analysis import report_stage
from ncclscope.analysis.selection import Selection
from ncclscope.capture.reader import find_captures
from ncclscope.errors import FormatError
from ncclscope.export import node_tasks, parquet, parquet_files
from ncclscope.export.parquet import TABLES_WRITTEN, holds_dataset, write_parquet
from ncclscope.model.build import open_model
from ncclscope.model.model import Model
from ncclscope.model.periodic_steps import with_periodic_steps
from ncclscope.model.store.fingerprint import fingerprint
from tests.support.model_builders import random_model
from tests.support.player import ncclscope
from tests.support.stage_engines import repeating
from tests.support.writer import SyntheticSpec, synthetic

ALL = Selection()
NODES, RANKS = 3, 6
SPEC = SyntheticSpec(
    processes=RANKS,
    operations=60,
    ranks_per_node=2,
    communicators=(tuple(range(RANKS)), (0, 1), (2, 3), (4, 5)),
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "c"
    synthetic(path, SPEC)
    open_model(path)
    return path


@pytest.fixture(scope="module")
def written(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "dataset"
    write_parquet(open_model(capture), ALL, path)
    return path


@pytest.fixture
def dataset(written: Path, tmp_path: Path) -> Path:
    """One that a test may change, and keep models in."""
    return Path(shutil.copytree(written, tmp_path / "dataset"))


def tables_of(path: Path) -> dict[str, list[Any]]:
    opened = package.open(path)
    return {table: opened.table(table).fetchall() for table in TABLES_WRITTEN}


def files_of(dataset: Path) -> list[str]:
    return sorted(str(file.relative_to(dataset)) for file in dataset.rglob("*.parquet"))


def test_each_node_has_a_folder(capture: Path, written: Path) -> None:
    folders = sorted(path.name for path in (written / "operations").iterdir())
    assert folders == [f"node={node}" for node in range(NODES)]
    for folder in (written / "operations").iterdir():
        file = folder / "part-00000.parquet"
        assert "node" not in pyarrow.parquet.read_schema(file).names
        hosts = set(pyarrow.parquet.read_table(file, columns=["host"], partitioning=None)["host"])
        assert len(hosts) == 1
    assert json.loads((written / "schema.json").read_text())["partitions"] == {
        "operations": ["node"]
    }
    assert [folder.name for folder in written.glob("*") if list(folder.glob("*=*"))] == [
        "operations"
    ]


def by_duckdb(written: Path) -> list[Any]:
    files = f"{written}/operations/*/*.parquet"
    query = f"select function, count(*) from '{files}' where node = 1 group by 1 order by 1"
    plan = duckdb.sql(f"explain analyze {query}").fetchall()[0][1]
    assert f"Scanning Files: 1/{NODES}" in plan
    return duckdb.sql(query).fetchall()


def by_polars(written: Path) -> list[Any]:
    frame = polars.scan_parquet(written / "operations").filter(polars.col("node") == 1)
    assert "node=1" in frame.explain()
    assert "node=0" not in frame.explain()
    return frame.group_by("function").len().sort("function").collect().rows()


def by_datafusion(written: Path) -> list[Any]:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    keys = [("node", pyarrow.int32())]
    context.register_parquet("operations", f"{written}/operations/", table_partition_cols=keys)
    query = "select function, count(*) as n from operations where node = 1 group by 1 order by 1"
    plan = str(context.sql(query).execution_plan())
    assert "node=1/" in plan
    assert "node=0/" not in plan
    batches = context.sql(query).collect()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def by_pyarrow(written: Path) -> list[Any]:
    """As pandas reads."""
    table = pyarrow.parquet.read_table(written / "operations", filters=[("node", "=", 1)])
    counts = table.group_by("function").aggregate([("operation", "count")]).sort_by("function")
    return [(row["function"], row["operation_count"]) for row in counts.to_pylist()]


@pytest.mark.parametrize("ask", [by_duckdb, by_polars, by_datafusion, by_pyarrow])
def test_engines_read_the_files_of_a_node_alone(capture: Path, written: Path, ask: Any) -> None:
    query = "select function, count(*) from operations where node = 1 group by 1 order by 1"
    assert ask(written) == package.open(capture).sql(query).fetchall()


def test_it_is_read_back(capture: Path, dataset: Path) -> None:
    assert tables_of(dataset) == tables_of(capture)
    assert tables_of(dataset) == tables_of(capture)  # from the saved model


@pytest.mark.parametrize("verb", ["report", "diagnose"])
def test_answers_are_those_of_the_capture(verb: str, capture: Path, dataset: Path) -> None:
    answers = []
    for path in (capture, dataset):
        done = ncclscope(verb, "--json", path)
        answers.append({**json.loads(done.stdout), "capture": "", "exit": done.returncode})
    assert answers[0] == answers[1]


def flattened(dataset: Path) -> Path:
    """The same as schema 2 has it: all files of operations in one folder."""
    folder = dataset / "operations"
    names = [column["name"] for column in described(dataset)["tables"]["operations"]]
    listed = ", ".join("node::integer as node" if name == "node" else f'"{name}"' for name in names)
    query = f"select {listed} from '{folder}/*/*.parquet' order by operation"
    with duckdb.connect() as connection:
        rows = connection.execute(f"select count(*) from ({query})").fetchall()[0][0]
        for number, first in enumerate(range(0, rows, 100)):
            file = folder / f"part-{number:05d}.parquet"
            part = f"select * from ({query}) limit 100 offset {first}"
            connection.execute(f"copy ({part}) to '{file}' (format parquet)")
    for keyed in folder.glob("node=*"):
        shutil.rmtree(keyed)
    shutil.rmtree(dataset / "sums")
    schema = {**described(dataset), "schema_version": 2}
    del schema["partitions"]
    (dataset / "schema.json").write_text(json.dumps(schema))
    return dataset


def described(dataset: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((dataset / "schema.json").read_text())
    return schema


def test_flat_datasets_of_before_are_read(capture: Path, dataset: Path) -> None:
    flat = flattened(dataset)
    assert len(files_of(flat / "operations")) > 1
    assert tables_of(flat) == tables_of(capture)
    assert holds_dataset(flat)


def test_nodes_that_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a node need not follow each other; a node may be unknown."""
    monkeypatch.setattr(parquet_files, "ROWS", 64)
    model = random_model(1_000, seed=3)
    model.tables["operations"]["node"][::7] = -1
    write_parquet(model, ALL, tmp_path / "d")
    assert (tmp_path / "d" / "operations" / "node=__HIVE_DEFAULT_PARTITION__").is_dir()
    again = open_model(tmp_path / "d").tables["operations"]
    for name, values in model.tables["operations"].items():
        if not model.words.get(name):  # codes are given anew
            assert again[name].tolist() == values.tolist(), name


def test_a_dataset_below_a_folder_that_looks_like_a_key(capture: Path, dataset: Path) -> None:
    below = dataset.parent / "step=7" / "node=99"
    below.mkdir(parents=True)
    assert tables_of(dataset.rename(below / "dataset")) == tables_of(capture)


@pytest.mark.parametrize("name", ["node=x", "node=", "node=-1", "node=99999999999"])
def test_folders_of_no_node(dataset: Path, name: str) -> None:
    (dataset / "operations" / "node=0").rename(dataset / "operations" / name)
    with pytest.raises(FormatError, match="names no node"):
        open_model(dataset)
    assert not holds_dataset(dataset)


def test_a_node_that_is_not_there(dataset: Path) -> None:
    (dataset / "operations" / "node=0").rename(dataset / "operations" / "node=7")
    with pytest.raises(FormatError, match="not there"):
        open_model(dataset)


def test_files_beside_folders(dataset: Path) -> None:
    shutil.copy(dataset / "operations" / "node=0" / "part-00000.parquet", dataset / "operations")
    with pytest.raises(FormatError, match="files beside its folders"):
        open_model(dataset)


def test_a_file_that_changes_makes_the_saved_model_old(dataset: Path) -> None:
    before = fingerprint(dataset)
    with (dataset / "operations" / "node=1" / "part-00000.parquet").open("ab") as file:
        file.write(b"more")
    assert fingerprint(dataset) != before


def test_sums_are_those_of_the_report(capture: Path, written: Path) -> None:
    report = json.loads(ncclscope("report", "--json", capture).stdout)
    text = f"select sum(operations), sum(bytes) from '{written}/sums/sums.parquet'"
    assert duckdb.sql(text).fetchall() == [
        (report["total"]["operations"], report["total"]["total_bytes"])
    ]
    ranks = duckdb.sql(f"select count(*) from '{written}/sums/rank_sums.parquet'").fetchall()
    assert ranks == [(RANKS,)]
    named = f"select distinct communicator_name from '{written}/sums/sums.parquet' order by 1"
    names = package.open(capture).sql("select name from communicators order by 1").fetchall()
    assert duckdb.sql(named).fetchall() == names


# ---- writers that fail ----
def _write_and_die(capture: Path, path: Path, files: int) -> None:
    """Ends with SIGKILL when so many files are complete, in the midst of the next one."""
    left, put_file = [files], parquet_files.put_file

    def put(file: Path, place: Path) -> None:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        put_file(file, place)

    parquet_files.put_file = put
    write_parquet(open_model(capture), ALL, path, force=True)


@pytest.mark.parametrize("files", [0, 2, 9])
def test_a_writer_that_is_killed(capture: Path, dataset: Path, files: int) -> None:
    before = files_of(dataset)
    killed = get_context("fork").Process(target=_write_and_die, args=(capture, dataset, files))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert files_of(dataset) == before
    assert find_captures(dataset.parent) == [dataset]
    left = next(dataset.parent.glob(".dataset-*"))
    assert len(files_of(left)) == files
    assert any(left.rglob(".part-*"))  # the file that it was at
    assert not (left / "dataset" / "schema.json").exists()
    write_parquet(open_model(capture), ALL, dataset, force=True)
    assert files_of(dataset) == before
    assert tables_of(dataset) == tables_of(capture)


def test_what_a_writer_left_is_no_part_of_it(capture: Path, dataset: Path) -> None:
    (dataset / "operations" / "node=0" / ".part-00000.parquet.1a2b3c4d").write_bytes(b"PAR1")
    assert tables_of(dataset) == tables_of(capture)
    assert holds_dataset(dataset)


# ---- workers ----
def test_workers_write_the_same_files(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task twice, with what it needs sent there; also of steps that the saved model lacks."""
    monkeypatch.setattr(report_stage, "MOST_HERE", 0)
    model = with_periodic_steps(open_model(capture))
    chosen = Selection(ranks=(1, 4))
    for number, selection in enumerate((ALL, chosen, Selection(ranks=(99,)))):
        paths = [tmp_path / f"{place}{number}" for place in ("here", "workers")]
        counts = [
            write_parquet(model, selection, path, engine_of=engine).count
            for path, engine in zip(paths, (None, repeating), strict=True)
        ]
        assert counts[0] == counts[1]
        assert files_of(paths[0]) == files_of(paths[1])
        for file in files_of(paths[0]):
            here, there = (pyarrow.parquet.ParquetFile(path / file).read() for path in paths)
            assert there.equals(here), file


def test_workers_that_do_not_see_the_folder(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_stage, "MOST_HERE", 0)
    seen = node_tasks.WriteNode.__call__

    def unseen(self: Any, folder: Any) -> Any:
        return None if folder.folder.endswith("1") else seen(self, folder)

    monkeypatch.setattr(node_tasks.WriteNode, "__call__", unseen)
    write_parquet(open_model(capture), ALL, tmp_path / "d", engine_of=repeating)
    assert tables_of(tmp_path / "d") == tables_of(capture)


def test_workers_without_pyarrow(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_stage, "MOST_HERE", 0)
    monkeypatch.setattr(node_tasks, "has_pyarrow", lambda: False)
    model: Model = open_model(capture)
    write_parquet(model, ALL, tmp_path / "d", engine_of=repeating)
    assert tables_of(tmp_path / "d") == tables_of(capture)
    assert parquet.has_pyarrow()
