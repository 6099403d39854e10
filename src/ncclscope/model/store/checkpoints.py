"""Processes that a cluster has decoded into a model that is not complete yet.

    process.n7        what process 7 is apart from its operations: JSON, then its tables
    operations.*      its operations, in their rows of the model's columns

A command that is killed leaves them. The next one takes each process whose rows still have the
checksum that its worker noted, and decodes the others.
"""

import io
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.errors import FormatError
from ncclscope.model.column_files import column_file
from ncclscope.model.process.decoded_process import DecodedProcess
from ncclscope.model.schema import CONTEXT_COLUMNS, OPERATIONS, Columns
from ncclscope.model.store.decoded_files import process_from, process_record, process_tables
from ncclscope.model.streams import StreamRanges
from ncclscope.private_directory import new_private_file

# Columns that later stages write into the same files.
_LATER = ("instance", "wait_ns", "wire_ns", "relative_wait_ns")
_CHECKED = [column for column in OPERATIONS if column.name not in _LATER]
_STREAMS = "streams"
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, FormatError, EOFError)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A process whose operations are in the model's columns."""

    decoded: DecodedProcess
    ranges: StreamRanges
    first_row: int
    checksum: int


def rows_checksum(columns: Columns) -> int:
    """The checksum of a process's operations as the model has them."""
    value = 0
    for column in _CHECKED:
        if column.name in columns:
            values = np.ascontiguousarray(columns[column.name], column.dtype)
            value = zlib.crc32(values.data.cast("B"), zlib.crc32(column.name.encode(), value))
    return value


def saved_checksum(folder: Path, first_row: int, rows: int, has_context: bool) -> int | None:
    """The same from the model's files; None where these are too short."""
    columns = {}
    for column in _CHECKED:
        if column.name in CONTEXT_COLUMNS and not has_context:
            continue
        path, size = column_file(folder, "operations", column.name), np.dtype(column.dtype).itemsize
        if not path.is_file() or path.stat().st_size < (first_row + rows) * size:
            return None
        columns[column.name] = np.fromfile(path, column.dtype, rows, offset=first_row * size)
    return rows_checksum(columns)


def _file(folder: Path, number: int) -> Path:
    return folder / f"process.n{number}"


def save_checkpoint(folder: Path, number: int, name: str, checkpoint: Checkpoint) -> None:
    """Notes that a process is in the model's columns. `number`: its place among the folders;
    `name`: of its own folder.
    """
    decoded = checkpoint.decoded
    record = {
        **process_record(decoded),
        "name": name,
        "rows": decoded.rows,
        "first_row": checkpoint.first_row,
        "checksum": checkpoint.checksum,
    }
    tables = {**process_tables(decoded), _STREAMS: _fields(checkpoint.ranges)}
    arrays = {f"{table}.{n}": v for table, columns in tables.items() for n, v in columns.items()}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    text = json.dumps(record).encode()
    body = len(text).to_bytes(8, "little") + text + packed.getvalue()
    with new_private_file(_file(folder, number)) as file:
        file.write(zlib.crc32(body).to_bytes(8, "little") + body)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def load_checkpoint(folder: Path, number: int, process: Path) -> Checkpoint | None:
    """What was noted of a process; None where nothing was, or something else."""
    try:
        whole = _file(folder, number).read_bytes()
        body = whole[8:]
        if zlib.crc32(body) != int.from_bytes(whole[:8], "little"):
            return None
        size = int.from_bytes(body[:8], "little")
        record = json.loads(body[8 : 8 + size])
        if record["name"] != process.name:
            return None
        with np.load(io.BytesIO(body[8 + size :]), allow_pickle=False) as arrays:
            tables: dict[str, Columns] = {}
            for key in arrays.files:
                table, _, name = key.partition(".")
                tables.setdefault(table, {})[name] = arrays[key]
        decoded = process_from(process, record, int(record["rows"]), tables.__getitem__)
        ranges = StreamRanges(**tables[_STREAMS])
        return Checkpoint(decoded, ranges, int(record["first_row"]), int(record["checksum"]))
    except _DAMAGED:
        return None


def load_checkpoints(
    folder: Path,
    processes: Sequence[Path],
    run: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]],
) -> dict[int, Checkpoint]:
    """The processes that need not be decoded, by number. `run`: compares their checksums."""
    loaded = {
        number: checkpoint
        for number, process in enumerate(processes)
        if (checkpoint := load_checkpoint(folder, number, process)) is not None
    }
    checked = run(_is_there, [(folder, checkpoint) for checkpoint in loaded.values()])
    return {
        number: checkpoint
        for (number, checkpoint), is_there in zip(loaded.items(), checked, strict=True)
        if is_there
    }


def _is_there(item: tuple[Path, Checkpoint]) -> bool:
    folder, checkpoint = item
    decoded = checkpoint.decoded
    if not decoded.rows:
        return True
    has_context = decoded.context is not None
    return checkpoint.checksum == saved_checksum(
        folder, checkpoint.first_row, decoded.rows, has_context
    )
