"""The saved model, in the capture's folder `model`: one file per column, and a manifest.

Columns are appended process by process and mapped when read, so that neither needs all of them in
memory. A saved model is current while the sizes and times of the capture's files have not changed.
It is not trusted: a model whose files differ from what was saved is made again.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope._version import __version__
from ncclscope.arrays.chunks import row_chunks
from ncclscope.capture.deletion import is_saved_model
from ncclscope.model.column_files import column_file, map_columns, write_columns
from ncclscope.model.completeness import Completeness
from ncclscope.model.late_files import wait_for_size
from ncclscope.model.model import Model, Training
from ncclscope.model.node_clock import NodeClock
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import (
    LARGEST,
    NONE,
    SCHEMA_VERSION,
    TABLES,
    Column,
    Columns,
    value_range,
)
from ncclscope.model.store.checksums import (
    LARGEST_MANIFEST_BYTES,
    DamagedError,
    check_numbers,
    check_seal,
    checksum,
    is_left_out,
    is_number,
    is_whole_number,
    record_of,
    regular_size,
    texts,
    with_seal,
)
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.private_directory import UNFINISHED, write_private_text
from ncclscope.regular_files import is_path_within
from ncclscope.threads import in_threads

FOLDER = "model"
_MANIFEST = "manifest.json"
_LOCK = "lock.file"
_CHECKPOINTS = "process.n*"  # files of store/checkpoints.py
_MOST_NAMES = 127  # of one sort
_MOST_THREADS = 32
ColumnItem = tuple[Path, int, Column]  # its file and rows
Checked = dict[str, tuple[bool, str]]  # by file whether it is without NONE, and its checksum
RunEach = Callable[
    [Callable[[ColumnItem], tuple[bool, str]], Sequence[ColumnItem]], list[tuple[bool, str]]
]
_UNKNOWN = (False, "")  # of columns without a file


def _own_folder(folder: Path) -> tuple[Path, int] | None:
    """A folder that no other command uses, with the lock that says so; None if one does."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        lock = os.open(folder / _LOCK, flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == (folder / _LOCK).stat().st_ino:  # not of one that just ended
            _keep_checkpoints(folder)
            return folder, lock
    except OSError:
        pass
    os.close(lock)
    return None


def _keep_checkpoints(folder: Path) -> None:
    """Removes what a killed command left, except processes that it had decoded."""
    decoded = any(folder.glob(_CHECKPOINTS))
    columns = {column_file(folder, "operations", column.name) for column in TABLES["operations"]}
    for path in folder.iterdir():
        keep = path.match(_CHECKPOINTS) or path in columns
        if path.name != _LOCK and not (decoded and keep):
            path.unlink()


def remove_checkpoints(folder: Path) -> None:
    """Removes what store/checkpoints.py noted: the model is complete."""
    for path in (*folder.glob(_CHECKPOINTS), *folder.glob(f"{UNFINISHED}process_*")):
        path.unlink()


