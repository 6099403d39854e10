"""Kernels in traces of PyTorch's profiler (Kineto) and in Nsight Systems' SQLite exports.

`import` makes a capture of such files. This reads them beside a capture of the same run: all
kernels of the GPU, not only NCCL's, with the times of their launches.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.capture.context_lines import read_context
from ncclscope.errors import FormatError
from ncclscope.ingest.files import cannot_read, open_file
from ncclscope.ingest.json_stream import CutError, elements
from ncclscope.ingest.nsys_database import (
    MAGIC,
    PROCESS_BITS,
    NsysDatabase,
    open_database,
    rank_in_name,
)
from ncclscope.ingest.records import FIRST_WALL_NS, kernel_function, nanoseconds, number, text
from ncclscope.model.kernel_trace import COMPUTE, COPY, NCCL, KernelTrace
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE

_US = 1000
_MOST_KERNELS = 1 << 23  # of one file
_KERNELS = {"kernel": COMPUTE, "gpu_memcpy": COPY, "gpu_memset": COPY}
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_NCCL_KERNEL = re.compile(r"\bnccl\w*Kernel", re.IGNORECASE)


def read_kernels(path: Path) -> list[KernelTrace]:
    """The kernels in a file, process by process."""
    with open_file(path) as file:
        is_database = file.read(len(MAGIC)) == MAGIC
    traces = _from_nsys(path) if is_database else [_from_torch(path)]
    return [trace for trace in traces if len(trace)]


def traces_of(model: Model) -> list[KernelTrace]:
    """The traces that `ctl --kernels` and `run --kernels-at` left in a capture. One that cannot be
    read is left out.
    """
    traces = []
    for place in model.training.kernel_files:
        folder, _, name = place.rpartition("/")
        ends = {file.name: file.ends_ns for file in read_context(model.path / folder).kernels}
        try:
            own = read_kernels(model.path / place)
        except FormatError:
            continue
        traces += [replace(trace, folder=folder, step_ends_ns=ends.get(name, ())) for trace in own]
    return traces


@dataclass(slots=True)
class _Kernels:
    """Kernels as they are read."""

    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    launch: list[int] = field(default_factory=list)  # number of the launch, or its time
    kind: list[int] = field(default_factory=list)
    function: list[str] = field(default_factory=list)

    def add(self, start_ns: int, end_ns: int, launch: int, kind: int, name: str) -> None:
        """Adds a kernel; `kind`: that of its name, unless it is one of NCCL's."""
        if start_ns == NONE or end_ns < start_ns or len(self.start_ns) >= _MOST_KERNELS:
            return
        is_nccl = kind == COMPUTE and _NCCL_KERNEL.search(name) is not None
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.launch.append(launch)
        self.kind.append(NCCL if is_nccl else kind)
        self.function.append((kernel_function(name) or "") if is_nccl else "")

    def trace(
        self, name: str, host: str, pid: int, rank: int, launches: dict[int, int] | None = None
    ) -> KernelTrace:
        """The trace; `launches`: times by the numbers of launches."""
        launch = self.launch
        if launches is not None:
            launch = [launches.get(number, NONE) for number in launch]
        start = np.array(self.start_ns, np.int64)
        order = np.argsort(start, kind="stable")
        return KernelTrace(
            name, host, pid, rank,
            start[order],
            np.array(self.end_ns, np.int64)[order],
            np.array(launch, np.int64)[order],
            np.array(self.kind, np.int8)[order],
            tuple(self.function[place] for place in order.tolist()),
        )  # fmt: skip


