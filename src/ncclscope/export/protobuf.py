"""Protobuf's wire format, for one message and for many alike at once.

Many alike are rows of pieces: a piece has some bytes of each row and how many of them count. Bytes
are laid side by side and those that do not count are taken out in one step, so that a million
messages cost no loop over messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
VARINT, FIXED64, LENGTH = 0, 1, 2
_MOST_BYTES = 10  # of a varint


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int, wire: int) -> bytes:
    """What stands before a field's value."""
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    """A field that is a number; negative ones as protobuf's int64 has them."""
    return tag(field, VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str | bytes) -> bytes:
    """A field that is a text, or a message made before."""
    content = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return tag(field, LENGTH) + varint(len(content)) + content


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of each row; of row i the first `length[i]` count."""

    data: Bytes  # rows x bytes
    length: Ints


Rows = list[Piece]


def constant(content: bytes, rows: int) -> Piece:
    """The same bytes in each row."""
    data = np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))
    return Piece(data, np.full(rows, len(content), np.int64))


def varints(
    values: Ints, before: bytes = b"", present: npt.NDArray[np.bool_] | None = None
) -> Piece:
    """Unsigned numbers, each behind the bytes `before`; nothing in rows that are not present."""
    shown = values if present is None else np.where(present, values, 0)
    count = _varint_lengths(shown)
    widest, lead = int(count.max(initial=1)), len(before)
    data = np.empty((len(values), lead + widest), np.uint8)
    data[:, :lead] = np.frombuffer(before, np.uint8)
    _fill_varints(data[:, lead:], shown, count)
    length = count + lead
    return Piece(data, length if present is None else np.where(present, length, 0))


def _varint_lengths(values: Ints) -> Ints:
    count = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for place in range(1, _MOST_BYTES - 1):
        if largest >> (7 * place) == 0:
            break
        count += values >> (7 * place) != 0
    return count


def _fill_varints(data: Bytes, values: Ints, count: Ints) -> None:
    widest = data.shape[1]
    for place in range(widest):
        septet = values if widest == 1 else (values >> (7 * place)) & 127
        data[:, place] = septet
        if place < widest - 1:
            data[:, place] |= (count > place + 1).astype(np.uint8) << 7


def fixed64(
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    before: bytes,
    present: npt.NDArray[np.bool_] | None = None,
) -> Piece:
    """Eight bytes each, behind the bytes `before`."""
    lead = len(before)
    data = np.empty((len(values), lead + 8), np.uint8)
    data[:, :lead] = np.frombuffer(before, np.uint8)
    data[:, lead:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8)
    length = np.full(len(values), lead + 8, np.int64)
    return Piece(data, length if present is None else np.where(present, length, 0))


def in_one(rows: Sequence[Piece]) -> Piece:
    """All pieces of each row as one."""
    length = lengths(rows)
    data = np.zeros((len(length), int(length.max(initial=0))), np.uint8)
    data[np.arange(data.shape[1]) < length[:, None]] = np.frombuffer(joined(rows), np.uint8)
    return Piece(data, length)


def taken(piece: Piece, places: Ints) -> Piece:
    """Some rows, also several times."""
    return Piece(piece.data[places], piece.length[places])


def message(field: int, rows: Sequence[Piece]) -> Rows:
    """The rows as one field each that is a message."""
    return [varints(lengths(rows), tag(field, LENGTH)), *rows]


def lengths(rows: Sequence[Piece]) -> Ints:
    """Bytes of each row."""
    total: Ints = np.sum([piece.length for piece in rows], axis=0, dtype=np.int64)
    return total


def joined(rows: Sequence[Piece]) -> bytes:
    """All rows, one after the other."""
    if not rows or not len(rows[0].length):
        return b""
    data = np.concatenate([piece.data for piece in rows], axis=1)
    counts = np.concatenate([_counting(piece) for piece in rows], axis=1)
    chosen: Bytes = data[counts]
    return chosen.tobytes()


def _counting(piece: Piece) -> npt.NDArray[np.bool_]:
    """Which bytes of a piece count."""
    width = piece.data.shape[1]
    if len(piece.length) and int(piece.length.min()) == width:
        return np.broadcast_to(np.True_, piece.data.shape)
    small = np.uint8 if width < 256 else np.int64  # a quarter of the time
    return np.asarray(np.arange(width, dtype=small) < piece.length.astype(small)[:, None])
