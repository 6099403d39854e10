"""The analyses' SQL texts on Spark SQL and ClickHouse: their rows against DuckDB's.

    pip install pyspark chdb        # Spark needs Java 17
    python -m benchmarks sql_engines

tests/integration/analysis/test_portable_sql.py has the engines that start quickly.
"""

import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.results import publish, table
from ncclscope.analysis.query import TEXT_TABLES, connect, sql_text
from ncclscope.analysis.selection import Selection
from tests.support.model_builders import random_model
from tests.support.sql_engines import (
    CLICKHOUSE_SETTINGS,
    TEXTS,
    Engine,
    in_order,
    on_clickhouse,
    on_duckdb,
    on_spark,
)

_OPERATIONS = 30_000


def _rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each text, or why there are none."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for name, values in TEXTS:
        try:
            rows[name] = in_order(engine(name, sql_text(name, **values)))
        except Exception as error:  # of engines that share no class of them
            print(name, error, flush=True)
            rows[name] = [("failed", type(error).__name__)]
    return rows


def main() -> None:
    """Compares all rows and publishes how many texts agree."""
    engines = {
        f"Spark SQL {version('pyspark')}": on_spark,
        f"ClickHouse (chdb {version('chdb')}), {' and '.join(CLICKHOUSE_SETTINGS)}": on_clickhouse,
    }
    cells: list[list[object]] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with connect(random_model(_OPERATIONS, seed=4), Selection()) as connection:
            for name in TEXT_TABLES:
                connection.execute(f"copy {name} to '{folder / name}.parquet' (format parquet)")
        expected = _rows(on_duckdb(folder))
        for title, make in engines.items():
            began = time.monotonic()
            rows = _rows(make(folder))
            differing = [name for name in expected if rows[name] != expected[name]]
            for name in differing:
                pairs = zip(rows[name], expected[name], strict=False)
                print(title, name, next(((a, b) for a, b in pairs if a != b), "lengths"))
            equal = f"{len(expected) - len(differing)} of {len(expected)}"
            took = f"{time.monotonic() - began:.0f}"
            cells.append([title, equal, ", ".join(differing) or "none", took])
    text = (
        f"\n\nThe {len(TEXTS)} texts of src/ncclscope/analysis, unchanged, over Parquet files of "
        f"{_OPERATIONS:,} random operations, against DuckDB {version('duckdb')}: all values of all "
        "rows."
    )
    publish("sql-engines", table(["engine", "equal texts", "others", "wall s"], cells) + text)
    assert all(row[2] == "none" for row in cells)
