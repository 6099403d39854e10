"""Whether a saved model is undamaged: stamps and checksums of its files, types of its values, and
references between its tables.

A file's stamp is its size, its number and when it last changed, which the kernel keeps and nobody
can set back. While all stamps are those of the manifest, checksums are not compared: they take
twice the time of the check of ranges, which is made each time. Nothing that indexes memory is
believed because of a stamp: whoever writes the files can write the manifest.
"""

import ctypes
import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ncclscope.arrays.chunks import row_chunks
from ncclscope.arrays.library import library, pointer
from ncclscope.model.column_files import column_file, map_file
from ncclscope.model.schema import (
    ANY_NUMBER,
    LARGEST,
    NONE,
    OPTIONAL_COLUMNS,
    TABLES,
    Column,
    Columns,
    value_range,
)
from ncclscope.threads import in_threads

LARGEST_MANIFEST_BYTES = 1 << 28
_CHUNK_WORDS = 1 << 18  # 2 MB: stays in the cache between reading and adding up
_THREADS = 4
_BYTES_FOR_THREADS = 16 << 20  # of less, threads take longer to start than to work
_SEAL, _STAMPS = "seal", "stamps"
# Columns that hold rows of other tables.
REFERENCES = {
    "process": "processes",
    "communicator": "communicators",
    "node": "nodes",
    "counter": "counters",
}
_OF_OPERATIONS = REFERENCES | {
    "instance": "instances",
    "part_of": "operations",
    "module": "modules",
}
# References that must not be NONE.
_NEVER_NONE = {
    "windows": ("process",),
    "members": ("communicator",),
    "counters": ("process",),
    "counter_histograms": ("counter",),
    "steps": ("process",),
    "phases": ("process",),
}


class DamagedError(ValueError):
    """A part of a saved model or of a dataset is not what it must be; the message names it."""


def regular_size(path: Path) -> int:
    """Bytes of a plain file. DamagedError for anything else: a pipe would block its reader."""
    return _state(path).st_size


def _state(path: Path) -> os.stat_result:
    state = path.lstat()
    if not stat.S_ISREG(state.st_mode):
        raise DamagedError(f"{path.name} is no file")
    return state


def _stamp(path: Path) -> list[int]:
    """What changes whenever a file is written to, replaced or copied."""
    state = _state(path)
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]


