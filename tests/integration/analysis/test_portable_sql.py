"""The analyses' SQL gives equal rows on DuckDB, Polars and DataFusion, over Parquet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ncclscope.analysis.query import connect, sql_text
from ncclscope.analysis.selection import DEFAULT_BY, KEYS, Selection
from tests.support.model_builders import random_model

polars = pytest.importorskip("polars")
datafusion = pytest.importorskip("datafusion")

TABLES = ("operations", "instances", "communicators", "members")
FINEST = ", ".join(KEYS[name] for name in (*DEFAULT_BY, "rank", "algorithm"))
# Texts in the order in which they may use each other's results, with what fills their places.
TEXTS: list[tuple[str, dict[str, str | int]]] = [
    ("sums", {"keys": FINEST}),
    ("histogram", {"keys": "communicator, function, size_bytes"}),
    ("rollup", {"keys": "communicator, function, datatype"}),
    ("percentiles", {"keys": "communicator, function, size_bytes"}),
    ("sizes", {}),
    ("untimed_reasons", {}),
    ("rank_sums", {}),
    ("arrivals", {}),
    ("arrival_coverage", {}),
    ("traffic", {}),
    ("over_time", {"origin_ns": 1000, "width_ns": 123_456_789}),
]
Engine = Callable[[str, str], list[tuple[Any, ...]]]


def on_duckdb(folder: Path) -> Engine:
    connection = duckdb.connect()
    for table in TABLES:
        connection.execute(f"create view {table} as from '{folder / table}.parquet'")

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        connection.execute(f"create table {name} as {text}")
        return connection.execute(f"from {name}").fetchall()

    return run


def on_polars(folder: Path) -> Engine:
    context = polars.SQLContext(
        {table: polars.scan_parquet(folder / f"{table}.parquet") for table in TABLES}
    )

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        frame = context.execute(text, eager=True)
        context.register(name, frame)
        return list(frame.rows())

    return run


def on_datafusion(folder: Path) -> Engine:
    context = datafusion.SessionContext()
    for table in TABLES:
        context.register_parquet(table, str(folder / f"{table}.parquet"))

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        context.sql(f"create table {name} as {text}").collect()
        return [
            tuple(row.values())
            for batch in context.sql(f"select * from {name}").collect()
            for row in batch.to_pylist()
        ]

    return run


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Any]]]:
    """Rows by engine and text."""
    folder = tmp_path_factory.mktemp("parquet")
    with connect(random_model(30_000, seed=4), Selection()) as connection:
        for table in TABLES:
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
    beside = {path.stem for path in Path(sql_text.__code__.co_filename).parent.glob("*.sql")}
    assert beside == {name for name, _ in TEXTS}
