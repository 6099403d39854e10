"""What a job's Python said about itself: lines of JSON in `context.jsonl` of a process folder.

The attached file writes them into the job's folder, so nothing in them is trusted: sizes are
bounded, and a line that is not what it must be is left out.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncclscope.humanize import printable
from ncclscope.nccl.limits import MOST_RANKS
from ncclscope.regular_files import open_binary

FILE = "context.jsonl"
_LARGEST = 1 << 62  # as a saved model can have it
_MOST_BYTES, _MOST_LINES, _LONGEST_TEXT = 8 << 20, 4096, 200
_KERNEL_FILE, _MOST_STEPS = re.compile(r"kernels\.\d{1,6}\.json"), 1000
_MOST_BUCKETS, _MOST_PARAMETERS = 4096, 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process group of torch.distributed, or of vLLM."""

    name: str
    description: str
    ranks: tuple[int, ...]  # global


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of DistributedDataParallel: gradients that one AllReduce carries."""

    size_bytes: int
    parameters: tuple[str, ...]
    address: int = 0  # where it begins; 0: not known


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A trace of CUDA kernels that `ctl --kernels` asked for, or why there is none."""

    name: str  # of the file in the process's folder; "": there is none
    ends_ns: tuple[int, ...] = ()  # wall clock: its begin, then the ends of the steps in it
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobContext:
    """All of it; empty where nothing was attached."""

    facts: dict[str, str] = field(default_factory=dict)  # torch, device, level …
    groups: tuple[ProcessGroup, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    compute_stream: int = -1  # CUDA stream on which the program computes
    parameters: int = 0  # of the model
    failures: tuple[str, ...] = ()  # what could not be attached, and why
    kernels: tuple[KernelFile, ...] = ()


def read_context(folder: Path) -> JobContext:
    """What the process in a folder said; whatever cannot be read is left out."""
    try:
        with open_binary(folder / FILE) as file:
            content = file.read(_MOST_BYTES)
    except OSError:
        return JobContext()
    facts: dict[str, str] = {}
    groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    buckets: tuple[Bucket, ...] = ()
    failures: list[str] = []
    kernels: list[KernelFile] = []
    numbers = {"compute_stream": -1, "parameters": 0}
    for line in content.split(b"\n")[:_MOST_LINES]:
        record = _record(line)
        what = record.get("what")
        if what == "facts":
            facts |= {_text(key): _text(value) for key, value in list(record.items())[1:40]}
            numbers |= {name: _number(record, name, old) for name, old in numbers.items()}
        elif what == "group" and _ranks(record.get("ranks")):
            group = ProcessGroup(
                _text(record.get("name")), _text(record.get("description")), _ranks(record["ranks"])
            )
            groups[group.name, group.ranks] = group
        elif what == "buckets":
            buckets = _buckets(record.get("buckets"))
        elif what == "failure":
            failures.append(_text(record.get("why")))
        elif what == "kernels":
            kernels.append(_kernel_file(record))
    return JobContext(
        facts, tuple(groups.values()), buckets, **numbers,
        failures=tuple(failures), kernels=tuple(kernels),
    )  # fmt: skip


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _text(value: object) -> str:
    return printable(str(value)[:_LONGEST_TEXT]) if isinstance(value, (str, int)) else ""


def _number(record: dict[str, Any], name: str, otherwise: int) -> int:
    value = record.get(name, otherwise)
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    return value if fits else otherwise


def _ranks(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not 0 < len(values) <= MOST_RANKS:
        return ()
    fits = all(type(value) is int and 0 <= value < MOST_RANKS for value in values)
    return tuple(values) if fits else ()


def _kernel_file(record: dict[str, Any]) -> KernelFile:
    name, ends = _text(record.get("file")), record.get("ends_ns")
    if not _KERNEL_FILE.fullmatch(name):
        return KernelFile("", why=_text(record.get("why")))
    if not isinstance(ends, list) or len(ends) > _MOST_STEPS:
        return KernelFile(name)
    if not all(type(end) is int and 0 <= end < 1 << 62 for end in ends):
        return KernelFile(name)
    return KernelFile(name, tuple(sorted(ends)))


def _buckets(values: object) -> tuple[Bucket, ...]:
    if not isinstance(values, list):
        return ()
    buckets = []
    for value in values[:_MOST_BUCKETS]:
        names = value.get("parameters") if isinstance(value, dict) else None
        if not isinstance(names, list):
            return ()
        parameters = tuple(_text(name) for name in names[:_MOST_PARAMETERS])
        address = _number(value, "address", 0)
        buckets.append(Bucket(_number(value, "bytes", 0), parameters, address))
    return tuple(buckets)
