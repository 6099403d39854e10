"""Traces of NCCL's example profiler: asynchronous events (`ph` b and e), a file for each rank.

    {"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 7, "tid": 1, "ts": 12.5,
     "args": {"SeqNum": 0, "CommHash": 99, "Rank": 1, "Count": 256, "Datatype": "ncclFloat32", …}},

Lines may be no JSON (it writes strings without quotes and pointers as arguments): then they are
read by their first fields alone. A collective's line is always JSON.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import DAMAGED, lines_of
from ncclscope.ingest.records import (
    Format,
    ImportedCommunicator,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    form_of,
    function_name,
    nanoseconds,
    number,
    text,
)
from ncclscope.nccl.datatypes import element_bits, from_event_name
from ncclscope.nccl.functions import FUNCTIONS

_US = 1000
_CATEGORIES = ("COLL", "P2P")
_LINE = re.compile(rb'"cat": "(COLL|P2P)"')
_HOST = "the host's, until its last event"


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """The operations of one rank; each begins with a line `b` and ends with a line `e`."""
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines_of(path, report):
        if not _LINE.search(line):
            continue
        try:
            event = json.loads(line.strip().rstrip(b",").lstrip(b"["))
            key = str(event["cat"]), int(event["id"])
        except (ValueError, KeyError, TypeError):
            report.lose(DAMAGED)
            continue
        if event.get("ph") == "b":
            begun[key] = event
        elif key in begun:
            yield _operation(begun.pop(key), event.get("ts"), path.name)
    for event in begun.values():
        yield _operation(event, None, path.name)


def _operation(begin: dict[str, Any], end_us: object, file: str) -> Operation:
    arguments = begin.get("args")
    given = arguments if isinstance(arguments, dict) else {}
    function = function_name(text(begin.get("name")))
    rank, start_ns = number(given.get("Rank"), 1 << 20), nanoseconds(begin.get("ts"), _US)
    process = ImportedProcess("", number(begin.get("pid"), (1 << 31) - 1), file, own_clock=True)
    duration_ns = nanoseconds(end_us, _US) - start_ns
    values: dict[str, int | str] = {
        "rank": rank,
        "function": function,
        "form": form_of(function),
        "count": number(given.get("Count")),
        "datatype": from_event_name(text(given.get("Datatype"))) or "",
        "peer": number(given.get("Peer")),
        "channels": number(given.get("nChannels")),
        "start_ns": start_ns,
        "reason": _HOST,
    }
    if "SeqNum" in given:
        values["sequence"] = number(given["SeqNum"])
    if end_us is not None and duration_ns > 0:
        values |= {"duration_ns": duration_ns, "source": "host"}
    values["size_bytes"] = _size_bytes(values)
    key = str(given.get("CommHash", ""))[:32]
    return Operation(process, ImportedCommunicator(key) if key else None, values)


def _size_bytes(values: dict[str, int | str]) -> int:
    """The elements' bytes. Of functions whose count is one rank's, it is one rank's size: a trace
    does not tell the number of ranks.
    """
    bits, count = element_bits(str(values["datatype"])), int(values["count"])
    if bits is None or count < 0 or values["function"] not in FUNCTIONS:
        return -1
    return count * bits // 8


FORMAT = Format(
    "example",
    "traces of NCCL's example profiler",
    ("the example profiler's times are the host's, of a clock that each process has for itself",),
    lambda head, _: b'"cat": "COLL' in head,
    read,
)
