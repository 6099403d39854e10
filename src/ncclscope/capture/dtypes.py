"""Slot kinds as numpy dtypes, made from the schema that every file carries."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ncclscope.capture.layout import ADDED_FIELDS, HEAD, SCHEMA, SLOT_BYTES, places
from ncclscope.errors import FormatError

_TYPES = {
    "u8": "u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "i32": "<i4",
    "i64": "<i8",
    "char": "u1",
}
_LARGEST_TIMES = 1 << 16
_HEAD = [(name, _TYPES[place.type]) for name, place in places(HEAD.split(" ")).items()]

# Any slot: the head, and the fields that all events have.
ANY_SLOT = np.dtype(
    [*_HEAD, ("parent", "<u8"), ("t0", "<u8"), ("t1", "<u8"), ("words", "<u8", (4,))]
)


@dataclass(frozen=True, slots=True)
class Schema:
    """Slot kinds by name: their numbers and numpy dtypes; counters by number."""

    kinds: dict[str, int]
    names: dict[int, str]
    dtypes: dict[str, np.dtype[np.void]]
    times: np.dtype[np.void]  # what follows a Tally slot in the tally file
    counters: tuple[str, ...]


def _dtype(fields: list[str], head: list[tuple[str, str]], largest: int) -> np.dtype[np.void]:
    """Fields one after the other, each at a multiple of its size: DuckDB scans them in place."""
    described: list[tuple[str, str] | tuple[str, str, tuple[int]]] = list(head)
    offset = 8 if head else 0
    for field in fields:
        name, kind, *length = field.split(":")
        item = np.dtype(_TYPES[kind])
        count = int(length[0]) if length else 1
        if offset % item.itemsize or not 1 <= count <= largest:
            raise ValueError(field)
        described.append((name, _TYPES[kind], (count,)) if length else (name, _TYPES[kind]))
        offset += item.itemsize * count
    if offset % SLOT_BYTES or offset > largest:
        raise ValueError("not whole slots")
    return np.dtype(described)


@lru_cache(maxsize=16)
def parse_schema(text: str) -> Schema:
    """The schema that a file header carries; FormatError when it cannot be one."""
    kinds: dict[str, int] = {}
    dtypes: dict[str, np.dtype[np.void]] = {}
    counters: tuple[str, ...] = ()
    times = np.dtype([])
    try:
        for line in text.splitlines():
            first, *rest = line.split(" ")
            if first == "counters":
                counters = tuple(rest)
            elif first == "times":
                times = _dtype(rest, [], _LARGEST_TIMES)
            else:
                kinds[rest[0]] = int(first)
                dtypes[rest[0]] = _dtype(rest[1:], _HEAD, SLOT_BYTES)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise FormatError(f"the schema is damaged: {error!s:.80}") from None
    names = {number: name for name, number in kinds.items()}
    return Schema(kinds, names, dtypes, times, counters)


# This release's own schema, by which it reads.
OURS = parse_schema(SCHEMA)


def _are_first_fields(earlier: np.dtype[np.void], later: np.dtype[np.void]) -> bool:
    """Whether all fields of one dtype are the first ones of another, in the same places. What was
    spare may have a name now.
    """
    places = dict(later.fields or {})
    return all(
        places.get(name) == place
        for name, place in (earlier.fields or {}).items()
        if not name.startswith("spare")
    )


@lru_cache(maxsize=16)
def check_schema(text: str) -> Schema:
    """A file's schema, when this release can read the file by its own.

    Kinds and fields that only the file knows are skipped, kinds that only this release knows do
    not occur; a field that both know must lie in the same place.
    """
    theirs = parse_schema(text)
    for name, dtype in OURS.dtypes.items():
        if name not in theirs.kinds:
            continue
        fields = dict(theirs.dtypes[name].fields or {})
        for field, place in (dtype.fields or {}).items():
            if field not in fields and f"{name}.{field}" in ADDED_FIELDS:
                continue  # of an earlier minor version
            if not field.startswith("spare") and fields.get(field) != place:
                raise FormatError(f"its schema describes {name}.{field} differently")
        if theirs.kinds[name] != OURS.kinds[name]:
            raise FormatError(f"its schema numbers {name} differently")
    if not _are_first_fields(theirs.times, OURS.times):
        raise FormatError("its schema describes times differently")
    return theirs
