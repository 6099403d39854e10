"""Nsight Systems' SQLite exports: NCCL's NVTX ranges joined with the kernels they launched.

NCCL marks its calls with NVTX ranges whose payloads hold communicator, bytes, root and peer. A
kernel belongs to the call during whose range it was launched; that of a group, to all its calls.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import cannot_read
from ncclscope.ingest.nsys_database import (
    MAGIC,
    PROCESS_BITS,
    NsysDatabase,
    open_database,
    rank_in_name,
)
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
    kernel_function,
    number,
    text,
)
from ncclscope.model.schema import NONE
from ncclscope.nccl.functions import COUNTS_ONE_RANK

_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, bytes of the payload, bytes of all
# NVTX's codes of entry types that NCCL uses: how they are packed.
_PACKED = {5: "<i", 6: "<I", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
_SHARED = "time of its group's kernel, which carried out several calls"
_NO_KERNEL = "no kernel was launched during its call"
_GROUP = ("ncclGroupStart", "ncclGroupEnd")
_MOST_CALLS = 1 << 22  # that are held in memory, about 2 GB


_Schemas = dict[tuple[int, int], list[tuple[str, str, int]]]  # name, packing, offset


def _matches(head: bytes, path: Path) -> bool:
    return head.startswith(MAGIC)


@dataclass(slots=True)
class _Call:
    """One NVTX range of NCCL's."""

    name: str
    start_ns: int
    end_ns: int
    payload: dict[str, int]
    kernels: list[tuple[int, int, int, int]] = field(default_factory=list)
    shared: bool = False


@dataclass(slots=True)
class _Thread:
    """The calls of one thread by their start, and its groups."""

    calls: list[_Call] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    groups: list[tuple[int, int, list[_Call]]] = field(default_factory=list)


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """Operations of all processes of one export."""
    with open_database(path) as database:
        yield from _Export(database, path, report).operations()


