"""A decoded process as Parquet files in its folder, next to its log or in place of it.

    decoded.operations.parquet   its operations, in its own numbers and on its host's clock
    decoded.channels.parquet …   tables that are made of events on demand (detail_schema.py)
    decoded.json                 the rest, with checksums of these files; written last, when all
                                 values have been read back and compared with the log

A process's log counts while all of it is there. Where files of it are missing, and decoded.json
knows them, the decoded files are read. So a crash while logs are removed loses nothing.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope._version import __version__
from ncclscope.capture.context_lines import read_context
from ncclscope.capture.housekeeping import DECODED_MANIFEST, is_recorders_name
from ncclscope.capture.process import open_process
from ncclscope.errors import FormatError
from ncclscope.humanize import printable
from ncclscope.model.process.communicators import LocalCommunicators
from ncclscope.model.process.context import ProcessContext
from ncclscope.model.process.counters import counters_of
from ncclscope.model.process.decoded_process import (
    Counts,
    DecodedProcess,
    decode_process,
    without_bulk,
)
from ncclscope.model.process.launch_times import event_excess
from ncclscope.model.process.operations import StampCounts
from ncclscope.model.process.proxy_step_times import StepTimes
from ncclscope.model.schema import NONE, Columns
from ncclscope.model.store.checksums import (
    LARGEST_MANIFEST_BYTES,
    DamagedError,
    checksum,
    record_of,
    regular_size,
    texts,
)
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.private_directory import UNFINISHED, new_path, new_private_file

OPERATIONS, SENDS, RECEIVES, STEPS, PHASES = "operations", "sends", "receives", "steps", "phases"
_ZSTD_LEVEL = 9  # 3 % smaller than by default; no more time, as there is less to write
# DuckDB has its own copy of what is read: of so many values, not of all columns of a large process.
_VALUES_AT_ONCE = 8 << 20
_VERSION = 1  # of the layout; readers know all up to their own
_DTYPES = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "O"}
_NUMBERS = ("gpu_clock_error_ns", "impossible", "unsized")
_HINT = "Copy it again if it is a copy, or decode the capture again where its logs are"


def process_of(folder: Path) -> tuple[DecodedProcess, Columns] | str:
    """One process of a capture with its columns, from its log or from decoded files; or why it
    cannot be read.
    """
    if not is_recorders_name(folder.name):
        return f"cannot read {printable(str(folder))}: no recorder gives a folder such a name"
    if not log_is_incomplete(folder):
        decoded = decode_process(folder)
        if not log_is_incomplete(folder):  # it may have been removed meanwhile
            return decoded
    try:
        return read_decoded(folder)
    except FormatError as error:
        return str(error)


def log_is_incomplete(folder: Path) -> bool:
    """Whether decoded files have to be read: the folder has them, and lacks files of the log that
    they were made of.
    """
    if not (folder / DECODED_MANIFEST).exists():
        return False
    try:
        logs = _manifest(folder)["logs"]
    except (FormatError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return not any(folder.glob("log.*"))  # nothing else is there to be read
    return any(not (folder / name).exists() for name in logs)


def is_decoded(folder: Path) -> bool:
    """Whether decoded files stand for the log: their manifest is whole, was written by this release
    or has no whole log next to it, and knows each file of the log that is there.
    """
    try:
        manifest = _manifest(folder)
        logs = {path.name: path.stat().st_size for path in folder.glob("log.*")}
        fits = logs.items() <= manifest["logs"].items()
        current = manifest["ncclscope"] == __version__ or logs != manifest["logs"]
        return bool(fits and current)
    except (FormatError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def tables_left_out(folder: Path) -> set[str]:
    """Tables of a decoded process that were not copied: they had rows, and no file is there."""
    try:
        tables = _manifest(folder)["tables"]
        return {n for n, e in tables.items() if e["rows"] and not _file(folder, n).exists()}
    except (FormatError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


# ---- writing ----
def write_tables(
    folder: Path,
    decoded: DecodedProcess,
    tables: Iterable[tuple[str, Columns]],
    check: Callable[[str, Columns, dict[str, Any]], None],
) -> dict[str, Any]:
    """Writes the tables of a process's decoded files, which count once there is a manifest; returns
    the manifest. The whole log must be there.

    tables   names and columns; each is made when the one before is done with
    check    compares a table that was written, by its name and a manifest, with these columns
    """
    # A capture's model needs no engine: duckdb is imported for these files alone.
    from ncclscope.model.sql_views import open_connection

    (folder / DECODED_MANIFEST).unlink(missing_ok=True)  # it would not fit the new files
    for leftover in folder.glob(f"{UNFINISHED}decoded.*"):  # of a command that was killed
        leftover.unlink()
    written: dict[str, Any] = {}
    with open_connection() as connection:
        for table, columns in tables:
            written[table] = _write_table(connection, folder, table, columns)
            check(table, columns, {"tables": written})
            del columns
    manifest = {
        "version": _VERSION,
        "ncclscope": __version__,
        "logs": {path.name: path.stat().st_size for path in sorted(folder.glob("log.*"))},
        "tables": written,
        **process_record(decoded),
    }
    as_read: dict[str, Any] = json.loads(json.dumps(manifest))
    return as_read


def process_tables(decoded: DecodedProcess) -> dict[str, Columns]:
    """The tables of a decoded process, besides its operations and what is made on demand."""
    context = decoded.context
    return {
        SENDS: _fields_of(decoded.sends),
        RECEIVES: _fields_of(decoded.receives),
        **({} if context is None else {STEPS: context.steps, PHASES: context.phases}),
    }


def process_record(decoded: DecodedProcess) -> dict[str, Any]:
    """What a decoded process is apart from its tables, as JSON can keep it."""
    context = decoded.context
    return {
        "threads": {str(number): name for number, name in decoded.process.threads.items()},
        "words": decoded.words,
        "local": {name: v.tolist() for name, v in _fields_of(decoded.local).items()},
        # Not asdict, which makes a Counter of pairs of a Counter.
        "counts": {**_fields_of(decoded.counts), "untimed": dict(decoded.counts.untimed)},
        "stamp_counts": asdict(decoded.stamp_counts),
        "of_unknown_datatype": decoded.of_unknown_datatype,
        "modules": None if context is None else context.modules,
        **{name: getattr(decoded, name) for name in _NUMBERS},
    }


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Makes the tables of a process count. They must have been compared with its log."""
    text = json.dumps({**manifest, "digest": _digest(manifest)})
    with new_private_file(folder / DECODED_MANIFEST) as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    _sync_directory(folder)


