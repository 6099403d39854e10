"""Rows of the small tables, which a model keeps as objects instead of columns: processes and GPUs.

Fields have the names of the columns in schema.py; a test holds the two against each other.
"""

import re
from dataclasses import dataclass

from ncclscope.humanize import ranks_in_words
from ncclscope.model.schema import NONE


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One row of `processes`; its number is its place in `Model.processes`."""

    folder: str
    host: str
    node: int
    pid: int
    global_rank: int  # NONE where nobody tells; of several ranks, the lowest
    mode: str
    nccl_version: str
    interface: int
    gpu: str  # bus id or uuid
    attempt: int
    started_ns: int  # wall clock
    ended: bool  # False: killed, or still running
    gpu_clock_error_ns: int = 0
    calls: int = 0  # on record
    calls_counted: int = 0
    lived_ns: int = 0
    recorded_ns: int = 0
    fullest_mode: str = ""  # that it was in: `mode` is that of its start
    gpu_timing: str = ""  # in force: kernel, sampled or off
    gpu_timing_asked: str = ""
    gpu_timing_reason: str = ""
    event_excess_ns: int = 0  # taken off times by CUDA events
    event_error_ns: int = 0  # how far they may be off after that
    gpu_timing_off_ns: int = 0  # how long `ctl` had switched it off
    gpu_timing_changes: str = ""  # by `ctl`: "off 12.5, sampled 40.1", seconds of its life

    @property
    def paused(self) -> bool:
        """Whether it recorded totals only for some of its time."""
        return self.recorded_ns < self.lived_ns

    @property
    def timing_changes(self) -> tuple[tuple[str, float], ...]:
        """Changes of the GPU timing: which came into force, after how many seconds."""
        found = re.findall(r"(off|sampled) (\d{1,12}\.\d)\b", self.gpu_timing_changes)
        return tuple((timing, float(after)) for timing, after in found)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One row of `gpus`: a GPU that a process used, and the rank of the job that ran on it."""

    process: int  # row
    global_rank: int
    uuid: str  # 32 hexadecimal digits
    bus_id: str


def list_processes(rows: list[ProcessRow]) -> str:
    """The first few processes by rank, or by folder where they have none."""
    ranks = [row.global_rank for row in rows]
    if NONE not in ranks and len(set(ranks)) == len(ranks):
        return ranks_in_words(tuple(sorted(ranks)))
    names = [
        row.folder if r == NONE else f"rank {r}" for row, r in zip(rows[:8], ranks, strict=False)
    ]
    return ", ".join(names) + (" …" if len(rows) > 8 else "")
