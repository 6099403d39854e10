"""The analyses' SQL texts, and three engines that run them over Parquet files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ncclscope.analysis.selection import DEFAULT_BY, KEYS

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
    polars = pytest.importorskip("polars")
    context = polars.SQLContext(
        {table: polars.scan_parquet(folder / f"{table}.parquet") for table in TABLES}
    )

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        frame = context.execute(text, eager=True)
        context.register(name, frame)
        return list(frame.rows())

    return run


def on_datafusion(folder: Path) -> Engine:
    datafusion = pytest.importorskip("datafusion")
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