# ---- Kineto ----
def _from_torch(path: Path) -> KernelTrace:
    kernels, launches = _Kernels(), dict[int, int]()
    said: dict[str, Any] = {}
    pids: dict[int, int] = {}
    for event in _events(path, said):
        category, arguments = event.get("cat"), event.get("args")
        if not isinstance(category, str) or not isinstance(arguments, dict):
            continue
        correlation = number(arguments.get("correlation"))
        if category.lower() in _KERNELS:
            start = _time(event.get("ts"), said)
            length = nanoseconds(event.get("dur"), _US)
            kind, name = _KERNELS[category.lower()], text(event.get("name"))
            kernels.add(start, start + max(length, 0), correlation, kind, name)
        elif category.lower() in _LAUNCHES and correlation != NONE:
            if len(launches) < _MOST_KERNELS:
                launches[correlation] = _time(event.get("ts"), said)
            pid = number(event.get("pid"), 1 << 31)
            pids[pid] = pids.get(pid, 0) + 1
    distributed = said.get("distributedInfo")
    rank = number(distributed.get("rank"), 1 << 20) if isinstance(distributed, dict) else NONE
    pid = max(pids, key=lambda one: pids[one], default=NONE)
    host = text(said.get("host_name"))
    return kernels.trace(path.name, host, pid, _rank_of(path, rank), launches)


def _events(path: Path, said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Complete events; members of the document besides go to `said`."""
    with open_file(path) as file:
        try:
            for name, value in elements(file, "traceEvents"):
                if name != "traceEvents":
                    said[name] = value
                elif isinstance(value, dict) and value.get("ph") == "X":
                    yield value
        except CutError:
            return  # what came before is there
        except (ValueError, EOFError) as error:
            hint = "Give a trace of PyTorch's profiler, or nsys export --type sqlite"
            raise cannot_read(path, error, hint) from None


def _time(value: object, said: dict[str, Any]) -> int:
    """ns since 1970: newer traces count from a time that they name."""
    time = nanoseconds(value, _US)
    if NONE < time < FIRST_WALL_NS:
        time += max(number(said.get("baseTimeNanoseconds")), 0)
    return time


def _rank_of(path: Path, rank: int) -> int:
    return rank if rank != NONE else rank_in_name(path)


# ---- Nsight Systems ----
_ACTIVITIES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": COMPUTE,
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": COPY,
}


def _from_nsys(path: Path) -> list[KernelTrace]:
    with open_database(path) as database:
        return _KernelDatabase(database, path).traces()


class _KernelDatabase:
    """The kernels of one database."""

    def __init__(self, database: NsysDatabase, path: Path) -> None:
        self._database, self._path = database, path
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in database.columns:
            raise cannot_read(path, "it has no kernels", "Trace CUDA: nsys profile -t cuda,nvtx")
        self._base_ns = max(database.value("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), 0)

    def traces(self) -> list[KernelTrace]:
        """By process."""
        kernels: dict[int, _Kernels] = {}
        for table, kind in _ACTIVITIES.items():
            for start, end, process, name, launch in self._rows(table):
                own = kernels.setdefault(process if isinstance(process, int) else 0, _Kernels())
                own.add(self._time(start), self._time(end), self._time(launch), kind, text(name))
        rank = _rank_of(self._path, NONE)
        return [
            own.trace(self._path.name, "", (process >> 24) & 0xFFFFFF if process else NONE, rank)
            for process, own in kernels.items()
        ]

    def _time(self, value: object) -> int:
        time = number(value)
        return time + self._base_ns if time != NONE else NONE

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Start, end, process, name and launch of each kernel or copy."""
        if not self._database.has(table, "start", "end"):
            return
        has = self._database.columns[table]
        process = "k.globalPid" if "globalPid" in has else "null"
        name, names = "null", ""
        column = next((c for c in ("shortName", "demangledName") if c in has), "")
        if column and self._database.has("StringIds", "id", "value"):
            name, names = "s.value", f"left join StringIds s on s.id = k.{column}"
        launch, launches = "null", ""
        runtime = "CUPTI_ACTIVITY_KIND_RUNTIME"
        if "correlationId" in has and self._database.has(
            runtime, "start", "globalTid", "correlationId"
        ):
            launch = "r.start"  # numbers of launches are a process's own
            launches = (
                f"left join {runtime} r on r.correlationId = k.correlationId and ({process} is "
                f"null or (r.globalTid & {PROCESS_BITS}) = {process})"
            )
        yield from self._database.connection.execute(
            f'select k.start, k."end", {process}, {name}, {launch} from {table} k {names} '
            f"{launches} limit {_MOST_KERNELS}"
        )
