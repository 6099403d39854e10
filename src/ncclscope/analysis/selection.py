"""What a report is about: which operations, grouped by what."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from ncclscope.errors import UsageError
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns

Ints = npt.NDArray[np.int64]

# What operations can be grouped by: the user's word -> column of `operations`.
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
}
DEFAULT_BY = ("communicator", "function", "size", "datatype")
# When an operation began, as well as it is known, on raw columns: NONE is less than any time.
_BEGAN = (
    "case when start_ns >= 0 then start_ns when launch_ns >= 0 then launch_ns "
    "when call_ns >= 0 then call_ns else enqueue_ns end"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Operations that fit all of it; None: any."""

    communicators: tuple[int, ...] | None = None  # rows of `communicators`
    functions: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None  # global
    since_ns: int | None = None
    until_ns: int | None = None


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
    """Communicators by name, pattern or hash."""
    ids = model.tables["communicators"]["id"].astype(np.int64).view(np.uint64)
    found: list[int] = []
    for wanted in names:
        rows = [
            row
            for row, name in enumerate(model.communicator_names)
            if wanted in (name, f"{int(ids[row]):x}", f"0x{int(ids[row]):x}")
            or fnmatchcase(name, wanted)
        ]
        if not rows:
            known = ", ".join(model.communicator_names[:20]) or "none"
            message = f"cannot select communicator {wanted}: the capture has none of that name"
            raise UsageError(message, f"It has {known}")
        found.extend(rows)
    return tuple(dict.fromkeys(found))


def function_names(known: list[str], names: list[str]) -> tuple[str, ...]:
    """Functions as the capture spells them."""
    spelled = {name.casefold(): name for name in known}
    for wanted in names:
        if wanted.casefold() not in spelled:
            message = f"cannot select operation {wanted}: the capture has none"
            raise UsageError(message, f"It has {', '.join(sorted(known)) or 'none'}")
    return tuple(dict.fromkeys(spelled[name.casefold()] for name in names))


def conditions(model: Model, chosen: Selection, table: str) -> str:
    """The selection as a condition on the raw columns of `operations` or `instances`."""
    parts = ["true"]
    if chosen.communicators is not None:
        parts.append(_among("communicator", chosen.communicators))
    if chosen.functions is not None:
        codes = [model.words["function"].index(name) for name in chosen.functions]
        parts.append(_among("function", codes))
    if chosen.ranks is not None and table == "operations":
        parts.append(_among("global_rank", chosen.ranks))
    began = "first_start_ns" if table == "instances" else _BEGAN
    if chosen.since_ns is not None:
        parts.append(f"{began} >= {int(chosen.since_ns)}")
    if chosen.until_ns is not None:
        parts.append(f"{began} < {int(chosen.until_ns)}")
    return " and ".join(parts)


def _among(column: str, values: tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(str(int(value)) for value in values)
    return f"{column} in ({listed})" if listed else "false"


def began_ns(ops: Columns, rows: slice) -> Ints:
    """When those operations began, as well as it is known; NONE where nothing is."""
    when = np.asarray(ops["start_ns"][rows]).astype(np.int64)
    for name in ("launch_ns", "call_ns", "enqueue_ns"):
        when = np.where(when >= 0, when, ops[name][rows])
    return when


def matching(model: Model, chosen: Selection, rows: slice) -> npt.NDArray[np.bool_]:
    """Which of those operations `conditions` would choose, parts of others included."""
    ops = model.tables["operations"]
    keep = np.ones(len(ops["event"][rows]), np.bool_)
    if chosen.communicators is not None:
        keep &= np.isin(ops["communicator"][rows], chosen.communicators)
    if chosen.functions is not None:
        codes = [model.words["function"].index(name) for name in chosen.functions]
        keep &= np.isin(ops["function"][rows], codes)
    if chosen.ranks is not None:
        keep &= np.isin(ops["global_rank"][rows], chosen.ranks)
    if chosen.since_ns is not None:
        keep &= began_ns(ops, rows) >= chosen.since_ns
    if chosen.until_ns is not None:
        keep &= began_ns(ops, rows) < chosen.until_ns
    return keep


def mask(model: Model, chosen: Selection, rows: slice) -> npt.NDArray[np.bool_]:
    """The same by the start of kernels; parts of others are left out."""
    ops = model.tables["operations"]
    keep: npt.NDArray[np.bool_] = np.asarray(ops["part_of"][rows]) == NONE
    if chosen.communicators is not None:
        keep &= np.isin(ops["communicator"][rows], chosen.communicators)
    if chosen.functions is not None:
        codes = [model.words["function"].index(name) for name in chosen.functions]
        keep &= np.isin(ops["function"][rows], codes)
    if chosen.ranks is not None:
        keep &= np.isin(ops["global_rank"][rows], chosen.ranks)
    if chosen.since_ns is not None:
        keep &= ops["start_ns"][rows] >= chosen.since_ns
    if chosen.until_ns is not None:
        keep &= ops["start_ns"][rows] < chosen.until_ns
    return keep
