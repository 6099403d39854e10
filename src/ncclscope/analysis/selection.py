"""Which operations an answer is about, and what they are grouped by."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from ncclscope.analysis.measures import BEGAN_RAW_SQL, began_ns
from ncclscope.arrays.types import Bools
from ncclscope.errors import UsageError
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model

# What operations can be grouped by: the user's word → column of `operations`.
KEYS = {
    "communicator": "communicator",
    "function": "function",
    "size": "size_bytes",
    "datatype": "datatype",
    "algorithm": "algorithm",
    "protocol": "protocol",
    "rank": "global_rank",
    "host": "node",
    "thread": "thread",
    "variant": "variant",
    "tag": "tag",
    "step": "step",
    "phase": "phase",
    "module": "module",
    "dimension": "dimension",
}
_ALIASES = {
    "comm": "communicator",
    "op": "function",
    "operation": "function",
    "bytes": "size",
    "size_bytes": "size",
    "dtype": "datatype",
    "type": "datatype",
    "algo": "algorithm",
    "proto": "protocol",
    "node": "host",
    "layer": "module",
    "parallelism": "dimension",
}
DEFAULT_BY = ("communicator", "function", "size", "datatype")


@dataclass(frozen=True, slots=True)
class Selection:
    """The operations that meet all conditions. None: no condition."""

    communicators: tuple[int, ...] | None = None  # rows of `communicators`
    functions: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None  # global
    since_ns: int | None = None  # operations that began then or later
    until_ns: int | None = None  # operations that began earlier

    @property
    def window(self) -> "Selection":
        """Its limits of time alone."""
        return Selection(since_ns=self.since_ns, until_ns=self.until_ns)

    def rows(self, model: Model, rows: slice) -> Bools:
        """Which of these rows of `operations` are selected; parts of others can be."""
        operations = model.tables["operations"]
        keep = np.ones(len(operations["event"][rows]), np.bool_)
        for column, values in self._listed(model).items():
            keep &= np.isin(operations[column][rows], values)
        if self.since_ns is not None:
            keep &= began_ns(operations, rows) >= self.since_ns
        if self.until_ns is not None:
            keep &= began_ns(operations, rows) < self.until_ns
        return keep

    def sql(self, model: Model, table: str) -> str:
        """The same as a condition on the raw columns of `operations` or `instances`. An instance
        is of all its ranks, and began with the first of them.
        """
        listed = self._listed(model)
        if table == "instances":
            listed.pop("global_rank", None)
        parts = ["true", *(_among(column, values) for column, values in listed.items())]
        began = "first_start_ns" if table == "instances" else BEGAN_RAW_SQL
        if self.since_ns is not None:
            parts.append(f"{began} >= {int(self.since_ns)}")
        if self.until_ns is not None:
            parts.append(f"{began} < {int(self.until_ns)}")
        return " and ".join(parts)

    def _listed(self, model: Model) -> dict[str, Sequence[int]]:
        """By column the values that are selected."""
        listed: dict[str, Sequence[int]] = {}
        if self.communicators is not None:
            listed["communicator"] = self.communicators
        if self.functions is not None:
            listed["function"] = [model.words["function"].index(name) for name in self.functions]
        if self.ranks is not None:
            listed["global_rank"] = self.ranks
        return listed


def _among(column: str, values: Sequence[int]) -> str:
    listed = ", ".join(str(int(value)) for value in values)
    return f"{column} in ({listed})" if listed else "false"


def parse_by(words: list[str]) -> tuple[str, ...]:
    """Grouping keys from the user's words: `a,b` replaces the default, `+a` adds to it."""
    pieces = [piece.strip() for word in words for piece in word.split(",") if piece.strip()]
    adds = [piece for piece in pieces if piece.startswith("+")]
    keys = list(DEFAULT_BY) if len(adds) == len(pieces) else []
    for piece in pieces:
        name = piece.removeprefix("+").casefold()
        name = _ALIASES.get(name, name)
        if name not in KEYS:
            message = f"cannot group by {piece.removeprefix('+')}: there is no such key"
            raise UsageError(message, f"Keys are {', '.join(KEYS)}")
        if name not in keys:
            keys.append(name)
    return tuple(keys)


def communicator_rows(model: Model, names: list[str]) -> tuple[int, ...]:
    """Rows of communicators by name, pattern or hash."""
    ids = model.tables["communicators"]["id"].astype(np.int64).view(np.uint64)
    selected: list[int] = []
    for wanted in names:
        rows = [
            row
            for row, name in enumerate(model.communicator_names)
            if wanted in (name, f"{int(ids[row]):x}", f"0x{int(ids[row]):x}")
            or fnmatchcase(name, wanted)
        ]
        if not rows:
            existing = ", ".join(model.communicator_names[:20]) or "none"
            message = f"cannot select communicator {wanted}: the capture has none of that name"
            raise UsageError(message, f"It has {existing}")
        selected.extend(rows)
    return tuple(dict.fromkeys(selected))


def check_ranks(model: Model, ranks: Sequence[int]) -> tuple[int, ...]:
    """The same ranks. Raises if the capture has none of them: an empty answer looks like an idle
    job.
    """
    present = np.unique(model.tables["operations"]["global_rank"]).tolist()
    present += [process.global_rank for process in model.processes]
    existing = tuple(sorted({rank for rank in present if rank >= 0}))
    if not set(ranks) & set(existing):
        message = f"cannot select {ranks_in_words(tuple(ranks))}: no such process in {model.path}"
        raise UsageError(message, f"There are {ranks_in_words(existing)}" if existing else "")
    return tuple(ranks)


def function_names(existing: list[str], names: list[str]) -> tuple[str, ...]:
    """Functions as the capture spells them."""
    spelled = {name.casefold(): name for name in existing}
    for wanted in names:
        if wanted.casefold() not in spelled:
            message = f"cannot select operation {wanted}: the capture has none"
            raise UsageError(message, f"It has {', '.join(sorted(existing)) or 'none'}")
    return tuple(dict.fromkeys(spelled[name.casefold()] for name in names))
