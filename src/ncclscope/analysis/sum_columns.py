"""Sums of operations by keys, as columns of whole numbers: what tasks return and send.

Names are their codes, and NULL is NOTHING.
"""

from dataclasses import dataclass

from ncclscope.model.schema import Columns

NOTHING = -(1 << 62)  # no sum is that small


@dataclass(frozen=True, slots=True)
class SumTable:
    """One row for each combination of keys; all columns are int64."""

    keys: tuple[str, ...]
    columns: Columns