def checksum(path: Path) -> str:
    """The checksum of a column's file."""
    state = np.arange(1, 9, dtype=np.uint64)
    words = np.zeros(_CHUNK_WORDS, np.uint64)
    chunk, size = words.view(np.uint8), 0
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(chunk.data):
            size += read
            chunk[read : -(-read // 8) * 8] = 0
            library().ncclscope_checksum(
                pointer(state), pointer(words), ctypes.c_int64(-(-read // 8))
            )
    return hashlib.sha256(state.tobytes() + size.to_bytes(8, "little")).hexdigest()[:32]


def _each(do: Callable[[Path], str], paths: Collection[Path]) -> list[str]:
    if sum(path.stat().st_size for path in paths) < _BYTES_FOR_THREADS:
        return [do(path) for path in paths]
    return in_threads(do, list(paths), min(len(os.sched_getaffinity(0)), _THREADS))


def _column_files(folder: Path, rows: dict[str, int]) -> dict[str, Path]:
    return {
        path.name: path
        for table, columns in TABLES.items()
        if rows[table]
        for path in (column_file(folder, table, column.name) for column in columns)
        if not is_left_out(path, table)
    }


def is_left_out(path: Path, table: str) -> bool:
    """Whether it is the file of an optional column of which nothing is known."""
    names = OPTIONAL_COLUMNS.get(table, ())
    return path.name.removeprefix(f"{table}.") in names and not path.is_symlink() | path.exists()


def _digest(manifest: dict[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != _SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def with_seal(
    folder: Path, manifest: dict[str, Any], checksums: dict[str, str] | None = None
) -> dict[str, Any]:
    """The manifest with checksums of the columns and of itself. `checksums`: by file, where these
    were taken already.
    """
    files = _column_files(folder, manifest["rows"])
    manifest = {
        **manifest,
        "checksums": checksums or dict(zip(files, _each(checksum, files.values()), strict=True)),
        _STAMPS: {name: _stamp(path) for name, path in files.items()},
    }
    return {**manifest, _SEAL: _digest(manifest)}


def check_seal(folder: Path, manifest: dict[str, Any]) -> None:
    """Raises DamagedError if the files are not the ones that were saved, by their stamps, nor equal
    to them, by their checksums.
    """
    if manifest.get(_SEAL) != _digest(manifest):
        raise DamagedError("manifest")
    rows = manifest["rows"]
    if set(rows) != set(TABLES) or not all(is_number(n) and n >= 0 for n in rows.values()):
        raise DamagedError("rows")
    for table, columns in TABLES.items():
        for column in columns if rows[table] else ():
            path = column_file(folder, table, column.name)
            if path.name not in manifest["checksums"] and is_left_out(path, table):
                continue
            size = regular_size(path)
            if size != rows[table] * np.dtype(column.dtype).itemsize:
                raise DamagedError(f"{table}.{column.name}")
    files = _column_files(folder, rows)
    if {name: _stamp(path) for name, path in files.items()} == manifest.get(_STAMPS):
        return
    sums = dict(zip(files, _each(checksum, files.values()), strict=True))
    if sums != manifest["checksums"]:
        raise DamagedError("columns")


def is_whole_number(value: object) -> TypeGuard[int]:
    """Whether it is a whole number of any size."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether it is a whole number of 63 bits."""
    # Of the very type first: most are, and a model has a hundred thousand of them.
    return (type(value) is int or is_whole_number(value)) and -LARGEST < value < LARGEST


def is_text(value: object) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


_TYPES: dict[Any, Callable[[Any], bool]] = {
    int: is_number,
    str: is_text,
    bool: lambda value: isinstance(value, bool),
    list[str]: lambda value: isinstance(value, list) and all(map(is_text, value)),
    dict[str, int]: lambda value: (
        isinstance(value, dict) and all(map(is_text, value)) and all(map(is_number, value.values()))
    ),
}


def record_of(kind: Any, values: Any) -> Any:
    """A dataclass of plain fields from a JSON object."""
    record = kind(**values)
    for name, fits in _checks_of(kind):
        if not fits(getattr(record, name)):
            raise DamagedError(f"{kind.__name__}.{name}")
    return record


@cache  # there may be ten thousand processes
def _checks_of(kind: Any) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    return tuple((field.name, _TYPES[field.type]) for field in fields(kind))


def texts(values: Any, count: int | None = None) -> list[str]:
    """A list of strings; of `count` strings where that is given."""
    if not _TYPES[list[str]](values) or count not in (None, len(values)):
        raise DamagedError("names")
    return list(values)


def wrong_reference(
    table: str, columns: Columns, rows: dict[str, int], targets: dict[str, str]
) -> str:
    """The first table to which a column refers wrongly, "" if none does. `rows`: of each table;
    `targets`: tables by column.
    """
    for column, target in targets.items():
        values = columns.get(column)
        if values is None or not len(values):
            continue
        least = 0 if column in _NEVER_NONE.get(table, ()) else NONE
        if int(values.min()) < least or int(values.max()) >= rows[target]:
            return target
    return ""


def _extent(path: Path, dtype: str) -> tuple[int, int]:
    """The least and the largest value in a column's file. It is mapped for as long as this takes:
    mapped pages count as memory of this process.
    """
    values = map_file(path, dtype, path.stat().st_size // np.dtype(dtype).itemsize, "r")
    chunks = [values[rows] for rows in row_chunks(len(values))]
    extents = [(int(chunk.min()), int(chunk.max())) for chunk in chunks]  # while it is in the cache
    return min(least for least, _ in extents), max(most for _, most in extents)


def _allowed(
    table: str, column: Column, words: dict[str, list[str]], rows: dict[str, int]
) -> tuple[int, int]:
    """The least and the largest value that a column may have: a code, a row, or what its kind of
    number can be.
    """
    target = (_OF_OPERATIONS if table == "operations" else REFERENCES).get(column.name)
    if target is not None:
        return 0 if column.name in _NEVER_NONE.get(table, ()) else NONE, rows[target] - 1
    least, most = value_range(column)
    return least, len(words[column.name]) - 1 if column.words else most


def check_numbers(
    folder: Path,
    words: dict[str, list[str]],
    rows: dict[str, int],
    whole: Mapping[str, frozenset[str]],
) -> None:
    """Raises DamagedError where a row or a code is referred to that does not exist, or a number
    is larger than its column allows. `rows`: of each table, of processes and of nodes. `whole`:
    columns of tables in which every value should be known.
    """
    chosen = [
        (table, column, path)
        for table, columns in TABLES.items()
        for column in (columns if rows[table] else ())
        if column.name not in ANY_NUMBER
        for path in (column_file(folder, table, column.name),)
        if not is_left_out(path, table)
    ]
    threads = min(len(os.sched_getaffinity(0)), _THREADS)
    extents = in_threads(lambda entry: _extent(entry[2], entry[1].dtype), chosen, threads)
    for (table, column, _), (lowest, highest) in zip(chosen, extents, strict=True):
        least, most = _allowed(table, column, words, rows)
        gap = lowest == NONE and column.name in whole.get(table, ())
        if lowest < least or highest > most or gap:
            raise DamagedError(f"{table}.{column.name}")