def _fields_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _file(folder: Path, table: str) -> Path:
    return folder / f"decoded.{table}.parquet"


def _write_table(connection: Any, folder: Path, table: str, columns: Columns) -> dict[str, Any]:
    """Writes one table; returns what its reader needs."""
    from ncclscope.model.sql_views import copy_to_file, literal

    arrays = {name: np.asarray(values) for name, values in columns.items()}
    rows = len(next(iter(arrays.values()))) if arrays else 0
    entry: dict[str, Any] = {
        "rows": rows,
        "columns": {name: values.dtype.str[1:] for name, values in arrays.items()},
    }
    path = _file(folder, table)
    if not rows:
        path.unlink(missing_ok=True)
        return entry
    connection.register("decoded", {n: np.ascontiguousarray(v) for n, v in arrays.items()})
    try:
        with new_path(path) as new:
            copy_to_file(
                connection,
                f"copy decoded to {literal(str(new))} ({_copy_options()})",
            )
            new.chmod(0o600)  # as all files of a capture
            entry["checksum"] = checksum(new)
    finally:
        connection.unregister("decoded")
    return entry


@cache
def _copy_options() -> str:
    """How DuckDB writes a file. Growing numbers are written as differences, which all its releases
    read, and those from 1.2 on write: two thirds of the bytes, at the same cost.
    """
    import duckdb

    release = tuple(map(int, duckdb.__version__.split(".")[:2]))
    encodings = ", parquet_version v2" if release >= (1, 2) else ""
    return f"format parquet, compression zstd, compression_level {_ZSTD_LEVEL}{encodings}"


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# ---- reading ----
def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / DECODED_MANIFEST
    if regular_size(path) > LARGEST_MANIFEST_BYTES:
        raise DamagedError(DECODED_MANIFEST)
    manifest = json.loads(path.read_text())
    if not isinstance(manifest, dict) or manifest.pop("digest", "") != _digest(manifest):
        raise DamagedError(DECODED_MANIFEST)
    if manifest["version"] > _VERSION:
        message = f"cannot read {folder}: ncclscope {manifest['ncclscope']} decoded it"
        raise FormatError(message, "Use that release or a newer one")
    return manifest


