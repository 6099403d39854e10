"""The analyses' SQL gives equal rows on DuckDB, Polars and DataFusion, over Parquet; and on Spark and
ClickHouse where pyspark (with Java) and chdb are installed, as they are for no other test.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.query import TEXT_TABLES, connect, sql_text
from ncclscope.analysis.selection import Selection
from tests.support.model_builders import random_model
from tests.support.packages import needs
from tests.support.sql_engines import (
    TEXTS,
    Engine,
    in_order,
    on_clickhouse,
    on_datafusion,
    on_duckdb,
    on_polars,
    on_spark,
)

OPERATIONS = 30_000
Rows = dict[str, list[Any]]  # by text
RowsOf = Callable[[Callable[[Path], Engine]], Rows]
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
ENGINES = [
    pytest.param(on_polars, marks=needs("polars")),
    pytest.param(on_datafusion, marks=needs("datafusion")),
    pytest.param(on_clickhouse, marks=needs("chdb")),
    pytest.param(on_spark, marks=[needs("pyspark"), needs_java]),
]


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory: pytest.TempPathFactory) -> RowsOf:
    """The rows of all texts on an engine."""
    folder = tmp_path_factory.mktemp("parquet")
    with connect(random_model(OPERATIONS, seed=4), Selection()) as connection:
        for table in TEXT_TABLES:
            connection.execute(f"copy {table} to '{folder / table}.parquet' (format parquet)")

    @cache
    def rows(make: Callable[[Path], Engine]) -> Rows:
        run = make(folder)
        return {name: in_order(run(name, sql_text(name, **values))) for name, values in TEXTS}

    return rows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name, _ in TEXTS])
def test_equal_rows(name: str, engine: Callable[[Path], Engine], rows_of: RowsOf) -> None:
    expected = rows_of(on_duckdb)[name]
    assert len(expected) > 0
    assert rows_of(engine)[name] == expected


def test_every_text_is_tried() -> None:
    files = {path.stem for path in Path(sql_text.__code__.co_filename).parent.glob("*.sql")}
    assert files == {name for name, _ in TEXTS}