class _Export:
    """One database."""

    def __init__(self, database: NsysDatabase, path: Path, report: ImportReport) -> None:
        self._database, self._path, self._report = database, path, report
        if not {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"} & database.columns.keys():
            raise cannot_read(path, "it has neither NVTX ranges nor kernels")
        self._base_ns = database.value("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        self._host = self._host_name()
        self._rank = rank_in_name(path)

    def _host_name(self) -> str:
        if not self._database.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
            return ""
        query = "select value from TARGET_INFO_SYSTEM_ENV where name = 'Hostname' limit 1"
        row = self._database.connection.execute(query).fetchone()
        return text(row[0]) if row else ""

    def _process(self, global_id: int) -> ImportedProcess:
        pid = (global_id >> 24) & 0xFFFFFF
        file, alone = self._path.name, self._base_ns == NONE
        return ImportedProcess(self._host, pid, file, self._rank, own_clock=alone)

    def _time(self, value: int) -> int:
        return value + max(self._base_ns, 0) if value != NONE else NONE

    # ---- NVTX ----
    def _schemas(self) -> _Schemas:
        """By domain and schema the entries that can be read."""
        table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
        if not self._database.has(table, "domainId", "schemaId", "type", "name", "offset"):
            return {}
        schemas: _Schemas = {}
        query = f'select domainId, schemaId, type, name, "offset" from {table} limit 100000'
        for domain, schema, kind, name, offset in self._database.connection.execute(query):
            if kind in _PACKED and isinstance(name, str) and isinstance(schema, int):
                place = number(offset or 0, 1 << 16)
                schemas.setdefault((domain, schema), []).append((name, _PACKED[kind], place))
        return schemas

    def _threads(self) -> dict[int, _Thread]:
        """NCCL's ranges by thread."""
        if not self._database.has("NVTX_EVENTS", "start", "end", "globalTid"):
            return {}
        named = self._database.columns["NVTX_EVENTS"]
        value = "e.text" if "text" in named else "null"
        joined = ""
        if "textId" in named and self._database.has("StringIds", "id", "value"):
            value = f"coalesce({value}, s.value)"
            joined = "left join StringIds s on s.id = e.textId"
        payload = "e.binaryData" if "binaryData" in named else "null"
        query = (
            f'select e.start, e."end", e.globalTid, {value} as name, {payload} '
            f"from NVTX_EVENTS e {joined} "
            f"where {value} glob 'nccl[A-Z]*' order by e.start"  # PyTorch's own are nccl:…
        )
        schemas, threads, count = self._schemas(), dict[int, _Thread](), 0
        open_groups: dict[int, list[_Call]] = {}
        for start, end, thread_id, name, data in self._database.connection.execute(query):
            start, end = number(start), number(end)
            if start == NONE or not isinstance(thread_id, int) or not isinstance(name, str):
                self._report.lose("NVTX ranges cannot be read")
                continue
            call = _Call(name, start, max(end, start), _payload(data, schemas))
            thread = threads.setdefault(thread_id, _Thread())
            if name == _GROUP[0]:
                open_groups.setdefault(thread_id, [])
            elif name == _GROUP[1]:
                members = open_groups.pop(thread_id, [])
                thread.groups.append((call.start_ns, call.end_ns, members))
            else:
                thread.calls.append(call)
                thread.starts.append(start)
                open_groups.get(thread_id, []).append(call)
                count += 1
                if count > _MOST_CALLS:
                    cause = f"it has more than {_MOST_CALLS:,} calls"
                    raise cannot_read(self._path, cause, "Export a part: nsys export --help")
        return threads

    # ---- kernels ----
    def _kernels(self) -> Iterator[tuple[int, int, int, int, str, int, int, int]]:
        """(start, end, device, stream, name, process, launch, launching thread)."""
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        has = self._database.columns.get(table, set())
        name = next((column for column in ("shortName", "demangledName") if column in has), "")
        if (
            not {"start", "end"} <= has
            or not name
            or not self._database.has("StringIds", "id", "value")
        ):
            return
        column = {c: f"k.{c}" if c in has else "null" for c in (
            "deviceId", "streamId", "correlationId", "globalPid")}  # fmt: skip
        runtime, joined = "null, null", ""
        if self._database.has("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "globalTid", "correlationId"):
            # Numbers of launches are a process's own.
            runtime = "r.start, r.globalTid"
            joined = (
                "left join CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = k.correlationId "
                f"and ({column['globalPid']} is null or "
                f"(r.globalTid & {PROCESS_BITS}) = {column['globalPid']})"
            )
        query = (
            f'select k.start, k."end", {column["deviceId"]}, {column["streamId"]}, s.value, '
            f"{column['globalPid']}, {runtime} from {table} k "
            f"join StringIds s on s.id = k.{name} {joined} "
            "where s.value like 'nccl%' order by k.start"
        )
        for row in self._database.connection.execute(query):
            _, _, device, stream, value, process, launch, thread = row
            start, end = number(row[0]), number(row[1])
            if start == NONE or end < start:
                self._report.lose("kernels cannot be read")
                continue
            of = process if isinstance(process, int) else (
                thread & PROCESS_BITS if isinstance(thread, int) else 0)  # fmt: skip
            yield (
                start, end, number(device), number(stream), text(value), of,
                number(launch), thread if isinstance(thread, int) else NONE,
            )  # fmt: skip

    # ---- both ----
    def operations(self) -> Iterator[Record]:
        """Calls with their kernels, and kernels without a call."""
        threads = self._threads()
        for kernel in self._kernels():
            calls = _launched_by(threads.get(kernel[7]), kernel[6])
            if not calls:
                yield self._lone(kernel)
                continue
            for call in calls:
                call.shared = call.shared or len(calls) > 1
                call.kernels.append((kernel[0], kernel[1], kernel[2], kernel[3]))
        ranks: dict[tuple[int, int], tuple[int, int]] = {}
        for thread_id, thread in threads.items():
            yield from self._of_thread(thread_id, thread, ranks)

    def _of_thread(
        self, thread_id: int, thread: _Thread, ranks: dict[tuple[int, int], tuple[int, int]]
    ) -> Iterator[Record]:
        process = self._process(thread_id)
        group = thread_id & PROCESS_BITS
        for call in thread.calls:
            communicator_id = call.payload.get("NCCL communicator ID", 0)
            if "No. of ranks" in call.payload:
                count, rank = call.payload["No. of ranks"], call.payload.get("Rank", NONE)
                ranks[group, communicator_id] = count, rank
                yield ImportedMember(process, _communicator(communicator_id, count), rank)
                continue
            function = function_name(call.name)
            if function == call.name:  # ncclCommSplit and the like
                continue
            count, rank = ranks.get((group, communicator_id), (0, NONE))
            yield Operation(
                process,
                _communicator(communicator_id, count) if communicator_id else None,
                self._values(call, function, count, rank, thread_id & 0xFFFFFF),
            )

    def _values(
        self, call: _Call, function: str, ranks: int, rank: int, thread: int
    ) -> dict[str, int | str]:
        size = number(call.payload.get("Message size [bytes]"))
        if function in COUNTS_ONE_RANK:  # of one rank, as the caller gives it
            size = size * ranks if ranks > 0 and NONE < size < 1 << 42 else NONE
        values: dict[str, int | str] = {
            "rank": rank,
            "thread": thread,
            "function": function,
            "form": form_of(function),
            "size_bytes": size,
            "root": number(call.payload.get("Root")),
            "peer": number(call.payload.get("Peer rank")),
            "call_ns": self._time(call.start_ns),
            "call_end_ns": self._time(call.end_ns),
        }
        if not call.kernels:
            return {**values, "reason": _NO_KERNEL}
        start, end = min(k[0] for k in call.kernels), max(k[1] for k in call.kernels)
        values |= {"start_ns": self._time(start), "end_ns": self._time(end)}
        values |= {"stream": call.kernels[0][3], "source": "gpu"}
        if call.shared:
            values |= {"source": "host", "reason": _SHARED}
        return values

    def _lone(self, kernel: tuple[int, int, int, int, str, int, int, int]) -> Operation:
        function = kernel_function(kernel[4]) or "unknown"
        values: dict[str, int | str] = {
            "function": function,
            "form": form_of(function),
            "launch_ns": self._time(kernel[6]),
            "start_ns": self._time(kernel[0]),
            "end_ns": self._time(kernel[1]),
            "stream": kernel[3],
            "source": "gpu",
        }
        return Operation(self._process(kernel[5]), None, values)


def _communicator(communicator_id: int, ranks: int) -> ImportedCommunicator:
    return ImportedCommunicator(
        f"{communicator_id:#x}", hash_of(communicator_id), "", max(ranks, 0)
    )


def _payload(data: Any, schemas: _Schemas) -> dict[str, int]:
    """The fields of a range's payload by NCCL's names of them."""
    if isinstance(data, str):
        try:
            data = bytes.fromhex(data)
        except ValueError:
            return {}
    if not isinstance(data, bytes) or len(data) < _HEADER.size:
        return {}
    domain, _, schema, _, _, _ = _HEADER.unpack_from(data)
    fields = {}
    for name, packing, offset in schemas.get((domain, schema), ()):
        end = _HEADER.size + offset + struct.calcsize(packing)
        if offset != NONE and end <= len(data):
            fields[name] = struct.unpack_from(packing, data, _HEADER.size + offset)[0]
    return fields


def _launched_by(thread: _Thread | None, launch_ns: int) -> list[_Call]:
    """The call, or the calls of the group, during which a kernel was launched."""
    if thread is None or launch_ns == NONE:
        return []
    place = bisect_right(thread.starts, launch_ns) - 1
    if place >= 0 and thread.calls[place].end_ns >= launch_ns:
        return [thread.calls[place]]
    groups = thread.groups
    place = bisect_right(groups, launch_ns, key=lambda group: group[0]) - 1
    return groups[place][2] if place >= 0 and groups[place][1] >= launch_ns else []


FORMAT = Format(
    "nsys",
    "Nsight Systems' SQLite exports",
    (
        "Nsight Systems records no algorithm, protocol and channels, and names of kernels do not "
        "tell them",
        "clocks of different exports are compared by the time of day only",
        "where NVTX was not traced, only kernels are known: no sizes, no communicators",
    ),
    _matches,
    read,
    numbered=True,
    start_error_ns=10_000,
)
