"""Protobuf's wire format: for one message, and for many messages of one shape at once.

Many messages are rows of byte columns. A column has the same number of bytes in every row, and says
how many of them are used. All columns are laid side by side and the unused bytes are removed in one
step, so that a million messages need no loop over messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Ints

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
    """The tag before a field's value."""
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    """A field with a number; a negative one as protobuf encodes int64."""
    return tag(field, VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str | bytes) -> bytes:
    """A field with a string, or with an encoded message."""
    content = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return tag(field, LENGTH) + varint(len(content)) + content


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """Some bytes of each row; in row i the first `length[i]` are used."""

    data: Bytes  # rows x bytes
    length: Ints


Columns = list[ByteColumn]


def constant(content: bytes, rows: int) -> ByteColumn:
    """The same bytes in each row."""
    data = np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))
    return ByteColumn(data, np.full(rows, len(content), np.int64))


def varints(
    values: Ints, before: bytes = b"", present: npt.NDArray[np.bool_] | None = None
) -> ByteColumn:
    """Unsigned numbers, each after the bytes `before`; nothing in rows that are not `present`."""
    shown = values if present is None else np.where(present, values, 0)
    count = _varint_lengths(shown)
    widest, lead = int(count.max(initial=1)), len(before)
    data = np.empty((len(values), lead + widest), np.uint8)
    data[:, :lead] = np.frombuffer(before, np.uint8)
    _fill_varints(data[:, lead:], shown, count)
    length = count + lead
    return ByteColumn(data, length if present is None else np.where(present, length, 0))


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
) -> ByteColumn:
    """Eight bytes each, after the bytes `before`."""
    lead = len(before)
    data = np.empty((len(values), lead + 8), np.uint8)
    data[:, :lead] = np.frombuffer(before, np.uint8)
    data[:, lead:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8)
    length = np.full(len(values), lead + 8, np.int64)
    return ByteColumn(data, length if present is None else np.where(present, length, 0))


def merge_columns(columns: Sequence[ByteColumn]) -> ByteColumn:
    """All columns as one."""
    length = row_lengths(columns)
    data = np.zeros((len(length), int(length.max(initial=0))), np.uint8)
    used = np.arange(data.shape[1]) < length[:, None]
    data[used] = np.frombuffer(encode_rows(columns), np.uint8)
    return ByteColumn(data, length)


def take_rows(column: ByteColumn, rows: Ints) -> ByteColumn:
    """The rows at some places, which may repeat."""
    return ByteColumn(column.data[rows], column.length[rows])


def message(field: int, columns: Sequence[ByteColumn]) -> Columns:
    """Each row as a field that holds a message."""
    return [varints(row_lengths(columns), tag(field, LENGTH)), *columns]


def row_lengths(columns: Sequence[ByteColumn]) -> Ints:
    """Bytes of each row."""
    total: Ints = np.sum([column.length for column in columns], axis=0, dtype=np.int64)
    return total


def encode_rows(columns: Sequence[ByteColumn]) -> bytes:
    """The used bytes of all rows, one row after the other."""
    if not columns or not len(columns[0].length):
        return b""
    data = np.concatenate([column.data for column in columns], axis=1)
    used = np.concatenate([_used_bytes(column) for column in columns], axis=1)
    encoded: Bytes = data[used]
    return encoded.tobytes()


def _used_bytes(column: ByteColumn) -> npt.NDArray[np.bool_]:
    """Which bytes of a column are used."""
    width = column.data.shape[1]
    if len(column.length) and int(column.length.min()) == width:
        return np.broadcast_to(np.True_, column.data.shape)
    dtype = np.uint8 if width < 256 else np.int64  # a quarter of the time
    return np.asarray(np.arange(width, dtype=dtype) < column.length.astype(dtype)[:, None])