class Writer:
    """A model that is being made, in a temporary folder until it is complete.

    `mark`: the capture's fingerprint. The folder is named by it, so that the next command finds
    what a killed one left; commands that run at the same time have folders of their own. `keep`:
    in the capture, where that can be written to; else it is in TMPDIR.
    """

    def __init__(self, capture: Path, mark: str = "", keep: bool = True) -> None:
        self.kept = keep and os.access(capture, os.W_OK)
        where = capture if self.kept else None
        self._lock: int | None = None
        own = _own_folder(capture / f".{FOLDER}-{mark[:16]}") if mark and self.kept else None
        if own is None:
            self.folder = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=where))
        else:
            self.folder, self._lock = own
        self._rows = dict.fromkeys(TABLES, 0)

    @property
    def has_checkpoints(self) -> bool:
        """Whether the next command can go on with what is there."""
        return any(self.folder.glob(_CHECKPOINTS))

    def close(self) -> None:
        """Lets other commands have the folder."""
        if self._lock is not None:
            (self.folder / _LOCK).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def append(self, table: str, columns: Columns) -> None:
        """Adds rows to a table."""
        rows = len(columns[TABLES[table][0].name])
        if rows:
            write_columns(self.folder, table, self.reserve(table, rows), columns)

    def reserve(self, table: str, rows: int) -> int:
        """The first of `rows` new rows; the caller has them written with `write_columns`."""
        first = self._rows[table]
        self._rows[table] += rows
        return first

    def rows(self, table: str) -> int:
        """How many rows a table has so far."""
        return self._rows[table]

    def columns(self, table: str) -> Columns:
        """A table as mapped arrays that can be written to."""
        return map_columns(self.folder, table, self._rows[table], "r+")

    def check(self, run: RunEach | None = None, versions: Mapping[str, int] = {}) -> Checked:
        """What the manifest says of all columns. `run`: does something for each of them;
        `versions`: of files of operations.
        """
        columns = {
            column_file(self.folder, table, column.name).name: (
                column_file(self.folder, table, column.name, number),
                self._rows[table],
                column,
            )
            for table in TABLES
            for column in (TABLES[table] if self._rows[table] else ())
            for number in (versions.get(column.name, 0) if table == "operations" else 0,)
            if not is_left_out(column_file(self.folder, table, column.name), table)
        }
        checked = (run or _in_threads)(check_column, list(columns.values()))
        return dict(zip(columns, checked, strict=True))

    def finish(
        self, capture: Path, manifest: dict[str, Any], checked: Checked | None = None
    ) -> Model:
        """Saves the model, unless the capture cannot be written to. `checked`: what `check`
        returned.
        """
        checked = self.check() if checked is None else checked
        whole = {
            table: [
                column.name
                for column in TABLES[table]
                if not self._rows[table] or checked.get(f"{table}.{column.name}", _UNKNOWN)[0]
            ]
            for table in TABLES
        }
        checksums = {name: checksum for name, (_, checksum) in checked.items()}
        manifest = {**manifest, "rows": self._rows, "whole": whole}
        sealed = with_seal(self.folder, manifest, checksums)
        write_private_text(self.folder / _MANIFEST, json.dumps(sealed))
        remove_checkpoints(self.folder)
        # Mapped before it is where other commands look: they may put theirs in its place.
        model = load(capture, self.folder)
        self.close()
        if not self.kept:
            return model
        saved = self._save(capture, manifest["fingerprint"])
        return saved or (replace(model, seal=sealed["seal"]) if self.kept else model)

    def _save(self, capture: Path, mark: str) -> Model | None:
        """Makes this the saved model. Where another command was quicker, its model stays and is
        returned if it is the same one; else this one serves this run.
        """
        place = capture / FOLDER
        try:
            if os.path.lexists(place):
                if not is_saved_model(place):  # a folder of the user's own that has this name
                    raise FileExistsError(place)
                # Workers may be reading it.
                if mark and (saved := load_current(capture, mark)):
                    self.kept = False
                    return saved
                shutil.rmtree(place, ignore_errors=True)
            self.folder.rename(place)
        except OSError:
            self.kept = False
            return load_current(capture, mark) if mark else None
        return None

    def discard(self) -> None:
        """Removes what was written."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def check_column(item: tuple[Path, int, Column]) -> tuple[bool, str]:
    """Whether a column of that many rows has no NONE, and its checksum. Impossible values of
    damaged captures become NONE.
    """
    path, count, column = item
    wait_for_size(path, count * np.dtype(column.dtype).itemsize)  # memmap makes files longer
    mapped = np.memmap(path, column.dtype, "r+", shape=(count,))
    values, whole = np.asarray(mapped), True
    least, most = value_range(column)
    for rows in row_chunks(count):
        chunk = values[rows]
        lowest = int(chunk.min())
        if lowest < least or (chunk.itemsize >= 4 and int(chunk.max()) > most):
            chunk[(chunk < least) | (chunk > most)] = NONE
            mapped.flush()
        whole = whole and not (lowest <= NONE and bool((chunk == NONE).any()))
    return whole, checksum(path)


def _in_threads(
    do: Callable[[ColumnItem], tuple[bool, str]], items: Sequence[ColumnItem]
) -> list[tuple[bool, str]]:
    return in_threads(do, items, min(len(os.sched_getaffinity(0)), _MOST_THREADS))


def manifest_of(model: Model, mark: str) -> dict[str, Any]:
    """A model without its columns, as JSON can keep it."""
    return {
        "fingerprint": mark,
        "version": __version__,
        "schema": SCHEMA_VERSION,
        "words": model.words,
        "communicator_names": model.communicator_names,
        "descriptions": model.descriptions,
        "module_names": model.module_names,
        "training": asdict(model.training),
        "processes": [_within_range(asdict(row)) for row in model.processes],
        "gpus": [_within_range(asdict(row)) for row in model.gpus],
        "nodes": model.nodes,
        "completeness": _within_range(asdict(model.completeness)),
        "realtime_offset_ns": _within_range(model.realtime_offset_ns),
        "clocks": [_clock_record(clock) for clock in model.clocks],
    }


def _within_range(value: Any) -> Any:
    """A record whose numbers can be read back: those of a damaged capture may be too large."""
    if isinstance(value, dict):
        return {name: _within_range(part) for name, part in value.items()}
    if is_whole_number(value):
        return max(min(value, LARGEST - 1), 1 - LARGEST)
    return value


def _clock_record(clock: NodeClock) -> dict[str, Any]:
    return {
        "local_ns": clock.local_ns.tolist(),
        "offset_ns": clock.offset_ns.tolist(),
        "error_ns": np.ceil(clock.error_ns).tolist(),
        "cluster": clock.cluster,
    }


def _clock(record: dict[str, Any]) -> NodeClock:
    local, offset, error = record["local_ns"], record["offset_ns"], record["error_ns"]
    numbers = all(map(is_number, (*local, *offset, record["cluster"])))
    floats = all(isinstance(value, (int, float)) and value >= 0 for value in error)
    if not (numbers and floats and 0 < len(local) == len(offset) == len(error)):
        raise DamagedError("clocks")
    if sorted(local) != local:
        raise DamagedError("clocks")
    return NodeClock(
        np.array(local, np.int64),
        np.array(offset, np.int64),
        np.array(error, np.float64),
        int(record["cluster"]),
    )


def _words(lists: Any) -> dict[str, list[str]]:
    words = {str(sort): texts(names) for sort, names in lists.items()}
    fixed = Vocabulary().lists  # names that readers look for
    fine = all(len(set(names)) == len(names) <= _MOST_NAMES for names in words.values())
    if set(words) != set(fixed) or not fine:
        raise DamagedError("words")
    if any(words[sort][: len(names)] != names for sort, names in fixed.items()):
        raise DamagedError("words")
    return words


def _whole(tables: Any) -> dict[str, frozenset[str]]:
    columns = {str(table): frozenset(texts(names)) for table, names in tables.items()}
    if not set(columns) <= set(TABLES):
        raise DamagedError("whole")
    return columns


def load(capture: Path, folder: Path) -> Model:
    """The model in a folder; raises ValueError, KeyError and the like for a damaged one."""
    return _model(capture, folder, json.loads((folder / _MANIFEST).read_text()))


def _model(capture: Path, folder: Path, manifest: dict[str, Any]) -> Model:
    rows = manifest["rows"]
    model = Model(
        path=capture,
        tables={table: map_columns(folder, table, rows[table], "r") for table in TABLES},
        words=_words(manifest["words"]),
        communicator_names=texts(manifest["communicator_names"], rows["communicators"]),
        descriptions=texts(manifest["descriptions"]),
        module_names=texts(manifest["module_names"], rows["modules"]),
        training=record_of(Training, manifest["training"]),
        processes=[record_of(ProcessRow, row) for row in manifest["processes"]],
        gpus=[record_of(GpuRow, row) for row in manifest["gpus"]],
        nodes=texts(manifest["nodes"]),
        completeness=record_of(Completeness, manifest["completeness"]),
        realtime_offset_ns=manifest["realtime_offset_ns"],
        clocks=tuple(map(_clock, manifest["clocks"])),
        whole=_whole(manifest.get("whole", {})),
        seal=texts([manifest["seal"]])[0] if folder == capture / FOLDER else "",
    )
    if not is_number(model.realtime_offset_ns):
        raise DamagedError("realtime_offset_ns")
    nodes = len(model.nodes)
    if any(not 0 <= row.node < nodes for row in model.processes) or len(model.clocks) < nodes:
        raise DamagedError("nodes")
    if any(not 0 <= row.process < len(model.processes) for row in model.gpus):
        raise DamagedError("gpus")
    if not all(is_path_within(row.folder) for row in model.processes):  # files are opened there
        raise DamagedError("processes")
    return model


def load_current(capture: Path, mark: str) -> Model | None:
    """The saved model, None unless it is undamaged and of the capture as it is now."""
    folder = capture / FOLDER
    try:
        if regular_size(folder / _MANIFEST) > LARGEST_MANIFEST_BYTES:
            return None
        manifest = json.loads((folder / _MANIFEST).read_text())
        if manifest.get("fingerprint") != mark:
            return None
        check_seal(folder, manifest)
        model = _model(capture, folder, manifest)
        counts = {"processes": len(model.processes), "nodes": len(model.nodes)}
        check_numbers(folder, model.words, manifest["rows"] | counts, model.whole)
        return model
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # damaged, or of another release: it is made again
