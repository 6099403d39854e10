"""Relations as data frames of other packages, and rows of an answer as a relation."""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from ncclscope.errors import NcclscopeError
from ncclscope.model.sql_views import open_database

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Relation = duckdb.DuckDBPyRelation
Rows = Sequence[Mapping[str, Any]]


def extra(module: str, purpose: str = "hand a table over") -> Any:
    """An optional package; NcclscopeError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        message = f"cannot {purpose}: {package} is not installed"
        raise NcclscopeError(message, f"Install it with `pip install {package}`") from None


def to_pandas(relation: Relation) -> "pandas.DataFrame":
    """The relation as a pandas data frame."""
    extra("pandas")
    frame: pandas.DataFrame = relation.df()
    return frame


def to_polars(relation: Relation) -> "polars.DataFrame":
    """The relation as a Polars data frame."""
    package = extra("polars")
    # By way of pyarrow where it is: DuckDB 2.0 complains of leaks at exit otherwise.
    arrow = importlib.util.find_spec("pyarrow") is not None
    frame: polars.DataFrame = package.DataFrame(to_arrow(relation) if arrow else relation)
    return frame


def to_arrow(relation: Relation) -> "pyarrow.Table":
    """The relation as an Arrow table."""
    return extra("pyarrow").RecordBatchReader.from_stream(relation).read_all()


def relation_of(rows: Rows) -> Relation:
    """Rows of an answer as a relation. Objects within a row become columns: `duration_us.median`
    is `duration_us_median`; lists become texts.
    """
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column([row.get(name) for row in flat]) for name in names}
    connection = open_database()
    if not columns:
        return connection.sql("select null as nothing limit 0")
    connection.register("answer", columns)
    connection.execute("create temp table rows as select * from answer")
    return connection.table("rows")


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{inner}": part for inner, part in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def _column(values: list[Any]) -> np.ndarray[Any, Any]:
    """Values of one kind as an array that DuckDB scans; None is NULL."""
    missing = [value is None for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {bool}:
        return np.ma.array([bool(value) for value in values], mask=missing)
    if kinds and kinds <= {int, bool}:
        return np.ma.array([value or 0 for value in values], dtype=np.int64, mask=missing)
    if kinds and kinds <= {int, float, bool}:
        return np.ma.array([value or 0.0 for value in values], dtype=np.float64, mask=missing)
    texts = [None if value is None else _text(value) for value in values]
    return np.array(texts, dtype=object)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
