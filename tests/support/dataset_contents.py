"""What a dataset holds, for comparisons."""

from pathlib import Path
from typing import Any

import duckdb


def dataset_in(path: Path) -> dict[str, Any]:
    """By file the names of its columns and its rows in order, or its text."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): _contents(file) for file in files}


def _contents(file: Path) -> Any:
    if file.suffix != ".parquet":
        return file.read_text()
    rows = duckdb.read_parquet(str(file), hive_partitioning=False)
    return rows.columns, rows.fetchall()
