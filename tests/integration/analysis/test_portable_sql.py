"""The analyses' SQL gives the rows of the model on DuckDB, Polars and DataFusion, over a dataset as
`export --to parquet` writes it, with a folder for each node; and on Spark and ClickHouse where pyspark
(with Java) and chdb are installed, as the nightly job does.
"""

import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.query import connect, sql_text
from ncclscope.analysis.selection import Selection
from ncclscope.export.parquet import write_parquet
from ncclscope.model.model import Model
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
    run_on_duckdb,
)

OPERATIONS, NODES = 30_000, 2
Rows = dict[str, list[Any]]  # by text
RowsOf = Callable[[Callable[[Path], Engine]], Rows]
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
ENGINES = [
    on_duckdb,
    pytest.param(on_polars, marks=needs("polars")),
    pytest.param(on_datafusion, marks=needs("datafusion")),
    pytest.param(on_clickhouse, marks=needs("chdb")),
    pytest.param(on_spark, marks=[needs("pyspark"), needs_java]),
]


@pytest.fixture(scope="module")
def model() -> Model:
    return random_model(OPERATIONS, seed=4)


@pytest.fixture(scope="module")
def dataset(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "dataset"
    write_parquet(model, Selection(), path)
    return path


@pytest.fixture(scope="module")
def expected(model: Model) -> Rows:
    """The rows of all texts, over the model."""
    with connect(model, Selection()) as connection:
        return rows_with(partial(run_on_duckdb, connection))


@pytest.fixture(scope="module")
def rows_of(dataset: Path) -> RowsOf:
    """The rows of all texts on an engine, over the dataset."""

    @cache
    def rows(make: Callable[[Path], Engine]) -> Rows:
        return rows_with(make(dataset))

    return rows


def rows_with(run: Engine) -> Rows:
    """The rows of all texts."""
    return {name: in_order(run(name, sql_text(name, **values))) for name, values in TEXTS}


def test_the_dataset_is_partitioned(dataset: Path) -> None:
    assert len(list((dataset / "operations").glob("node=*"))) == NODES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name, _ in TEXTS])
def test_equal_rows(
    name: str, engine: Callable[[Path], Engine], rows_of: RowsOf, expected: Rows
) -> None:
    assert len(expected[name]) > 0
    assert rows_of(engine)[name] == expected[name]


def test_every_text_is_tried() -> None:
    files = {path.stem for path in Path(sql_text.__code__.co_filename).parent.glob("*.sql")}
    assert files == {name for name, _ in TEXTS}
