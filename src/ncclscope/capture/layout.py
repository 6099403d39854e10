"""The capture format: constants, slot kinds, and where the fields of a slot are.

Everything that C declares is in `_layout`, which is generated. Every file carries its own schema,
so that a reader finds the fields of a file written by a newer minor version; SCHEMA is this
release's. Standard library only: `run`, `ls`, `prune` and `salvage` read files without numpy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from struct import Struct

from ncclscope.capture._layout import *  # noqa: F403
from ncclscope.capture._layout import (
    HEAD,
    KINDS,
    SCHEMA,
    SLOT_BYTES,
    STATE_FIRST,
    STATE_SECOND,
    STATE_THIRD,
)
from ncclscope.errors import FormatError

STATE_BITS = (STATE_FIRST, STATE_SECOND, STATE_THIRD)  # of a head: states that have a time
# Bytes and struct codes of the schema's types.
TYPE_BYTES = {"u8": 1, "char": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}
_CODES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a field is."""

    type: str  # of the schema
    offset: int
    count: int  # of elements; 1 for a single number

    @property
    def code(self) -> str:
        """The field in the notation of `struct`; text is one item."""
        if self.type == "char":
            return f"{self.count}s"
        return _CODES[self.type] if self.count == 1 else f"{self.count}{_CODES[self.type]}"

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + TYPE_BYTES[self.type] * self.count


def places(fields: Iterable[str], start: int = 0) -> dict[str, Place]:
    """Fields by name, each where the one before it ends. A field is name:type or name:type:count."""
    found = {}
    for field in fields:
        name, kind, *count = field.split(":")
        found[name] = Place(kind, start, int(count[0]) if count else 1)
        start = found[name].end
    return found


@cache
def _schema_lines(schema: str = SCHEMA) -> dict[str, list[str]]:
    """Fields by the name of their kind, and those of `times`."""
    words = [line.split(" ") for line in schema.splitlines()]
    return {w[1] if w[0].isdigit() else w[0]: w[2 if w[0].isdigit() else 1 :] for w in words}


@cache
def slot_places(kind: str) -> dict[str, Place]:
    """The fields of a slot kind, those of its head included."""
    head = places(HEAD.split(" "))
    return head | places(_schema_lines()[kind], head["check"].end)


def slot_struct(kind: str, *names: str) -> Struct:
    """Unpacks these fields of a slot, which must be in the order of their offsets."""
    return struct_of(slot_places(kind), *names)


def struct_of(fields: dict[str, Place], *names: str) -> Struct:
    """Unpacks these of some fields; the bytes between them are left out."""
    codes, at = "<", 0
    for name in names:
        place = fields[name]
        codes += f"{place.offset - at}x{place.code}" if place.offset > at else place.code
        at = place.end
    return Struct(codes)


def times_bytes(schema: str = SCHEMA) -> int:
    """Bytes of a times record, which follows each Tally slot of a tally file with this schema."""
    try:
        return max(place.end for place in places(_schema_lines(schema)["times"]).values())
    except (KeyError, ValueError):
        raise FormatError("the schema is damaged: it does not describe times") from None


def tally_record_bytes(schema: str = SCHEMA) -> int:
    """Bytes of a record of a tally file with this schema."""
    return SLOT_BYTES + times_bytes(schema)


KIND_NAMES = {number: name for name, number in KINDS.items()}
