"""JSON lines while the job runs: each operation once, when it is done and settled.

A capture is decoded whole at each look, because ranks are matched by the order of all their calls;
looks are as far apart as that takes a tenth of the time at most. An operation is written when it
was done at the look before: by then all ranks' files are as far, and its waiting is known.

Numbers of rows change from look to look, so lines have none. An operation is named by `folder` and
`event`, and by communicator, `call_order` and rank.
"""

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
import numpy.typing as npt

from ncclscope.analysis.selection import Selection
from ncclscope.capture.housekeeping import describe
from ncclscope.errors import FormatError, UsageError
from ncclscope.export.atomic_files import STDOUT, cannot_write
from ncclscope.export.written import Written
from ncclscope.model.build import open_model
from ncclscope.model.model import Model, Progress
from ncclscope.model.process.inferred_collectives import has_parts
from ncclscope.model.sql_views import literal, open_connection, select_list

Ints = npt.NDArray[np.int64]
ROWS = 1 << 16  # of a piece
LOOK_S = 2.0  # at least from one look to the next
_SHARE = 9  # rests so many times as long as a look took
_NUMBERS = ("operation", "process", "communicator", "node", "instance", "part_of")
Choose = Callable[[Model], Selection]


@dataclass(slots=True)
class Rotated:
    """A file that starts over when it is full; older ones are `name.1`, `name.2` and so on."""

    path: Path
    size_bytes: int
    keep: int
    _out: BinaryIO | None = None

    def write(self, piece: Path) -> None:
        """Appends a file of whole lines; the file is full after, not within, a piece."""
        if self.path == STDOUT:
            out: BinaryIO = sys.stdout.buffer
        else:
            if self._out is None:
                self._out = self.path.open("xb")
            out = self._out
        with piece.open("rb") as lines:
            shutil.copyfileobj(lines, out, 1 << 20)
        out.flush()
        if self._out is not None and self._out.tell() >= self.size_bytes:
            self._rotate()

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _rotate(self) -> None:
        self.close()
        self._older(self.keep).unlink(missing_ok=True)
        for number in range(self.keep - 1, 0, -1):
            if self._older(number).exists():
                self._older(number).replace(self._older(number + 1))
        if self.keep:
            self.path.replace(self._older(1))
        else:
            self.path.unlink()

    def close(self) -> None:
        """Until more is written."""
        if self._out is not None:
            self._out.close()
            self._out = None


@dataclass(slots=True)
class _Seen:
    """Keys of one process's operations: done at the last look, and written."""

    done: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    written: Ints = field(default_factory=lambda: np.empty(0, np.int64))


def follow_jsonl(
    capture: Path,
    choose: Choose,
    out: Rotated,
    stop: threading.Event,
    progress: Progress | None = None,
) -> Written:
    """Writes operations until no process of the capture runs any more, or it is told to stop."""
    if out.path != STDOUT and (out.path.exists() or out.path.suffix == ".gz"):
        exists = out.path.exists()
        why = "it exists" if exists else "lines that go on cannot be compressed"
        raise UsageError(f"cannot follow into {out.path}: {why}", "Name another file with -o")
    follower = _Follower(choose, out)
    running = True
    try:
        while running and not stop.is_set():
            began = time.monotonic()
            info = describe(capture)
            running = info is not None and info.running > 0
            try:
                follower.look(open_model(capture), last=not running)
            except FormatError:  # files that are being made, or rotated away
                if not running:
                    raise
            if progress:
                progress(follower.count, follower.count + 1)
            if running:
                stop.wait(max(LOOK_S, _SHARE * (time.monotonic() - began)))
    except OSError as error:
        raise cannot_write(out.path, error) from None
    finally:
        out.close()
    return Written(follower.count)


class _Follower:
    """What was written so far."""

    def __init__(self, choose: Choose, out: Rotated) -> None:
        self._choose, self._out = choose, out
        self._seen: dict[str, _Seen] = {}  # by folder
        self.count = 0

    def look(self, model: Model, last: bool) -> None:
        """Writes what is new. The last time everything is, in flight or not."""
        chosen = self._choose(model)
        for number, process in enumerate(model.processes):
            seen = self._seen.setdefault(process.folder, _Seen())
            rows = self._new(model, chosen, number, seen, last)
            for first in range(0, len(rows), ROWS):
                with _lines(model, rows[first : first + ROWS], process.folder) as piece:
                    self._out.write(piece)
            self.count += len(rows)

    def _new(self, model: Model, chosen: Selection, number: int, seen: _Seen, last: bool) -> Ints:
        """Rows of a process to be written now."""
        ops = model.tables["operations"]
        first, end = np.searchsorted(ops["process"], (number, number + 1)).tolist()
        keep = chosen.rows(model, slice(first, end))
        settled = [model.words["state"].index(name) for name in ("done", "captured")]
        done = keep & np.isin(ops["state"][first:end], settled)
        keys = np.asarray(ops["event"][first:end]).astype(np.int64) << 1
        keys |= has_parts(ops, slice(first, end))
        now = keep if last else done & np.isin(keys, seen.done)
        now &= ~np.isin(keys, seen.written)
        seen.done = keys[done]
        seen.written = np.concatenate([seen.written, keys[now]])
        found: Ints = first + np.flatnonzero(now)
        return found


@contextmanager
def _lines(model: Model, rows: Ints, folder: str) -> Iterator[Path]:
    """Operations as lines in a file that lasts until they are copied."""
    columns = {name: np.asarray(v[rows]) for name, v in model.tables["operations"].items()}
    columns["operation"] = rows
    ids = np.asarray(model.tables["communicators"]["id"])
    columns["communicator_id"] = ids[columns["communicator"]]
    query = (
        f"select {literal(folder)} as folder, * exclude ({', '.join(_NUMBERS)}) from "
        f"(select {select_list(model, 'operations')}, communicator_id from raw)"
    )
    with tempfile.TemporaryDirectory(prefix="ncclscope-") as scratch:
        piece = Path(scratch) / "piece"
        with open_connection() as connection:
            connection.register("raw", columns)
            connection.execute(f"copy ({query}) to {literal(str(piece))} (format json)")
        yield piece
