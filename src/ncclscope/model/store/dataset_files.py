"""Files of a dataset as DuckDB reads them, several small ones at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from ncclscope.model.sql_views import literal
from ncclscope.model.store.dataset_layout import KEYS, UNKNOWN_KEY, TableFile

_FILE = "ncclscope_file"  # a column with the file's name
_ROW = "file_row_number"  # DuckDB's own name


@dataclass(frozen=True, slots=True)
class FileBundle:
    """Files of a table with the same columns, which are read together."""

    files: tuple[TableFile, ...]
    rows: int
    columns: frozenset[str]  # in the files

    @property
    def has_key(self) -> bool:
        """Whether the table's key is in the names of folders alone."""
        return self.files[0].key is not None

    def source(self, table: str) -> str:
        """What to select from, with the rows' numbers and, from the folder's name, the key."""
        paths, key = [file.path for file in self.files], KEYS.get(table)
        if not self.has_key or key in self.columns:
            return scan(paths, f", {_ROW} = true")
        source = scan(paths, f", {_ROW} = true, filename = '{_FILE}'")
        text = f"nullif(regexp_extract({_FILE}, '{key}=([^/]*)/[^/]*$', 1), '{UNKNOWN_KEY}')"
        return f"(select *, cast({text} as integer) as {key} from {source})"


def scan(files: Sequence[Path], options: str = "") -> str:
    """Files as they are. What Hive would read in the names of folders is left alone: a dataset may
    lie in a folder such as `step=3`.
    """
    listed = ", ".join(literal(str(file)) for file in files)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false{options})"


def file_bundles(
    connection: duckdb.DuckDBPyConnection, files: Sequence[TableFile], rows: int
) -> list[FileBundle]:
    """The files in their order, bundled up to so many rows; larger ones are alone."""
    return list(_bundles(list(_bundle_of_each(connection, files)), rows)) if files else []


def _bundles(single: Sequence[FileBundle], rows: int) -> Iterator[FileBundle]:
    held = single[0]
    for one in single[1:]:
        if held.columns == one.columns and held.rows + one.rows <= rows:
            held = FileBundle((*held.files, *one.files), held.rows + one.rows, one.columns)
        else:
            yield held
            held = one
    yield held


def _bundle_of_each(
    connection: duckdb.DuckDBPyConnection, files: Sequence[TableFile]
) -> Iterator[FileBundle]:
    listed = "[" + ", ".join(literal(str(file.path)) for file in files) + "]"
    rows = dict(
        connection.execute(
            f"select file_name, num_rows from parquet_file_metadata({listed})"
        ).fetchall()
    )
    columns = dict(
        connection.execute(
            "select file_name, list(name) from "
            f"parquet_schema({listed}) where type is not null group by file_name"
        ).fetchall()
    )
    for file in files:
        name = str(file.path)
        yield FileBundle((file,), int(rows[name]), frozenset(columns[name]))
