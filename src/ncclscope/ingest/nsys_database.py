"""An SQLite export of Nsight Systems as a file of unknown origin: its tables, columns and numbers.

Views, virtual tables and triggers of the file are never touched.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ncclscope.ingest.files import cannot_read
from ncclscope.ingest.records import number
from ncclscope.model.schema import NONE

MAGIC = b"SQLite format 3\0"
PROCESS_BITS = ~0xFFFFFF  # of globalTid: what threads of one process have in common
_RANK_IN_NAME = re.compile(r"rank[_.-]?(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NsysDatabase:
    """One open database."""

    connection: sqlite3.Connection
    columns: dict[str, set[str]]  # by table

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table has these columns."""
        return set(columns) <= self.columns.get(table, set())

    def value(self, table: str, column: str) -> int:
        """The number in the first row of a table; NONE where there is none."""
        if not self.has(table, column):
            return NONE
        row = self.connection.execute(f'select "{column}" from {table} limit 1').fetchone()
        return number(row[0]) if row else NONE


@contextmanager
def open_database(path: Path) -> Iterator[NsysDatabase]:
    """An export, open for reading; FormatError where it cannot be read, now or later."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("pragma trusted_schema = off")
            connection.execute("pragma cell_size_check = on")
            connection.execute("pragma temp_store = file")  # sorting and joining without memory
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield NsysDatabase(connection, _columns_by_table(connection))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names of columns are bytes, too
        raise cannot_read(path, error, "Export it again: nsys export --type sqlite") from None


def _columns_by_table(connection: sqlite3.Connection) -> dict[str, set[str]]:
    rows = connection.execute("select name, sql from sqlite_master where type = 'table'")
    return {
        name: {row[1] for row in connection.execute(f"pragma table_info({_quoted(name)})")}
        for name, sql in rows
        if isinstance(name, str) and "virtual" not in str(sql)[:32].casefold()
    }


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def rank_in_name(path: Path) -> int:
    """The rank in a file's name, as `nsys profile -o report.rank%q{RANK}` writes it; NONE: none."""
    match = _RANK_IN_NAME.search(path.name)
    return int(match[1]) if match else NONE
