"""NCCL's own log (`NCCL_DEBUG=INFO` or `TRACE`): its lines, and the calls that subsystem COLL logs.

A line is `host:pid:tid [device] NCCL LEVEL text`, behind whatever launchers and timestamps put in
front; warnings have the source's file and line before `NCCL WARN`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ncclscope.ingest.files import lines_of
from ncclscope.ingest.records import (
    Format,
    ImportedCommunicator,
    ImportedMember,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    form_of,
    function_name,
    hash_of,
    number,
)
from ncclscope.model.schema import NONE
from ncclscope.nccl.datatypes import NUMBERED_DATATYPES
from ncclscope.nccl.functions import COUNTS_ONE_RANK, WITH_ROOT
from ncclscope.nccl.operation_bytes import operation_bytes

_LINE = re.compile(
    rb"([^\s:\[\]<>]{1,255}):(\d{1,10}):(\d{1,10}) +\[(-?\d{1,4})\] (.*?)"
    rb"NCCL (INFO|WARN|TRACE|ERROR) (.*)"
)
_VERSION = re.compile(rb"NCCL version (\d[\w.+-]*)")
_INIT = re.compile(
    r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)"
    r"(?: cudaDev (\d+))?(?: nvmlDev (\d+))?(?: busId ([0-9a-fA-F]+))?(?:.*?commId (0x[0-9a-f]+))?"
)
_SPLIT = re.compile(r"parent (0x[0-9a-f]+)(?: splitCount (\d{1,9}))? color (-?\d{1,10})")
_CALL = re.compile(
    r"(\w+): opCount [0-9a-f]+ sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) op \d+ "
    r"root (-?\d+) comm (0x[0-9a-f]+)(?: \[nranks=(\d+)\])?(?: stream (0x[0-9a-f]+))?"
)
_LONGEST_HEAD = 600
_LARGEST_PID = (1 << 31) - 1
_LONGEST_TEXT = 1 << 16  # a ring of ten thousand ranks
_NO_TIME = "NCCL's log has no times of operations"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of NCCL's log."""

    host: str
    pid: int
    thread: int
    device: int
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Init:
    """A communicator that a line introduces, on one rank."""

    pointer: str
    rank: int
    ranks: int
    bus_id: str
    hash: str  # "" where the line has none
    parent: str = ""  # pointer of the communicator that it was split from
    part: str = ""  # which part of it


def parse_line(raw: bytes) -> Line | None:
    """NCCL's part of a line, None for lines of others."""
    at = raw.find(b"NCCL ")  # host and process stand right before
    match = _LINE.search(raw[max(at - _LONGEST_HEAD, 0) : at + _LONGEST_TEXT]) if at > 0 else None
    if not match:
        return None
    host, pid, thread, device, _, level, rest = match.groups()
    return Line(
        host.decode("utf-8", "replace"),
        number(int(pid), _LARGEST_PID),
        number(int(thread), _LARGEST_PID),
        number(int(device), _LARGEST_PID),
        level.decode(),
        rest.decode("utf-8", "replace").rstrip()[:_LONGEST_TEXT],
    )


def version_in(raw: bytes) -> str:
    """The release that a line names, "" for none."""
    match = _VERSION.search(raw[:400])
    return match[1].decode() if match else ""


def init_in(text: str) -> Init | None:
    """The communicator that a line introduces."""
    match = _INIT.search(text)
    if not match:
        return None
    pointer, rank, ranks, _, _, bus_id, commhash = match.groups()
    if len(rank) > 7 or len(ranks) > 7:
        return None
    split = _SPLIT.search(text)
    parent, part = (split[1], f"{split[2] or ''}.{split[3]}") if split else ("", "")
    return Init(pointer, int(rank), int(ranks), bus_id or "", commhash or "", parent, part)


def key_of(init: Init, parents: Mapping[str, str]) -> str:
    """What names a communicator on all ranks: its hash, else which part of its parent it is; "" for
    neither. `parents`: keys by pointer, of the same process.
    """
    if init.hash:
        return init.hash
    parent = parents.get(init.parent, "")
    return f"{parent} split {init.part}" if parent else ""


def _matches(head: bytes, path: Path) -> bool:
    return bool(_LINE.search(head) or _VERSION.search(head))


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """Processes, communicators, and the calls where they were logged."""
    communicators: dict[tuple[str, int, str], tuple[ImportedCommunicator, int]] = {}
    keys: dict[tuple[str, int], dict[str, str]] = {}  # by process and pointer
    processes: dict[tuple[str, int], ImportedProcess] = {}
    release = ""
    for raw in lines_of(path, report):
        if b"NCCL" not in raw:
            continue
        release = version_in(raw) or release
        line = parse_line(raw)
        if line is None or line.level == "WARN":
            continue
        init = init_in(line.text)
        call = None if init else _CALL.search(line.text)
        if not init and not call:
            continue
        process = _process(line, processes, release)
        pointers = keys.setdefault((line.host, line.pid), {})
        key = key_of(init, pointers) if init else ""
        if init and key:
            pointers[init.pointer] = key
            communicator = ImportedCommunicator(key, hash_of(init.hash), "", init.ranks)
            communicators[line.host, line.pid, init.pointer] = communicator, init.rank
            yield ImportedMember(process, communicator, init.rank)
        elif call:
            yield _operation(call, line, process, communicators)


def _process(
    line: Line, processes: dict[tuple[str, int], ImportedProcess], release: str
) -> ImportedProcess:
    key = line.host, line.pid
    if key not in processes:
        without_cuda = release.split("+")[0]
        processes[key] = ImportedProcess(line.host, line.pid, nccl_version=without_cuda)
    return processes[key]


def _operation(
    call: "re.Match[str]",
    line: Line,
    process: ImportedProcess,
    communicators: dict[tuple[str, int, str], tuple[ImportedCommunicator, int]],
) -> Operation:
    name, count, datatype, root, pointer, ranks, stream = call.groups()
    function = function_name(name)
    form = form_of(function)
    fallback = ImportedCommunicator(
        f"{line.host}:{line.pid}:{pointer}", 0, "", int((ranks or "0")[:7])
    )
    communicator, rank = communicators.get((line.host, line.pid, pointer), (fallback, NONE))
    code = int(datatype[:3])
    named = NUMBERED_DATATYPES[code] if code < len(NUMBERED_DATATYPES) else ""
    elements = number(int(count[:20]))
    size = _size_bytes(function, named, elements, communicator.ranks)
    values: dict[str, int | str] = {
        "rank": rank,
        "thread": line.thread,
        "function": function,
        "form": form,
        "datatype": named,
        "count": elements,
        "size_bytes": size,
        "peer" if form != "collective" else "root": number(int(root[:8])),
        "stream": number(int(stream[:18], 16)) if stream else NONE,
        "state": "unknown",
        "reason": _NO_TIME,
    }
    if function not in WITH_ROOT:
        values.pop("root", None)
    return Operation(process, communicator, values)


def _size_bytes(function: str, datatype: str, elements: int, ranks: int) -> int:
    if elements == NONE or (ranks < 1 and function in COUNTS_ONE_RANK):
        return NONE
    size = operation_bytes(function, datatype, elements, ranks, in_coll=False)
    return NONE if size is None else number(size)


FORMAT = Format(
    "nccl-log",
    "NCCL's own logs",
    ("NCCL's log names calls only with NCCL_DEBUG_SUBSYS=COLL, and has no times of operations",),
    _matches,
    read,
    numbered=True,
)
