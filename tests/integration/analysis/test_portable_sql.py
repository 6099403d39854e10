"""The analyses' SQL gives equal rows on DuckDB, Polars and DataFusion, over Parquet."""

from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.query import TEXT_TABLES, connect, sql_text
from ncclscope.analysis.selection import Selection
from tests.support.model_builders import random_model
from tests.support.packages import needs
from tests.support.sql_engines import TEXTS, in_order, on_datafusion, on_duckdb, on_polars

pytestmark = needs("polars", "datafusion")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Any]]]:
    """Rows by engine and text."""
    folder = tmp_path_factory.mktemp("parquet")
    with connect(random_model(30_000, seed=4), Selection()) as connection:
        for table in TEXT_TABLES:
            connection.execute(f"copy {table} to '{folder / table}.parquet' (format parquet)")
    engines = {"duckdb": on_duckdb, "polars": on_polars, "datafusion": on_datafusion}
    found: dict[str, dict[str, list[Any]]] = {}
    for engine, make in engines.items():
        run = make(folder)
        found[engine] = {
            name: in_order(run(name, sql_text(name, **values))) for name, values in TEXTS
        }
    return found


@pytest.mark.parametrize("engine", ["polars", "datafusion"])
@pytest.mark.parametrize("name", [name for name, _ in TEXTS])
def test_equal_rows(name: str, engine: str, answers: dict[str, dict[str, list[Any]]]) -> None:
    expected = answers["duckdb"][name]
    assert len(expected) > 0
    assert answers[engine][name] == expected


def test_every_text_is_tried() -> None:
    files = {path.stem for path in Path(sql_text.__code__.co_filename).parent.glob("*.sql")}
    assert files == {name for name, _ in TEXTS}
