"""Results of nccl-tests as `-J FILE` writes them: a mean time for each size, or all iterations'."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import cannot_read, read_bytes
from ncclscope.ingest.records import (
    MOST_COUNTED,
    Format,
    ImportedCommunicator,
    ImportedMember,
    ImportedProcess,
    ImportReport,
    Operation,
    Record,
    function_name,
    nanoseconds,
    number,
    text,
)
from ncclscope.model.schema import NONE
from ncclscope.nccl.datatypes import from_nccl_tests
from ncclscope.nccl.releases import release_of_code, text_of

_LARGEST_BYTES = 1 << 27
_US = 1000
_MOST_ITERATIONS = 1 << 20
_PROGRAM = re.compile(r"([a-z_0-9]+)_perf")
_FUNCTIONS = {"sendrecv": "SendRecv", "hypercube": "AlltoAll", "alltoall": "AlltoAll"}
_PLACES = {"out_of_place": "out-of-place", "in_place": "in-place"}
_MEAN = "a mean over iterations, by nccl-tests"
_CPU_TIME = "the CPU's time of the calls (-C 1)"


def _matches(head: bytes, path: Path) -> bool:
    start = head.lstrip()[:1] == b"{"
    return start and (
        b'"average_bus_bandwidth"' in head
        or b'"out_of_place"' in head
        or (b'"start_time"' in head and b'"args"' in head and b"_perf" in head)
    )


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """One operation for each iteration of each size."""
    try:
        document = json.loads(read_bytes(path, _LARGEST_BYTES))
    except (ValueError, RecursionError) as error:
        raise cannot_read(path, f"it is no JSON ({error})") from None
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise cannot_read(path, "it has no results of nccl-tests")
    config = document.get("config")
    members = list(_members(config if isinstance(config, dict) else {}, path.name, document))
    yield from members
    began = _began_ns(document.get("start_time"))
    program = _program(document)
    for result in results:
        if isinstance(result, dict):
            yield from _operations(result, program, members[0], began)
        else:
            report.lose("results cannot be read")
    _note_errors(document, path.name, report)


def _note_errors(document: dict[str, Any], file: str, report: ImportReport) -> None:
    bounds, errors = document.get("out_of_bounds"), document.get("errors")
    wrong = number(bounds.get("count")) if isinstance(bounds, dict) else NONE
    if wrong > 0:
        report.note(f"{file}: nccl-tests found {wrong:,} wrong values")
    for error in errors[:3] if isinstance(errors, list) else ():
        if text(error):
            report.note(f"{file}: {text(error)[:200]}")


def _program(document: dict[str, Any]) -> str:
    """The function that was tested, by the program's name."""
    arguments = document.get("args")
    first = text(arguments[0]) if isinstance(arguments, list) and arguments else ""
    match = _PROGRAM.search(first.rpartition("/")[2])
    name = match[1] if match else ""
    return _FUNCTIONS.get(name) or function_name(name)


def _members(
    config: dict[str, Any], file: str, document: dict[str, Any]
) -> Iterator[ImportedMember]:
    """The processes that took part. One of each is listed, whatever it has of threads and GPUs."""
    listed = config.get("devices")
    devices = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    each = max(number(config.get("nthreads")), 1) * max(number(config.get("ngpus")), 1)
    hosts = {text(device.get("hostname")) for device in devices}
    ranks = max(len(devices), 1) * each
    communicator = ImportedCommunicator(file, 0, file.split(".")[0], ranks, max(len(hosts), 1))
    version = number(document.get("nccl_version"))
    release = text_of(release_of_code(version)) if version > 0 else ""
    for place, device in enumerate(devices or [{}]):
        process = ImportedProcess(
            text(device.get("hostname")),
            number(device.get("pid"), (1 << 31) - 1),
            file,
            NONE,
            release,
            text(device.get("device_hex")),
        )
        first = number(device.get("rank"))
        first = first if first != NONE else place * each
        for rank in range(first, first + min(each, 1024)):
            yield ImportedMember(process, communicator, rank, rank)


def _began_ns(value: object) -> int:
    """When the program began, in the time zone of this machine: the file has none."""
    try:
        return round(datetime.strptime(text(value), "%Y-%m-%d %H:%M:%S").timestamp()) * 10**9
    except (ValueError, OverflowError, OSError):
        return NONE


def _operations(
    result: dict[str, Any], program: str, member: ImportedMember, began_ns: int
) -> Iterator[Operation]:
    datatype = text(result.get("type"))
    try:
        root = number(int(text(result.get("root")) or -1), 1 << 20)
    except ValueError:
        root = NONE
    for place, variant in _PLACES.items():
        measured = result.get(place)
        if not isinstance(measured, dict):
            continue
        by_cpu = "cpu_time" in measured
        mean = nanoseconds(measured.get("cpu_time" if by_cpu else "time"), _US)
        values: dict[str, int | str] = {
            "rank": member.rank,
            "function": program or text(result.get("experiment_name")),
            "size_bytes": number(result.get("size")),
            "count": number(result.get("count")),
            "datatype": from_nccl_tests(datatype),
            "root": root,
            "variant": variant,
            "enqueue_ns": began_ns,
            "source": "none" if mean == NONE else "host" if by_cpu else "gpu",
            "reason": _CPU_TIME if by_cpu else _MEAN,
        }
        for duration in _durations(result, place, mean):
            yield Operation(member.process, member.communicator, {**values, **duration})


def _durations(result: dict[str, Any], place: str, mean_ns: int) -> Iterator[dict[str, int | str]]:
    """Each iteration's own time where nccl-tests wrote them, else the mean as often."""
    single = result.get(f"{place}_per_iter")
    times = single.get("times_us") if isinstance(single, dict) else None
    if isinstance(times, list) and times:
        for time in times[:_MOST_ITERATIONS]:
            yield {"duration_ns": nanoseconds(time, _US), "reason": ""}
        return
    iterations = min(max(number(result.get("actual_iterations")), 1), _MOST_ITERATIONS)
    for _ in range(iterations):
        yield {"duration_ns": mean_ns}


FORMAT = Format(
    "nccl-tests",
    "results of nccl-tests",
    (
        "nccl-tests give the mean of all ranks and iterations: operations are shown on the first "
        "rank, all of a size with that mean",
        "variant: in-place or out-of-place",
    ),
    _matches,
    read,
    most_operations=MOST_COUNTED,
)
