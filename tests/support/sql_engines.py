"""The analyses' SQL texts, and engines that run them over Parquet files."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ncclscope.analysis.query import TEXT_TABLES
from ncclscope.analysis.selection import DEFAULT_BY, KEYS

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


def is_partitioned(folder: Path, table: str) -> bool:
    """Whether a table is the folder of a dataset, with folders of nodes in it."""
    return next((folder / table).glob("*=*"), None) is not None


def _files(folder: Path, table: str) -> str:
    """A table's files: one, or those of a dataset."""
    if not (folder / table).is_dir():
        return f"{folder / table}.parquet"
    return f"{folder / table}/{'*/' if is_partitioned(folder, table) else ''}*.parquet"


def on_duckdb(folder: Path) -> Engine:
    connection = duckdb.connect()
    for table in TEXT_TABLES:
        connection.execute(f"create view {table} as from '{_files(folder, table)}'")
    return partial(run_on_duckdb, connection)


def run_on_duckdb(
    connection: duckdb.DuckDBPyConnection, name: str, text: str
) -> list[tuple[Any, ...]]:
    """A text's rows, which are kept as a table of its name."""
    connection.execute(f"create temp table {name} as {text}")
    return connection.execute(f"from {name}").fetchall()


def on_polars(folder: Path) -> Engine:
    polars = pytest.importorskip("polars")
    context = polars.SQLContext(
        {
            table: polars.scan_parquet(_files(folder, table), hive_partitioning=True)
            for table in TEXT_TABLES
        }
    )

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        frame = context.execute(text, eager=True)
        context.register(name, frame)
        return list(frame.rows())

    return run


def on_datafusion(folder: Path) -> Engine:
    datafusion = pytest.importorskip("datafusion")
    arrow = pytest.importorskip("pyarrow")
    context = datafusion.SessionContext()
    for table in TEXT_TABLES:
        keys = [("node", arrow.int32())] if is_partitioned(folder, table) else []
        place = f"{folder / table}" + ("/" if (folder / table).is_dir() else ".parquet")
        context.register_parquet(table, place, table_partition_cols=keys)

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        context.sql(f"create table {name} as {text}").collect()
        return [
            tuple(row.values())
            for batch in context.sql(f"select * from {name}").collect()
            for row in batch.to_pylist()
        ]

    return run


def on_spark(folder: Path) -> Engine:
    sql = pytest.importorskip("pyspark.sql")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for table in TEXT_TABLES:
        place = folder / table if (folder / table).is_dir() else folder / f"{table}.parquet"
        session.read.parquet(str(place)).createOrReplaceTempView(table)

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        frame = session.sql(text).cache()
        frame.createOrReplaceTempView(name)
        return [tuple(row) for row in frame.collect()]

    return run


# Without them ClickHouse takes an alias for the column of the same name, and casts NULL to 0.
CLICKHOUSE_SETTINGS = ("prefer_column_name_to_alias = 1", "cast_keep_nullable = 1")


def on_clickhouse(folder: Path) -> Engine:
    """ClickHouse within this process."""
    session = pytest.importorskip("chdb.session").Session()
    for setting in (*CLICKHOUSE_SETTINGS, "output_format_json_quote_64bit_integers = 0"):
        session.query(f"set {setting}")
    session.query("create database texts")
    session.query("use texts")

    def create(table: str, text: str) -> None:
        session.query(f"create table {table} engine = Memory as {text}")

    for table in TEXT_TABLES:
        create(table, f"select * from file('{_files(folder, table)}', Parquet)")

    def run(name: str, text: str) -> list[tuple[Any, ...]]:
        create(name, text)
        lines = str(session.query(f"select * from {name}", "JSONCompactEachRow")).splitlines()
        return [tuple(json.loads(line)) for line in lines]

    return run


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])
