"""Sums of the default report of a whole long run, as they are kept beside the saved model: a second
report reads no operation, and needs no cluster.

Analyses are made of a model alone: commands hand this to them.
"""

from typing import Any

import numpy as np

from ncclscope.analysis.report_stage import TABLES, ReportSums, is_long
from ncclscope.analysis.selection import DEFAULT_BY, Selection
from ncclscope.analysis.sum_columns import NOTHING, SumTable
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.model.store.kept_answers import keep_answer, kept_answer

_NAME = "sums"
# Rises when what is summed up changes: kept ones are made again then.
_VERSION = 1


def is_kept(model: Model, selection: Selection, by: tuple[str, ...]) -> bool:
    """Whether such sums are kept: of few operations they are made in no time."""
    return selection == Selection() and by == DEFAULT_BY and is_long(model)


def kept_sums(model: Model) -> ReportSums | None:
    """The sums of the default report; None where they are not kept."""
    answer = kept_answer(model, _NAME, _VERSION)
    try:
        return None if answer is None else _sums(answer, model)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None


def keep_sums(model: Model, sums: ReportSums) -> None:
    """Keeps the sums of the default report."""
    tables = {
        name: [table.keys, {column: v.tolist() for column, v in table.columns.items()}]
        for name, table in sums.tables.items()
    }
    keep_answer(model, _NAME, _VERSION, {"span": sums.span, "tables": tables})


def _sums(answer: dict[str, Any], model: Model) -> ReportSums:
    """The sums in a file; ValueError where a number in it is none of the model's."""
    span = answer["span"]
    tables = {name: _table(*answer["tables"][name]) for name in TABLES}
    for name, table in tables.items():
        _check(table, model, from_one=name.startswith("busy"))
    return ReportSums(None if span is None else (int(span[0]), int(span[1])), tables)


def _table(keys: list[str], columns: dict[str, list[int]]) -> SumTable:
    made = {str(name): np.array(values, np.int64) for name, values in columns.items()}
    if len({values.shape for values in made.values()}) != 1 or not set(keys) <= set(made):
        raise ValueError("columns of different lengths")
    return SumTable(tuple(map(str, keys)), made)


def _check(table: SumTable, model: Model, from_one: bool) -> None:
    """Raises where a row of the model's tables is named that there is not. `from_one`: rows count
    from 1 on.
    """
    rows = {
        "communicator": len(model.communicator_names),
        "function": len(model.words["function"]),
        "node": len(model.nodes),
        "module": len(model.module_names),
    }
    for name, count in rows.items():
        values = table.columns.get(name)
        if values is None:
            continue
        known = values[values != NOTHING]
        if known.min(initial=0) < NONE or known.max(initial=NONE) >= count + from_one:
            raise ValueError(f"no such {name}")
