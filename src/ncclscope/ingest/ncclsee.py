"""ncclsee's profiles: CSV of calls, bytes and time by collective and bucket of sizes, a file per
process (`<pid>.csv`).
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from ncclscope.ingest.files import DAMAGED, lines_of
from ncclscope.ingest.records import (
    MOST_COUNTED,
    Format,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    check_counted,
    form_of,
    function_name,
    nanoseconds,
    number,
)
from ncclscope.model.schema import NONE

_HEAD = b"CollectiveType,"
_PID = re.compile(r"(\d{1,10})\.csv")
_MEAN = "the mean of its bucket of sizes"
_US = 1000


def _matches(head: bytes, path: Path) -> bool:
    return head.lstrip().startswith(_HEAD)


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """As many operations of a bucket as it counted, all with its mean."""
    match = _PID.search(path.name)
    pid = number(int(match[1]), (1 << 31) - 1) if match else NONE
    process = ImportedProcess("", pid, path.name, own_clock=True)
    yield process
    lines = (line.decode("utf-8", "replace") for line in lines_of(path, report))
    rows = csv.DictReader(line.replace("\0", "") for line in lines)
    while True:
        try:
            row = next(rows, None)
        except csv.Error:
            report.lose(DAMAGED)
            continue
        if row is None:
            return
        operations = _operations(row, process)
        if operations is not None:
            yield from operations
        elif row.get("CollectiveType") != "Group":
            report.lose(DAMAGED)


def _operations(row: dict[str, str], process: ImportedProcess) -> Iterator[Operation] | None:
    try:
        calls, size = int(row["Calls"]), int(row["BytesTransferred"])
        total = nanoseconds(float(row["TotalTime_us"]), _US)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    function = function_name(str(row.get("CollectiveType", "")))
    if calls < 0 or size < 0 or function in ("", "Group"):
        return None
    check_counted(calls, MOST_COUNTED)  # before any is made: millions take minutes
    return _same(process, function, calls, size, total)


def _same(
    process: ImportedProcess, function: str, calls: int, size: int, total_ns: int
) -> Iterator[Operation]:
    """Sums stay right: what a division leaves goes to the first ones."""
    for place in range(calls):
        values: dict[str, int | str] = {
            "function": function,
            "form": form_of(function),
            "size_bytes": number(_share(size, calls, place)),
            "reason": _MEAN,
        }
        if total_ns > 0:
            values |= {"duration_ns": _share(total_ns, calls, place), "source": "host"}
        yield Operation(process, None, values)


def _share(total: int, parts: int, place: int) -> int:
    return total // parts + (place < total % parts)


FORMAT = Format(
    "ncclsee",
    "ncclsee's profiles",
    (
        "ncclsee's CSV has totals by function and range of sizes: each operation is shown with its "
        "range's mean, so only sums and means are true",
        "it names no communicator, no rank and no times of day; its bytes are NCCL's traffic",
        "early releases call Reduce and ReduceScatter by each other's name",
    ),
    _matches,
    read,
    most_operations=MOST_COUNTED,
)
