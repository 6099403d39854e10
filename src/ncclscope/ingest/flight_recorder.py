"""PyTorch Flight Recorder dumps: one file per rank, a pickle or JSON, with the newest calls.

A dump does not name its rank: that is the number at the end of its file name, as PyTorch writes
it. `collective_seq_id` counts the collectives of a process group, alike on all ranks.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.ingest.call_stacks import MOST_FRAMES, stack_text
from ncclscope.ingest.files import DAMAGED, cannot_read, read_bytes
from ncclscope.ingest.records import (
    FIRST_WALL_NS,
    Format,
    ImportedCommunicator,
    ImportedMember,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    form_of,
    nanoseconds,
    number,
    text,
    torch_function_name,
)
from ncclscope.ingest.safe_pickle import PickleError, loads
from ncclscope.model.schema import NONE
from ncclscope.nccl.datatypes import element_bits, from_torch
from ncclscope.nccl.functions import COUNTS_ONE_RANK
from ncclscope.nccl.limits import MOST_RANKS

_LARGEST_BYTES = 1 << 28
_MS = 1_000_000
_MOST_DIMENSIONS = 64
_MOST_TENSORS = 4096
_RANK_IN_NAME = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|pt|bin|dump|gz))*$")
_PAIR = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")
_STATES = {"completed": "done", "started": "in flight", "scheduled": "in flight"}
_DEFAULT = "default_pg"
_NOT_STARTED = "queued: its kernel had not started"
_NO_TIMING = "PyTorch timed none: TORCH_NCCL_ENABLE_TIMING was not set"
_BY_WATCHDOG = "as PyTorch's watchdog noticed it"


def _matches(head: bytes, path: Path) -> bool:
    if head[:1] == b"\x80" and len(head) > 2 and head[1] <= 5:
        return True
    start = head.lstrip()[:1]
    return start == b"{" and (
        b'"collective_seq_id"' in head or b'"pg_config"' in head or b'"pg_status"' in head
    )


def _document(path: Path) -> dict[str, Any]:
    data = read_bytes(path, _LARGEST_BYTES)
    try:
        document = json.loads(data) if data.lstrip()[:1] == b"{" else loads(data)
    except PickleError as error:
        raise cannot_read(path, error) from None
    except (ValueError, RecursionError) as error:
        raise cannot_read(path, f"it is no JSON ({error})") from None
    if not isinstance(document, dict) or not ({"entries", "pg_config"} & document.keys()):
        raise cannot_read(path, "it is no Flight Recorder dump")
    return document


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """Operations of one rank's dump, and the process groups of the rank."""
    document = _document(path)
    match = _RANK_IN_NAME.search(path.name)
    rank = number(int(match[1]), MOST_RANKS) if match else NONE
    if rank == NONE:
        report.note(f"{path.name} does not end in a rank: its operations are nobody's")
    version = text(document.get("comm_lib_version") or document.get("nccl_version"))
    process = ImportedProcess("", NONE, path.name, rank, version)
    yield process
    groups = _groups(document.get("pg_config"))
    for communicator, ranks in groups.values():
        if rank in ranks:
            yield ImportedMember(process, communicator, ranks.index(rank), rank)
    entries = document.get("entries")
    entries = entries if isinstance(entries, (list, tuple)) else []
    first = min((number(e.get("record_id")) for e in entries if isinstance(e, dict)), default=NONE)
    if first > 0:
        report.lose("older calls overwritten in Flight Recorder's ring", first)
    seen: set[tuple[str, int]] = set()
    for entry in entries:
        operation = _operation(entry, process, groups, seen) if isinstance(entry, dict) else None
        if operation is None:
            report.lose(DAMAGED.replace("lines", "entries"))
        else:
            yield operation


def _groups(config: object) -> dict[str, tuple[ImportedCommunicator, list[int]]]:
    """Process groups by name, with their global ranks."""
    groups: dict[str, tuple[ImportedCommunicator, list[int]]] = {}
    for name, entry in config.items() if isinstance(config, dict) else ():
        if not isinstance(entry, dict):
            continue
        ranks = [int(digits) for digits in re.findall(r"\d{1,7}", str(entry.get("ranks")))]
        described = text(entry.get("desc"))
        shown = described if described not in ("", "undefined") else text(name)
        key = f"{text(name)} {','.join(map(str, ranks))}"
        groups[text(name)] = (ImportedCommunicator(key, 0, shown, len(ranks)), ranks)
    return groups


