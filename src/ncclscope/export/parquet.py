"""The model as a dataset of Parquet files, for DuckDB, Polars, Spark and others: a folder for each
table, and within `operations` one for each node, which has one writer. On a cluster workers write
these. The dataset appears under its name when all of it is there.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ncclscope._version import __version__
from ncclscope.analysis.report_stage import Work, work_on
from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.path_edges import PATH_KINDS, path_edges_of
from ncclscope.capture.reader import DATASET_FILE, is_dataset
from ncclscope.errors import FormatError
from ncclscope.export.dataset_sums import write_sums
from ncclscope.export.node_tasks import write_on_workers
from ncclscope.export.parquet_files import (
    copy_query,
    folders_of,
    has_pyarrow,
    write_folders,
    write_no_rows,
)
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_path import NO_PATH
from ncclscope.ingest.call_stacks import TABLE as STACKS
from ncclscope.model.engine import Engines
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import SCHEMA_VERSION, SMALL_TABLES, TABLES
from ncclscope.model.sql_views import (
    SQL_TYPES,
    create_small_tables,
    open_connection,
    shown_columns,
)
from ncclscope.model.store.dataset_layout import KEYS, SUMS, is_unfinished, key_folders, part_name
from ncclscope.model.store.saved_model import FOLDER
from ncclscope.model.topology import FILE as TOPOLOGY_FILE
from ncclscope.output_files import check_directory, put_directory, scratch_near, write_text

TABLES_WRITTEN = (*TABLES, *SMALL_TABLES)
PATH_TABLE = "critical_path"  # where it was asked for
# Columns of the critical path, with their SQL types and meanings.
_PATH_COLUMNS = (
    ("start_ns", "bigint", "when the edge begins, where the one before ends"),
    ("end_ns", "bigint", "when it ends"),
    ("kind", "varchar", "host, host after sync, launch, gpu, transfer or start-up"),
    ("global_rank", "integer", "whose call, start or end it leads to"),
    ("communicator_name", "varchar", "of that operation"),
    ("function", "varchar", "of that operation"),
    ("operation", "bigint", "row of `operations`"),
    ("excess_ns", "bigint", "beyond the usual length of such an edge"),
)
_HINT = "with pyarrow it is up to a sixth smaller: pip install pyarrow"


def holds_dataset(path: Path) -> bool:
    """Whether a directory holds a dataset, what readers keep in it, and nothing else."""
    if not is_dataset(path):
        return False
    for entry in path.iterdir():
        if entry.name in (*TABLES_WRITTEN, PATH_TABLE, STACKS, SUMS, FOLDER):
            fits = entry.is_dir() and not entry.is_symlink()
            if entry.name != FOLDER:
                fits = fits and _holds_files_only(path, entry.name)
        else:
            fits = entry.name in (DATASET_FILE, TOPOLOGY_FILE) and entry.is_file()
        if not fits:
            return False
    return True


def _holds_files_only(dataset: Path, table: str) -> bool:
    """Whether a table's folder holds Parquet files, and folders of its key with such files."""
    try:
        keyed = [folder for _, folder in key_folders(dataset, table)] if table in KEYS else []
    except FormatError:
        return False
    if any(folder.is_symlink() or not folder.is_dir() for folder in keyed):
        return False
    entries = {entry for folder in (dataset / table, *keyed) for entry in folder.iterdir()}
    rest = entries - set(keyed)
    return all(entry.suffix == ".parquet" or is_unfinished(entry.name) for entry in rest)


def write_parquet(
    model: Model,
    selection: Selection,
    path: Path,
    force: bool = False,
    critical_path: bool = False,
    progress: Progress | None = None,
    engine_of: Engines | None = None,
) -> ExportResult:
    """Writes the selected operations, all rows of other tables that they can refer to, and with
    `critical_path` the critical path of the selected time. `engine_of`: makes what writes
    operations; default: this machine.
    """
    notes = () if has_pyarrow() else (_HINT,)
    check_directory(path, force, holds_dataset)
    with scratch_near(path) as scratch, work_on(engine_of, model) as work:
        dataset = scratch / "dataset"
        dataset.mkdir()
        count = _write_operations(work, model, selection, dataset, progress)
        for table in TABLES:
            if table not in KEYS:
                folders = folders_of(model, table)
                write_folders(model, selection, dataset, folders, has_pyarrow())
        with open_connection() as connection:
            create_small_tables(connection, model)
            for table in SMALL_TABLES:
                (dataset / table).mkdir()
                copy_query(connection, f"select * from {table}", dataset / table / part_name(0))
            has_path = critical_path and _write_path(connection, model, selection, dataset)
        if count:
            write_sums(work, model, selection, dataset / SUMS)
        schema = _schema(model, has_path)
        write_text(dataset / DATASET_FILE, json.dumps(schema, indent=1) + "\n")
        put_directory(dataset, path)
    return ExportResult(count, notes=(*notes, NO_PATH) if critical_path and not has_path else notes)


def _write_operations(
    work: Work, model: Model, selection: Selection, dataset: Path, progress: Progress | None
) -> int:
    """Writes the selected operations; returns how many."""
    folders, count = folders_of(model, "operations"), 0
    if work.threads is not None:  # on a cluster
        count, folders = write_on_workers(work, model, selection, dataset, folders, progress)
    if folders:
        count += write_folders(model, selection, dataset, folders, has_pyarrow(), progress)
    if not count:
        write_no_rows(model, dataset, "operations")
    return count


def _write_path(
    connection: duckdb.DuckDBPyConnection, model: Model, selection: Selection, dataset: Path
) -> bool:
    """Writes the critical path; False where there is none."""
    edges = path_edges_of(model, selection)
    if edges is None:
        return False
    ops = model.tables["operations"]
    names: dict[str, Sequence[str]] = {
        "kind": PATH_KINDS,
        "communicator_name": model.communicator_names,
        "function": model.words["function"],
    }
    columns = {
        "kind": edges.kind,
        "communicator_name": np.asarray(ops["communicator"])[edges.operation],
        "function": np.asarray(ops["function"])[edges.operation],
        "global_rank": np.asarray(ops["global_rank"])[edges.operation],
        **{name: getattr(edges, name) for name in ("start_ns", "end_ns", "operation", "excess_ns")},
    }
    for name, words in names.items():
        table = np.array([*words, None], object)  # place -1, the last one, is for unknown ones
        columns[name] = table[columns[name]]
    connection.register("path", columns)
    listed = ", ".join(f"{name}::{kind} as {name}" for name, kind, _ in _PATH_COLUMNS)
    (dataset / PATH_TABLE).mkdir()
    copy_query(connection, f"select {listed} from path", dataset / PATH_TABLE / part_name(0))
    connection.unregister("path")
    return True


def _schema(model: Model, has_path: bool) -> dict[str, Any]:
    """The contents of schema.json: what a reader without documentation needs."""
    tables = {
        table: [
            (column.name, "varchar" if column.words else SQL_TYPES[column.dtype], column.meaning)
            for column in shown_columns(table)
        ]
        for table in TABLES_WRITTEN
    }
    if has_path:
        tables[PATH_TABLE] = list(_PATH_COLUMNS)
    return {
        "schema_version": SCHEMA_VERSION,
        "ncclscope": __version__,
        "realtime_offset_ns": model.realtime_offset_ns,
        "completeness": model.completeness.as_json(),
        "partitions": {table: [key] for table, key in KEYS.items()},
        "tables": {
            table: [{"name": name, "type": kind, "meaning": text} for name, kind, text in columns]
            for table, columns in tables.items()
        },
    }
