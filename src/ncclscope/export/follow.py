"""JSON lines while the job runs: each operation once, when it is done and its waiting is known.

Each reading decodes the whole capture, because ranks are matched by the order of all their calls.
Readings are so far apart that they take at most a tenth of the time. An operation is written when
it was already done at the reading before: by then the files of all ranks hold it, and `wait_ns` is
known.

Row numbers change from reading to reading, so lines have none. `folder` and `event` identify an
operation; so do communicator, `call_order` and rank.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ncclscope.analysis.selection import Selection
from ncclscope.arrays.types import Ints
from ncclscope.capture.housekeeping import describe
from ncclscope.errors import FormatError, UsageError
from ncclscope.export.result import ExportResult
from ncclscope.model.build import open_model
from ncclscope.model.model import Model, Progress, process_rows
from ncclscope.model.process.inferred_collectives import has_parts
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import copy_to_file, literal, open_connection, select_list
from ncclscope.output_files import check_file, is_replaced, is_stdout, write_error

ROWS = 1 << 16  # written at once
INTERVAL_S = 2.0  # at least, from one reading to the next
_PAUSE = 9  # times the duration of the reading before
_ROW_NUMBERS = ("operation", "process", "communicator", "node", "instance", "part_of")
Select = Callable[[Model], Selection]


@dataclass(slots=True)
class RotatingFile:
    """A file that starts anew when it is full; older ones become `name.1`, `name.2` and so on."""

    path: Path
    size_bytes: int
    keep: int  # older files
    _out: BinaryIO | None = None

    def append(self, lines: Path) -> None:
        """Appends a file of whole lines. A rotation comes between appended files, never within."""
        if is_stdout(self.path):
            out: BinaryIO = sys.stdout.buffer
        else:
            if self._out is None:
                self._out = self.path.open("xb" if is_replaced(self.path) else "wb")
            out = self._out
        with lines.open("rb") as source:
            shutil.copyfileobj(source, out, 1 << 20)
        out.flush()
        full = self._out is not None and is_replaced(self.path)
        if full and self._out is not None and self._out.tell() >= self.size_bytes:
            self._rotate()

    def older(self, number: int) -> Path:
        """The name of an older file."""
        return self.path.with_name(f"{self.path.name}.{number}")

    def _rotate(self) -> None:
        self.close()
        self.older(self.keep).unlink(missing_ok=True)
        for number in range(self.keep - 1, 0, -1):
            if self.older(number).exists():
                self.older(number).replace(self.older(number + 1))
        if self.keep:
            self.path.replace(self.older(1))
        else:
            self.path.unlink()

    def close(self) -> None:
        """Closes the file; `append` opens it again."""
        if self._out is not None:
            self._out.close()
            self._out = None


@dataclass(slots=True)
class _ProcessKeys:
    """Keys of one process's operations: done at the reading before, and written."""

    done: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    written: Ints = field(default_factory=lambda: np.empty(0, np.int64))


def follow_jsonl(
    capture: Path,
    select: Select,
    out: RotatingFile,
    stop: threading.Event,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes operations until no process of the capture runs any more, or `stop` is set."""
    _check_target(out)
    follower = _Follower(select, out)
    running = True
    try:
        while running and not stop.is_set():
            began = time.monotonic()
            info = describe(capture)
            running = info is not None and info.running > 0
            try:
                follower.write_new(open_model(capture), is_last=not running)
            except FormatError:  # files that are being created or deleted
                if not running:
                    raise
            if progress:
                progress(follower.count, follower.count + 1)
            if running:
                stop.wait(max(INTERVAL_S, _PAUSE * (time.monotonic() - began)))
    except OSError as error:
        raise write_error(out.path, error) from None
    finally:
        out.close()
    return ExportResult(follower.count)


def _check_target(out: RotatingFile) -> None:
    """Raises UsageError where lines cannot be appended, or rotation would replace files."""
    check_file(out.path)
    if out.path.suffix == ".gz":
        why = "a growing file cannot be compressed"
    elif not is_replaced(out.path):
        return
    else:
        taken = [out.path, *(out.older(number) for number in range(1, out.keep + 1))]
        exists = next((path for path in taken if os.path.lexists(path)), None)
        if exists is None:
            return
        why = "it exists" if exists == out.path else f"{exists.name} exists"
    raise UsageError(f"cannot follow into {out.path}: {why}", "Name another file with -o")


class _Follower:
    """Remembers what was written."""

    def __init__(self, select: Select, out: RotatingFile) -> None:
        self._select, self._out = select, out
        self._keys: dict[str, _ProcessKeys] = {}  # by folder
        self.count = 0

    def write_new(self, model: Model, is_last: bool) -> None:
        """Writes operations that are new and done; at the last reading all that are left."""
        selection = self._select(model)
        for number, process in enumerate(model.processes):
            keys = self._keys.setdefault(process.folder, _ProcessKeys())
            rows = _new_rows(model, selection, number, keys, is_last)
            for first in range(0, len(rows), ROWS):
                with _lines(model, rows[first : first + ROWS], process.folder) as lines:
                    self._out.append(lines)
            self.count += len(rows)


def _new_rows(
    model: Model, selection: Selection, number: int, keys: _ProcessKeys, is_last: bool
) -> Ints:
    """Rows of a process to write now; `keys` is updated."""
    ops = model.tables["operations"]
    first, end = process_rows(ops, number)
    selected = selection.rows(model, slice(first, end))
    settled = [model.words["state"].index(name) for name in ("done", "captured")]
    done = selected & np.isin(ops["state"][first:end], settled)
    # A collective and the sends and receives it was inferred from can share an event.
    event_keys = np.asarray(ops["event"][first:end]).astype(np.int64) << 1
    event_keys |= has_parts(ops, slice(first, end))
    is_new = selected if is_last else done & np.isin(event_keys, keys.done)
    is_new &= ~np.isin(event_keys, keys.written)
    keys.done = event_keys[done]
    keys.written = np.concatenate([keys.written, event_keys[is_new]])
    rows: Ints = first + np.flatnonzero(is_new)
    return rows


@contextmanager
def _lines(model: Model, rows: Ints, folder: str) -> Iterator[Path]:
    """A temporary file with the operations as JSON lines."""
    operations = model.tables["operations"]
    columns = {name: np.asarray(values[rows]) for name, values in operations.items()}
    columns["operation"] = rows
    ids = np.append(model.tables["communicators"]["id"], NONE)  # the last: where none is known
    columns["communicator_id"] = ids[columns["communicator"]]
    query = (
        f"select {literal(folder)} as folder, * exclude ({', '.join(_ROW_NUMBERS)}) from "
        f"(select {select_list(model, 'operations')}, communicator_id from raw)"
    )
    with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
        file = Path(scratch) / "lines"
        with open_connection() as connection:
            connection.register("raw", columns)
            copy_to_file(connection, f"copy ({query}) to {literal(str(file))} (format json)")
        yield file
