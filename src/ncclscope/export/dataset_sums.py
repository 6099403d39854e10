"""The sums of the default report as Parquet files, in the folder `sums` of a dataset: answers that
need no operation. Each is what the SQL text of its name gives (src/ncclscope/analysis).
"""

from pathlib import Path

import duckdb

from ncclscope.analysis.kept_sums import is_kept, kept_sums
from ncclscope.analysis.query import columns_of_names, create_names
from ncclscope.analysis.report_stage import TEXT_KEYS, Work
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.analysis.sum_columns import SumTable
from ncclscope.analysis.sum_tables import create_sums
from ncclscope.export.parquet_files import copy_query
from ncclscope.model.model import Model
from ncclscope.model.sql_views import literal, open_connection

SUMMED = ("sums", "histogram", *TEXT_KEYS)


def write_sums(work: Work, model: Model, selection: Selection, folder: Path) -> None:
    """Writes the sums of the selected operations; those of a long run may be kept already."""
    kept = kept_sums(model) if is_kept(model, selection, DEFAULT_BY) else None
    sums = kept or work.sums(model, selection, DEFAULT_BY)
    folder.mkdir()
    with open_connection() as connection:
        create_names(connection, model)
        for name in SUMMED:
            _write(connection, name, sums.tables[name], model, folder / f"{name}.parquet")


def _write(
    connection: duckdb.DuckDBPyConnection, name: str, table: SumTable, model: Model, file: Path
) -> None:
    create_sums(connection, name, table, model)
    shown = []
    for column in table.columns:
        kind = "varchar" if column in columns_of_names() else "bigint"
        shown.append(f'cast("{column}" as {kind}) as "{column}"')
        if column == "communicator":
            names = ", ".join(map(literal, model.communicator_names))
            shown.append(f"([{names}]::varchar[])[communicator + 1] as communicator_name")
    copy_query(connection, f"select {', '.join(shown)} from {name}", file)
