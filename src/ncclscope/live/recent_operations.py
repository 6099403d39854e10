"""The last operations of one rank on one communicator, from the end of its log."""

from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.process import open_recent
from ncclscope.errors import FormatError
from ncclscope.model.process.operations import operations_of
from ncclscope.model.schema import NONE
from ncclscope.model.vocabulary import Vocabulary

_SLOTS = 1 << 14  # 1 MiB of the log: at 20 slots an operation, 800 operations


@dataclass(frozen=True, slots=True)
class RecentOperation:
    """One of the last operations."""

    called_unix_ns: int
    function: str
    size_bytes: int
    datatype: str
    algorithm: str
    protocol: str
    duration_ns: int | None
    source: str
    state: str


def recent_operations(folder: Path, communicator: int, most: int) -> list[RecentOperation]:
    """The last operations, newest first; [] in profile mode, which keeps no log."""
    if not any(folder.glob("log.*")):
        return []
    words = Vocabulary()
    try:
        process = open_recent(folder, _SLOTS)
        columns = operations_of(process, words).columns
    except (FormatError, OSError):
        return []
    rows = [row for row, number in enumerate(columns["communicator"]) if number == communicator]
    unix_offset_ns = process.clock.realtime_offset_ns

    def word(column: str, row: int) -> str:
        code = int(columns[column][row])
        return "" if code == NONE else words.lists[column][code]

    def operation(row: int) -> RecentOperation:
        times = (int(columns[name][row]) for name in ("call_ns", "enqueue_ns", "start_ns"))
        duration_ns = int(columns["duration_ns"][row])
        return RecentOperation(
            called_unix_ns=next((ns for ns in times if ns != NONE), 0) + unix_offset_ns,
            function=word("function", row),
            size_bytes=max(int(columns["size_bytes"][row]), 0),
            datatype=word("datatype", row),
            algorithm=word("algorithm", row),
            protocol=word("protocol", row),
            duration_ns=None if duration_ns == NONE else duration_ns,
            source=word("source", row),
            state=word("state", row),
        )

    return [operation(row) for row in reversed(rows[-most:])]
