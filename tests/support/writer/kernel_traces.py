"""Files of CUDA profilers with planted kernels: PyTorch's (Kineto) and Nsight Systems'."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.foreign_samples import nsys_tables
from tests.support.writer.training import PlantedKernel, Program


def torch_trace_events(
    kernels: Sequence[PlantedKernel], offset_ns: int, pid: int
) -> list[dict[str, Any]]:
    """Events as PyTorch's profiler writes them: kernels, copies and the calls that launched them."""
    events: list[dict[str, Any]] = []
    for number, kernel in enumerate(kernels, 1):
        category = "gpu_memcpy" if kernel.name.startswith("Memcpy") else "kernel"
        launch, start = kernel.launch_ns + offset_ns, kernel.start_ns + offset_ns
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": pid,
             "tid": pid, "ts": launch / 1e3, "dur": 3.5,
             "args": {"External id": number, "cbid": 430, "correlation": number}},
            {"ph": "X", "cat": category, "name": kernel.name, "pid": 0, "tid": 7,
             "ts": start / 1e3, "dur": (kernel.end_ns - kernel.start_ns) / 1e3,
             "args": {"External id": number, "device": 0, "stream": 7, "correlation": number}},
        ]  # fmt: skip
    return events


def write_torch_trace(
    path: Path, program: Program, kernels: Sequence[PlantedKernel], late_ns: int = 0
) -> Path:
    """A trace of PyTorch's profiler. `late_ns`: how far its clock is off. Times count from a base,
    as in PyTorch 2.4 and later.
    """
    base_ns = 1_700_000_000 * 10**9
    offset_ns = program.who.realtime_offset_ns + late_ns - base_ns
    content = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "distributedInfo": {
            "backend": "nccl", "rank": program.rank, "world_size": program.ranks,
        },
        "baseTimeNanoseconds": base_ns,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python3"}},
            *torch_trace_events(kernels, offset_ns, program.who.pid),
        ],
    }  # fmt: skip
    path.write_text(json.dumps(content))
    return path


def write_nsys(path: Path, program: Program, kernels: Sequence[PlantedKernel]) -> Path:
    """An SQLite export of Nsight Systems of the same kernels."""
    began_ns = program.who.start_ns + program.who.realtime_offset_ns
    global_pid = 0x11 << 48 | program.who.pid << 24
    with sqlite3.connect(path) as database:
        nsys_tables(database)
        database.execute(
            "create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, "
            "correlationId integer, globalPid integer)"
        )
        database.execute(
            "insert into TARGET_INFO_SESSION_START_TIME values (?, '', '')", [began_ns]
        )
        for number, kernel in enumerate(kernels, 1):
            times = [ns - program.who.start_ns for ns in (kernel.start_ns, kernel.end_ns)]
            launch_ns = kernel.launch_ns - program.who.start_ns
            database.execute("insert into StringIds values (?, ?)", [number, kernel.name])
            database.execute(
                "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, 0, ?, ?, 1, 0, null)",
                [launch_ns, launch_ns + 3500, global_pid | 77, number],
            )
            if kernel.name.startswith("Memcpy"):
                query = "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (?, ?, ?, ?)"
                database.execute(query, [*times, number, global_pid])
            else:
                database.execute(
                    "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 1, 7, ?, ?, ?, ?, 0)",
                    [*times, number, global_pid, number, number],
                )
    return path