def read_decoded(folder: Path) -> tuple[DecodedProcess, Columns]:
    """A process from its decoded files. FormatError where they are damaged or missing."""
    try:
        manifest = _manifest(folder)
        columns = _read_table(folder, manifest, OPERATIONS)
        tables = partial(_read_table, folder, manifest)
        return process_from(folder, manifest, len(columns["event"]), tables), columns
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} cannot be" if isinstance(error, DamagedError) else repr(error)
    raise FormatError(f"cannot read decoded files of {folder}: {reason}", _HINT)


def read_details(folder: Path, table: str, manifest: dict[str, Any] | None = None) -> Columns:
    """A table of events, with the process's own numbers. FormatError as for `read_decoded`.
    `manifest`: instead of the one in the folder.
    """
    try:
        return _read_table(folder, manifest or _manifest(folder), table)
    except (OSError, ValueError, LookupError, TypeError) as error:
        message = f"cannot read {table} in decoded files of {folder}: {error}"
        raise FormatError(message, _HINT) from None


def process_from(
    folder: Path, manifest: dict[str, Any], rows: int, table: Callable[[str], Columns]
) -> DecodedProcess:
    """All but the columns of operations. What is not in the log is read from the folder again.
    `table`: reads a table by its name.
    """
    process = open_process(folder, with_log=False)
    process = replace(process, threads={int(n): t for n, t in manifest["threads"].items()})
    words = Vocabulary({sort: texts(names) for sort, names in manifest["words"].items()})
    if set(words.lists) != set(Vocabulary().lists):
        raise DamagedError("words")
    counts = dict(manifest["counts"])
    return DecodedProcess(
        process=without_bulk(process),
        local=LocalCommunicators(
            **{name: np.array(values, np.int64) for name, values in manifest["local"].items()}
        ),
        rows=rows,
        words=words.lists,
        counts=Counts(**{**counts, "untimed": Counter(counts["untimed"])}),
        counters=counters_of(process, words),
        stamp_counts=record_of(StampCounts, manifest["stamp_counts"]),
        event_excess=event_excess(process.event_clocks),
        sends=StepTimes(**table(SENDS)),
        receives=StepTimes(**table(RECEIVES)),
        of_unknown_datatype=manifest["of_unknown_datatype"],
        context=_context(manifest, table),
        job=read_context(folder),
        **{name: int(manifest[name]) for name in _NUMBERS},
    )


def _context(manifest: dict[str, Any], table: Callable[[str], Columns]) -> ProcessContext | None:
    if manifest["modules"] is None:
        return None
    return ProcessContext(table(STEPS), table(PHASES), texts(manifest["modules"]))


def _read_table(folder: Path, manifest: dict[str, Any], table: str) -> Columns:
    import duckdb

    from ncclscope.model.sql_views import literal, open_connection

    entry = manifest["tables"][table]
    dtypes: dict[str, str] = entry["columns"]
    if not set(dtypes.values()) <= _DTYPES:
        raise DamagedError(table)
    if not entry["rows"]:
        return {name: np.empty(0, dtype) for name, dtype in dtypes.items()}
    path = _file(folder, table)
    regular_size(path)  # no pipe
    if checksum(path) != entry["checksum"]:
        raise DamagedError(path.name)
    source, names = literal(str(path)), list(dtypes)
    at_once = max(_VALUES_AT_ONCE // entry["rows"], 1)
    columns: Columns = {}
    try:
        with open_connection() as connection:
            for some in (names[n : n + at_once] for n in range(0, len(names), at_once)):
                listed = ", ".join(f'"{name}"' for name in some)
                query = f"select {listed} from read_parquet({source})"
                values = connection.execute(query).fetchnumpy()
                columns |= {name: _plain(values.pop(name), dtypes[name]) for name in some}
    except duckdb.Error:
        raise DamagedError(path.name) from None
    if any(len(column) != entry["rows"] for column in columns.values()):
        raise DamagedError(path.name)
    if table == OPERATIONS:
        part_of = columns["part_of"]
        if not NONE <= int(part_of.min()) <= int(part_of.max()) < len(part_of):
            raise DamagedError("part_of")
    return columns


def _plain(values: Any, dtype: str) -> np.ndarray:
    """An array of its own dtype, None for NULL."""
    if dtype != "O":
        return np.array(values, dtype)
    plain = np.array(np.ma.getdata(values), "O")
    plain[np.ma.getmaskarray(values)] = None
    return plain
