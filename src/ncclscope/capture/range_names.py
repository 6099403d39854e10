"""What the numbers in Range slots stand for: schemas of NVTX payloads, names of categories."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

Texts = Iterable[tuple[int, str]]  # (owner, text) of metadata
Value = int | float

# NVTX's numbers of the payload types that are numbers (nvToolsExtPayload.h), as `struct` has them.
_TYPE_CODES = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 11: "b",
    12: "B", 13: "h", 14: "H", 15: "i", 16: "I", 17: "q", 18: "Q", 19: "f", 20: "d", 22: "Q",
    23: "Q", 43: "f", 44: "d", 68: "I", 70: "Q", 71: "I", 72: "Q", 73: "I", 74: "Q",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PayloadField:
    """One field of an NVTX payload."""

    name: str
    type: int  # as NVTX numbers it
    offset: int


def payload_schemas(texts: Texts) -> dict[int, tuple[PayloadField, ...]]:
    """The fields of each schema by its number; lines of another form are left out."""
    return {number: tuple(_fields(text)) for number, text in texts}


def _fields(text: str) -> Iterable[PayloadField]:
    for line in text.split("\n"):
        name, _, rest = line.partition("\t")
        kind, _, offset = rest.partition("\t")
        if _is_number(kind) and _is_number(offset):
            yield PayloadField(name, int(kind), int(offset))


def category_names(texts: Texts) -> dict[tuple[int, int], str]:
    """Names of NVTX categories by domain and category; the last name of each counts."""
    names = {}
    for _, text in texts:
        domain, _, rest = text.partition("\t")
        category, _, name = rest.partition("\t")
        if _is_number(domain) and _is_number(category):
            names[int(domain), int(category)] = name
    return names


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def payload_values(schema: Iterable[PayloadField], content: bytes) -> dict[str, Value]:
    """The values of a payload by the names of its fields. Fields of types that this release does
    not know, or that lie behind the end of the content, are left out.
    """
    values: dict[str, Value] = {}
    end = 0
    for place, field in enumerate(schema):
        code = _TYPE_CODES.get(field.type)
        if not code:
            continue
        size = struct.calcsize("<" + code)
        # NVTX: a field without an offset follows the one before it, at a multiple of its size.
        offset = field.offset if field.offset or not place else -(-end // size) * size
        end = offset + size
        if end <= len(content):
            values[field.name] = struct.unpack_from("<" + code, content, offset)[0]
    return values
