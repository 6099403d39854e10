"""Where the files of a dataset are: a folder for each table, and below `operations` one for each
node, as Hive names them: `operations/node=42/part-00000.parquet`.

Other programs make a column of such a folder's name, so these files have no column `node`: pyarrow
refuses a column that is in both. Numbers are written without leading zeros: DuckDB would take
`00042` for a text. Datasets of schema 1 and 2 have all files right in the table's folder, and the
column in the files.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclscope.errors import FormatError
from ncclscope.model.schema import NONE

KEYS = {"operations": "node"}  # by table what its folders are for
_PART = "part"
SUMS = "sums"  # the folder of the default report's sums
UNKNOWN_KEY = "__HIVE_DEFAULT_PARTITION__"  # Hive's word for NULL
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table. `key`: what the folder's name says, None in the table's own folder."""

    path: Path
    key: int | None = None


def key_folder(table: str, value: int) -> str:
    """The folder of the rows with this value of the table's key, below the dataset."""
    return f"{table}/{KEYS[table]}={UNKNOWN_KEY if value == NONE else value}"


def part_name(number: int) -> str:
    """The name of a folder's file."""
    return f"{_PART}-{number:05d}.parquet"


def unfinished_part(file: Path) -> Path:
    """Where a file is written until it is whole: no reader takes it for one. Another writer may be
    at the same file: a task that was given up, and goes on.
    """
    return file.with_name(f".{file.name}.{secrets.token_hex(4)}")


def is_unfinished(name: str) -> bool:
    """Whether a writer that was killed left such a file."""
    return name.startswith(f".{_PART}-")


def remove_unfinished(folder: Path) -> None:
    """Removes what killed writers left in a folder."""
    for path in folder.glob(f".{_PART}-*"):
        path.unlink(missing_ok=True)


def table_files(dataset: Path, table: str) -> list[TableFile]:
    """The files of a table: by the value of its key, then by name."""
    found = [TableFile(path) for path in _files(dataset / table)]
    if table not in KEYS:
        return found
    keyed = [
        TableFile(path, value) for value, own in key_folders(dataset, table) for path in _files(own)
    ]
    if found and keyed:
        raise _wrong(dataset, f"{table} has files beside its folders")
    return found or keyed


def key_folders(dataset: Path, table: str) -> list[tuple[int, Path]]:
    """The folders of a table's key with their values, unknown ones last."""
    found = []
    for folder in (dataset / table).glob(f"{KEYS[table]}=*"):
        value = _value(folder.name)
        if value is None:
            raise _wrong(dataset, f"{folder.name} of {table} names no {KEYS[table]}")
        found.append((value, folder))
    return sorted(found, key=lambda entry: (entry[0] == NONE, entry))


def _value(name: str) -> int | None:
    """The value in a folder's name; None where it is no number of rows."""
    text = name.partition("=")[2]
    if text == UNKNOWN_KEY:
        return NONE
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
    return int(text) if plain and int(text) <= _LARGEST else None


def _wrong(dataset: Path, cause: str) -> FormatError:
    return FormatError(f"cannot read the dataset {dataset}: {cause}", "Export or import it again")


def _files(folder: Path) -> Sequence[Path]:
    # Anything but a regular file would stop the reader: it waits for the other end of a FIFO.
    return sorted(file for file in folder.glob("*.parquet") if file.is_file())