def _size_of(shapes: object, datatypes: object) -> tuple[int, int, str]:
    """Elements, bytes and datatype of a list of tensors; NONE where they are not given."""
    if not isinstance(shapes, (list, tuple)) or not 0 < len(shapes) <= _MOST_TENSORS:
        return NONE, NONE, ""
    named = datatypes if isinstance(datatypes, (list, tuple)) else [datatypes]
    datatype = from_torch(text(named[0]) if named else "") or ""
    elements = 0
    for shape in shapes:
        if not isinstance(shape, (list, tuple)) or len(shape) > _MOST_DIMENSIONS:
            return NONE, NONE, datatype
        product = 1
        for length in shape:
            product = number(product * number(length)) if number(length) != NONE else NONE
            if product == NONE:
                return NONE, NONE, datatype
        elements = number(elements + product)
    bits = element_bits(datatype)
    return elements, NONE if bits is None else number(-(-elements * bits // 8)), datatype


def _sizes(entry: dict[str, Any], function: str, ranks: int) -> dict[str, int | str]:
    """Count as a caller of NCCL gives it, and bytes as nccl-tests count them."""
    count, sent, datatype = _size_of(entry.get("input_sizes"), entry.get("input_dtypes"))
    out_count, received, _ = _size_of(entry.get("output_sizes"), entry.get("output_dtypes"))
    if function == "Recv" or sent == NONE:
        count, sent = out_count, received
    size = sent
    if function in COUNTS_ONE_RANK:
        size = max(sent, received)
        if function in ("Gather", "Scatter") and ranks > 0:
            size = max(size, min(x for x in (sent, received, size) if x != NONE) * ranks)
        elif function != "AllGather" and ranks > 0:
            count = count // ranks if count > 0 else count
    return {"count": count, "size_bytes": number(size), "datatype": datatype}


def _operation(
    entry: dict[str, Any],
    process: ImportedProcess,
    groups: dict[str, tuple[ImportedCommunicator, list[int]]],
    seen: set[tuple[str, int]],
) -> Operation | None:
    name = text(entry.get("profiling_name"))
    if not name:
        return None
    group = entry.get("process_group")
    named = text(group[0] if isinstance(group, (list, tuple)) and group else group)
    described = text(group[1]) if isinstance(group, (list, tuple)) and len(group) > 1 else ""
    communicator, ranks = groups.get(
        named, (ImportedCommunicator(named, 0, described or named), [])
    )
    rank = ranks.index(process.global_rank) if process.global_rank in ranks else NONE
    if named not in groups and described == _DEFAULT:  # everybody is in it
        rank = process.global_rank
    function = torch_function_name(name)
    form = form_of(function)
    values: dict[str, int | str] = {
        "rank": rank,
        "function": function,
        "form": form,
        "state": _state(entry),
        "call_ns": nanoseconds(entry.get("time_created_ns"), 1),
        **_sizes(entry, function, len(ranks)),
    }
    order = number(entry.get("collective_seq_id"))
    if form == "collective" and entry.get("is_p2p") is not True:
        if (named, order) not in seen:  # coalesced calls share a number: only one can be matched
            values["call_order"] = order
        seen.add((named, order))
    pair = _PAIR.search(name)
    if form != "collective" and pair:
        values["peer"] = number(int(pair[3]), MOST_RANKS)
    _add_times(values, entry)
    return Operation(process, communicator, values, _stack(entry.get("frames")))


def _stack(frames: object) -> str:
    """The frames of an entry as one text; "" where PyTorch kept none."""
    frames = frames[:MOST_FRAMES] if isinstance(frames, (list, tuple)) else []
    return stack_text(
        (text(frame.get("name")), text(frame.get("filename")), max(number(frame.get("line")), 0))
        for frame in frames
        if isinstance(frame, dict)
    )


def _state(entry: dict[str, Any]) -> str:
    """The operation's state. Retired entries have ended, even where PyTorch did not time them."""
    return (
        "done" if entry.get("retired") is True else _STATES.get(text(entry.get("state")), "unknown")
    )


def _add_times(values: dict[str, int | str], entry: dict[str, Any]) -> None:
    """Times by CUDA events where PyTorch recorded them, else by its watchdog."""
    duration = nanoseconds(entry.get("duration_ms"), _MS)
    started, ended = (
        nanoseconds(entry.get(f"time_discovered_{what}_ns"), 1) for what in ("started", "completed")
    )
    started, ended = (time if time >= FIRST_WALL_NS else NONE for time in (started, ended))
    if duration != NONE:
        values |= {"duration_ns": duration, "source": "gpu"}
    elif values["state"] == "done" and NONE not in (started, ended):
        values |= {"start_ns": started, "end_ns": ended, "source": "host", "reason": _BY_WATCHDOG}
    elif values["state"] == "done":
        values["reason"] = _NO_TIMING
    elif values["state"] == "in flight" and text(entry.get("state")) == "scheduled":
        values["reason"] = _NOT_STARTED


FORMAT = Format(
    "flight-recorder",
    "PyTorch Flight Recorder dumps",
    (
        "Flight Recorder keeps the newest calls of PyTorch's own process groups, without NCCL's "
        "algorithm, protocol and channels",
        "its durations are of CUDA events around the kernel; without them, of PyTorch's watchdog",
        "dumps do not name their hosts",
    ),
    _matches,
    read,
)
