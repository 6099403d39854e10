"""The last operations of one rank on one communicator, from the end of its log."""

from dataclasses import dataclass
from pathlib import Path

from ncclscope.capture.process import open_recent
from ncclscope.errors import FormatError
from ncclscope.model.process.operations import operations_of
from ncclscope.model.schema import NONE
from ncclscope.model.vocabulary import Vocabulary

_SLOTS = 1 << 14  # 1 MB of the log: at 20 slots an operation, 800 operations


@dataclass(frozen=True, slots=True)
class RecentOperation:
    """One operation that was called lately."""

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
    """Newest first; none in profile mode, which keeps no log."""
    if not any(folder.glob("log.*")):
        return []
    words = Vocabulary()
    try:
        process = open_recent(folder, _SLOTS)
        columns = operations_of(process, words).columns
    except (FormatError, OSError):
        return []
    mine = [at for at, number in enumerate(columns["communicator"]) if number == communicator]
    wall_ns = process.clock.realtime_offset_ns

    def word(sort: str, at: int) -> str:
        code = int(columns[sort][at])
        return "" if code == NONE else words.lists[sort][code]

    found = []
    for at in reversed(mine[-most:]):
        called_ns = next((int(columns[name][at]) for name in ("call_ns", "enqueue_ns", "start_ns")
                          if columns[name][at] != NONE), 0)  # fmt: skip
        duration_ns = int(columns["duration_ns"][at])
        found.append(
            RecentOperation(
                called_unix_ns=called_ns + wall_ns,
                function=word("function", at),
                size_bytes=max(int(columns["size_bytes"][at]), 0),
                datatype=word("datatype", at),
                algorithm=word("algorithm", at),
                protocol=word("protocol", at),
                duration_ns=None if duration_ns == NONE else duration_ns,
                source=word("source", at),
                state=word("state", at),
            )
        )
    return found
