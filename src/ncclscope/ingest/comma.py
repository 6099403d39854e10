"""CoMMA's latency files: JSON objects, one per line or in a list, of collectives, sends, receives
and their proxy ops. Times are µs.

`dur` is from the call to the last proxy op's end, queueing included; `child_dur` is that of the
proxy ops alone. Ranks whose traffic needs no network have neither.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import CUT_OFF, DAMAGED, cannot_read, lines_of, open_file
from ncclscope.ingest.json_stream import CutError, elements
from ncclscope.ingest.records import (
    FIRST_WALL_NS,
    Format,
    ImportedCommunicator,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    form_of,
    function_name,
    hash_of,
    nanoseconds,
    number,
    text,
)
from ncclscope.model.schema import NONE

_US = 1000
_PID_IN_NAME = re.compile(r"(\d{2,10})(?:\.\w+)*$")
_NO_PROXY = "CoMMA times by the network proxy, and none worked for it"
_RECLAIMED = "CoMMA gave it up before its end"


def _matches(head: bytes, path: Path) -> bool:
    start = head.lstrip()[:1]
    return (
        start in (b"{", b"[")
        and b'"traceEvents"' not in head
        and (b'"comm_hash"' in head or b'"proxyops"' in head)
        and b'"cat"' in head
    )


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """Operations of one file; groups and lone proxy ops are left out."""
    match = _PID_IN_NAME.search(path.name)
    pid = number(int(match[1]), (1 << 31) - 1) if match else NONE
    for record in _records(path, report):
        operation = _operation(record, path.name, pid) if isinstance(record, dict) else None
        if operation is not None:
            yield operation
        elif not isinstance(record, dict) or record.get("cat") not in ("GROUP", "PROXY"):
            report.lose(DAMAGED)


def _records(path: Path, report: ImportReport) -> Iterator[Any]:
    with open_file(path) as file:
        in_list = file.read(4096).lstrip()[:1] == b"["
    if not in_list:
        for line in lines_of(path, report):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    report.lose(DAMAGED)
        return
    with open_file(path) as file:
        try:
            for _, record in elements(file, ""):
                yield record
        except CutError:
            report.lose(CUT_OFF)
        except ValueError as error:
            raise cannot_read(path, error) from None


def _operation(record: dict[str, Any], file: str, pid: int) -> Operation | None:
    function = function_name(text(record.get("name")))
    if record.get("cat") not in ("COLL", "P2P") or not function:
        return None
    key, arguments = text(record.get("comm_hash")), record.get("args")
    call, length = nanoseconds(record.get("ts"), _US), nanoseconds(record.get("dur"), _US)
    proxied = nanoseconds(record.get("child_dur"), _US)
    own_clock = call < FIRST_WALL_NS
    values: dict[str, int | str] = {
        "rank": number(record.get("rank")),
        "function": function,
        "form": form_of(function),
        "size_bytes": number(arguments.get("size") if isinstance(arguments, dict) else None),
        "algorithm": text(record.get("algo")).upper(),
        "protocol": text(record.get("proto")).upper(),
        "channels": number(record.get("n_max_channel"), (1 << 15) - 1),
        "sequence": number(record.get("seq_num")),
        "peer": number(record.get("peer")),
        "call_ns": call,
    }
    if record.get("reclaimed") not in (None, False):
        values |= {"state": "unknown", "reason": _RECLAIMED}
    elif proxied > 0:
        start = nanoseconds(record.get("child_start_ts"), _US)
        values |= {"duration_ns": proxied, "start_ns": start, "source": "proxy"}
        values["reason"] = "by the network proxy"
    elif length > 0:
        values |= {"duration_ns": length, "source": "enqueue", "reason": _NO_PROXY}
    else:
        values["reason"] = _NO_PROXY
    process = ImportedProcess("", pid, file, own_clock=own_clock)
    communicator = ImportedCommunicator(key, hash_of(key)) if key else None
    return Operation(process, communicator, values)


FORMAT = Format(
    "comma",
    "CoMMA's latency files",
    (
        "CoMMA times by the network proxy: operations within a node have no time, and waiting for "
        "other ranks is in the others",
        "by default CoMMA leaves out small messages, samples receives, and gives up what takes "
        "longer than 10 s; it counts none of that",
        "its files name no host, and not how many ranks a communicator has",
    ),
    _matches,
    read,
)
