"""Decodes a capture's finished processes to Parquet files in their folders, and removes their logs
if asked to: store/decoded_files.py has the layout. A second run goes on where one ended.

A process that still runs, was killed, or has damaged files keeps its log: readers of these need
events. Before a log is removed, its decoded files are read back and compared with it, value by
value.
"""

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.process import Process, open_process
from ncclscope.capture.slot_log import SlotLog
from ncclscope.errors import FormatError, NcclscopeError
from ncclscope.model.detail_schema import DETAILS
from ncclscope.model.detail_tables import own_details
from ncclscope.model.engine import Engines
from ncclscope.model.model import Progress
from ncclscope.model.process.decoded_process import DecodedProcess, decode_process
from ncclscope.model.schema import Columns
from ncclscope.model.store.decoded_files import (
    OPERATIONS,
    is_decoded,
    process_from,
    process_tables,
    read_decoded,
    read_details,
    write_manifest,
    write_tables,
)
from ncclscope.model.store.saved_model import FOLDER

STILL_OPEN = "without an end: running or killed"
DAMAGED = "with damaged files"
UNREADABLE = "unreadable"


@dataclass(slots=True)
class Decoding:
    """What was decoded."""

    decoded: int = 0  # processes, now
    before: int = 0  # processes that had decoded files already
    without_log: int = 0  # processes that recorded no single events
    log_bytes: int = 0  # of the decoded processes
    decoded_bytes: int = 0
    removed_bytes: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # processes that keep their log, by reason

    def add(self, other: "Decoding") -> None:
        """Adds what was decoded elsewhere."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))


def decode_capture(
    capture: Path,
    remove_raw: bool,
    progress: Progress | None = None,
    engine_of: Engines | None = None,
) -> Decoding:
    """Decodes each finished process of a capture; with `remove_raw`, removes its log afterwards.
    `engine_of`: what does it, unless this process does.
    """
    decoding = Decoding()
    folders = process_folders(capture)
    decode = partial(_decode_folder, remove_raw=remove_raw)
    if engine_of is not None:
        with (
            TemporaryDirectory(prefix=f".{FOLDER}-", dir=capture) as scratch,
            engine_of(folders, Path(scratch)) as engine,
        ):
            for part in engine.map(decode, folders, progress):
                decoding.add(part)
        return decoding
    for number, folder in enumerate(folders):
        if progress:
            progress(number, len(folders))
        decoding.add(decode(folder))
    return decoding


def _decode_folder(folder: Path, remove_raw: bool) -> Decoding:
    decoding = Decoding()
    with _locked(folder):
        _decode(folder, remove_raw, decoding)
    return decoding


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other commands from decoding the same process: one could remove what another is
    about to replace.
    """
    try:
        descriptor = os.open(folder / "meta", os.O_RDWR)
    except FileNotFoundError:  # unreadable, so it stays as it is
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        message = f"cannot decode {folder}: another command is decoding it"
        raise NcclscopeError(message, "Run it again when that has ended") from None
    finally:
        os.close(descriptor)


def _decode(folder: Path, remove_raw: bool, decoding: Decoding) -> None:
    if is_decoded(folder):
        decoding.before += 1
        if remove_raw and _has_log(folder):
            _check_readable(folder)
            decoding.removed_bytes += _remove_log(folder)
        return
    if not _has_log(folder):
        decoding.without_log += 1
        return
    try:
        process = open_process(folder)
    except (FormatError, OSError):
        decoding.kept[UNREADABLE] += 1
        return
    reason = _why_kept(folder, process)
    if reason:
        decoding.kept[reason] += 1
        return
    whole = decode_process(folder)
    if isinstance(whole, str):
        decoding.kept[UNREADABLE] += 1
        return
    decoded, tables = whole[0], _tables(process, *whole)
    del whole  # the generator drops what was written
    manifest = write_tables(folder, decoded, tables, partial(_check_table, folder))
    again = process_from(
        folder, manifest, decoded.rows, partial(read_details, folder, manifest=manifest)
    )
    _check_equal(folder, decoded, again, "process")
    write_manifest(folder, manifest)
    decoding.decoded += 1
    decoding.log_bytes += _bytes(folder, "log.*")
    decoding.decoded_bytes += _bytes(folder, "decoded.*")
    if remove_raw:
        decoding.removed_bytes += _remove_log(folder)


def _tables(
    process: Process, decoded: DecodedProcess, columns: Columns
) -> Iterator[tuple[str, Columns]]:
    """The tables of a process, each made when it is asked for."""
    yield OPERATIONS, columns
    del columns
    yield from process_tables(decoded).items()
    for table in DETAILS:
        yield table, own_details(process, table)


def _has_log(folder: Path) -> bool:
    return any(folder.glob("log.*"))


def _why_kept(folder: Path, process: Process) -> str:
    """Why a process keeps its log; "" if it can do without."""
    if not process.ended or (folder / "arena").exists():
        return STILL_OPEN
    damage = process.damage
    if damage.bad_slots or damage.torn_bytes or damage.unreadable:
        return DAMAGED
    return ""


def _bytes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def _check_readable(folder: Path) -> None:
    """Raises FormatError unless all decoded files of a process can be read."""
    read_decoded(folder)
    for table in DETAILS:
        read_details(folder, table)


def _remove_log(folder: Path) -> int:
    """Removes the files of a log, the newest last; returns their bytes."""
    removed = 0
    for path in sorted(folder.glob("log.*")):
        size = path.stat().st_size
        path.unlink()
        removed += size
    return removed


# ---- whether what was written is what was read ----
def _check_table(folder: Path, table: str, columns: Columns, manifest: dict[str, Any]) -> None:
    """Raises NcclscopeError unless a table that was written has the values of the log."""
    _check_equal(folder, columns, read_details(folder, table, manifest), table)


def _check_equal(folder: Path, expected: Any, value: Any, name: str) -> None:
    differs = _first_difference(expected, value, name)
    if differs:
        message = f"decoded files of {folder} differ from its log in {differs}"
        raise NcclscopeError(message, "The log was kept. Please report this")


def _first_difference(expected: Any, value: Any, name: str) -> str:
    """The name of the first part that differs; "" if all is equal."""
    if isinstance(expected, SlotLog):  # empty in both
        return ""
    if isinstance(expected, np.ndarray):
        same = isinstance(value, np.ndarray) and expected.dtype == value.dtype
        return "" if same and np.array_equal(expected, value) else name
    if is_dataclass(expected) and type(expected) is type(value):
        names = [field.name for field in fields(expected)]
        return _first_of(names, lambda part: getattr(expected, part), value, getattr, name)
    if isinstance(expected, dict) and isinstance(value, dict):
        if expected.keys() != value.keys():
            return name
        return _first_of(list(expected), expected.__getitem__, value, dict.__getitem__, name)
    if isinstance(expected, (list, tuple)) and isinstance(value, (list, tuple)):
        if len(expected) != len(value):
            return name
        places = range(len(expected))
        return _first_of(list(places), expected.__getitem__, value, lambda v, n: v[n], name)
    return "" if expected == value else name


def _first_of(
    keys: list[Any],
    of_expected: Callable[[Any], Any],
    value: Any,
    of_value: Callable[[Any, Any], Any],
    name: str,
) -> str:
    for key in keys:
        differs = _first_difference(of_expected(key), of_value(value, key), f"{name}.{key}")
        if differs:
            return differs
    return ""
