"""Traces in the JSON Trace Event Format: those of ncclsee, ncclscope, and PyTorch's profiler.

Complete events (`ph` X, µs) are operations where their arguments say so. Arguments are looked for
under the names that PyTorch's profiler gives them, and under plainer ones.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncclscope.ingest.files import CUT_OFF, DAMAGED, cannot_read, open_file
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
    is_function,
    kernel_function,
    nanoseconds,
    number,
    text,
    torch_function_name,
)
from ncclscope.model.completeness import SIMULATION
from ncclscope.model.schema import NONE, SOURCES, STATES
from ncclscope.nccl.datatypes import element_bits, from_event_name, from_torch
from ncclscope.nccl.functions import COUNTS_ONE_RANK, FUNCTIONS

_US = 1000
_SIGNS = re.compile(r"[^a-z0-9]")
_RANK_IN_NAME = re.compile(r"rank\s*(\d+)")
_LABELS = re.compile(r"(.+), pid (\d{1,9})(?:, .*)?")
_MOST_PROCESSES = 1 << 20
# Names of arguments, in lower case, letters and digits only.
_SIZE = ("sizebytes", "messagesize", "messagesizebytes", "msgsize", "size", "bytes")
_RANKS = ("groupsize", "nranks", "ranks", "numberofranks", "numranks", "commsize")
_RANK = ("rank", "commrank")
_COMMUNICATOR = ("commhash", "communicatorid", "commid", "processgroupname", "communicator", "comm")
_NAME = ("processgroupdescription", "communicatorname", "commname")
_ORDER = ("seq", "callorder")
_SEQUENCE = ("sequence", "seqnum", "seqnumber", "collsn")
_TELLING = {*_RANKS, "algorithm", "algo", "protocol", "proto", "dtype", "datatype"}
# Calls in traces of PyTorch's profiler, which has their kernels as well.
_ON_THE_HOST = ("cpu_op", "user_annotation", "gpu_user_annotation")
_NO_TIME = "the trace has no length for it"


def _matches(head: bytes, path: Path) -> bool:
    start = head.lstrip()[:1]
    return (start == b"{" and b'"traceEvents"' in head) or (
        start == b"[" and b'"ph"' in head and b'"comm_hash"' not in head
    )


def read(path: Path, report: ImportReport) -> Iterator[Record]:
    """NCCL's operations of one trace; everything else in it is left out."""
    trace = _Trace(path.name, report)
    with open_file(path) as file:
        try:
            for name, value in elements(file, "traceEvents"):
                if name != "traceEvents":
                    trace.set_property(name, value)
                elif not isinstance(value, dict):
                    report.lose(DAMAGED.replace("lines", "events"))
                elif value.get("ph") == "M":
                    trace.name_process(value)
                elif value.get("ph") in ("X", "B"):  # what has not ended only begins
                    operation = trace.operation(value)
                    if operation:
                        yield operation
        except CutError:
            report.note(f"{path.name} is cut off: what came before is there")
            report.lose(CUT_OFF)
        except (ValueError, EOFError) as error:
            raise cannot_read(path, error) from None


class _Trace:
    """What a trace says of its processes."""

    def __init__(self, file: str, report: ImportReport) -> None:
        self._file, self._report = file, report
        self._rank, self._ranks, self._base_ns, self._host = NONE, 0, 0, ""
        self._names: dict[str, str] = {}  # by pid
        self._places: dict[str, tuple[str, int]] = {}  # host and process id

    def set_property(self, name: str, value: Any) -> None:
        """Takes a member of the document that is not its list of events."""
        if name == "distributedInfo" and isinstance(value, dict):
            self._rank = number(value.get("rank"), 1 << 20)
            self._ranks = max(number(value.get("world_size"), 1 << 20), 0)
        elif name == "host_name":
            self._host = text(value)
        elif name == "baseTimeNanoseconds":
            self._base_ns = max(number(value), 0)
        elif name == "otherData" and isinstance(value, dict) and value.get("simulation"):
            self._report.note(SIMULATION)  # an export of ncclscope's

    def name_process(self, event: dict[str, Any]) -> None:
        """Metadata: `process_name` and `process_labels` of a pid."""
        arguments, pid = event.get("args"), str(event.get("pid"))[:64]
        if not isinstance(arguments, dict) or len(self._names) > _MOST_PROCESSES:
            return
        if event.get("name") == "process_name":
            self._names[pid] = text(arguments.get("name"))
        elif event.get("name") == "process_labels":
            labels = _LABELS.fullmatch(text(arguments.get("labels")))
            if labels:  # an export of ncclscope's
                self._places[pid] = labels[1], int(labels[2])

    def operation(self, event: dict[str, Any]) -> Operation | None:
        """The operation that an event stands for, None for other events."""
        arguments = event.get("args")
        if not isinstance(arguments, dict) or len(arguments) > 1000:
            return None
        if "part_of" in arguments:  # of an AlltoAll that is there as a whole
            return None
        if event.get("cat") in _ON_THE_HOST:
            return None
        given = {_SIGNS.sub("", str(key).casefold()): value for key, value in arguments.items()}
        name = text(event.get("name"))
        by_kernel = kernel_function(name)
        if "collectivename" in given:
            function = torch_function_name(text(given["collectivename"]))
        elif by_kernel or (_TELLING & given.keys() and is_function(name)):
            function = by_kernel or function_name(name)
        else:
            return None
        ranks = max(number(_first(given, _RANKS), 1 << 20), 0)
        own_rank = number(_first(given, _RANK), 1 << 20)
        rank = own_rank if own_rank != NONE else self._rank if ranks == self._ranks else NONE
        start = nanoseconds(event.get("ts"), _US)
        if NONE < start < FIRST_WALL_NS and self._base_ns:
            start += self._base_ns
        values = _values(event, given, function, ranks, start)
        values["rank"] = rank
        return Operation(
            self._process(event, start < FIRST_WALL_NS), _communicator(given, ranks), values
        )

    def _process(self, event: dict[str, Any], own_clock: bool) -> ImportedProcess:
        pid = event.get("pid")
        named = self._names.get(str(pid)[:64], "")
        match = _RANK_IN_NAME.search(named)
        rank = self._rank if self._rank != NONE else int(match[1][:6]) if match else NONE
        # In traces of PyTorch's profiler, pids are also numbers of GPUs.
        own_pid = number(pid, (1 << 31) - 1) if self._rank == NONE else NONE
        host, own_pid = self._places.get(str(pid)[:64], (self._host, own_pid))
        return ImportedProcess(host, own_pid, self._file, rank, own_clock=own_clock)


def _first(given: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((given[name] for name in names if given.get(name) not in (None, "")), None)


def _communicator(given: dict[str, Any], ranks: int) -> ImportedCommunicator | None:
    key, name = _first(given, _COMMUNICATOR), _first(given, _NAME)
    if key is None and name is None:
        return None
    shown = text(name) or (text(key) if "processgroupname" in given else "")
    if shown == "undefined":
        shown = text(key)
    return ImportedCommunicator(f"{key}"[:200] + f" {ranks}", hash_of(key), shown, ranks)


def _values(
    event: dict[str, Any], given: dict[str, Any], function: str, ranks: int, start_ns: int
) -> dict[str, int | str]:
    datatype = text(_first(given, ("dtype", "datatype")))
    datatype = from_torch(datatype) or from_event_name(datatype) or datatype.casefold()
    duration = nanoseconds(event.get("dur"), _US)
    source = text(given.get("source"))
    state = text(given.get("state"))
    form = form_of(function)
    values: dict[str, int | str] = {
        "function": function,
        "form": form,
        "size_bytes": _size(given, function, datatype),
        "count": _count(given, function, ranks),
        "datatype": datatype,
        "algorithm": text(_first(given, ("algorithm", "algo"))).upper(),
        "protocol": text(_first(given, ("protocol", "proto"))).upper(),
        "channels": number(_first(given, ("channels", "nchannels"))),
        "root": number(given.get("root")),
        "peer": number(_first(given, ("peer", "dstrank" if form == "send" else "srcrank"))),
        "call_order": number(_first(given, _ORDER)),
        "sequence": number(_first(given, _SEQUENCE)),
        "stream": number(given.get("stream")),
        "replay": int(number(given.get("replay")) == 1),
        "inferred": int(number(given.get("inferred")) == 1),
        "start_ns": start_ns,
        "duration_ns": duration,
        "source": source if source in SOURCES else "none" if duration == NONE else "gpu",
        "reason": text(given.get("reason")) or (_NO_TIME if duration == NONE else ""),
        "state": state if state in STATES else "done",
    }
    if values["source"] == "none":  # an instant that marks a beginning
        values |= {"call_ns": start_ns, "start_ns": NONE, "duration_ns": NONE}
    return values


def _count(given: dict[str, Any], function: str, ranks: int) -> int:
    """Elements as a caller of NCCL gives them."""
    count = number(given.get("count"))
    if count != NONE:
        return count
    wide = function in FUNCTIONS and FUNCTIONS[function].wide_input
    count = number(given.get("inmsgnelems"))
    return count // ranks if wide and ranks > 0 and count > 0 else count


def _size(given: dict[str, Any], function: str, datatype: str) -> int:
    size = number(_first(given, _SIZE))
    bits = element_bits(datatype)
    if size != NONE or bits is None:
        return size
    elements_in, elements_out = (number(given.get(f"{way}msgnelems")) for way in ("in", "out"))
    most = max(elements_in, elements_out) if function in COUNTS_ONE_RANK else elements_in
    return -(-most * bits // 8) if NONE < most < 1 << 50 else NONE


FORMAT = Format(
    "chrome",
    "Chrome traces",
    (
        "a trace has what its writer put into it: lengths of operations without a source are taken "
        "for the GPU's",
        "times of different files have nothing in common unless they count from 1970",
    ),
    _matches,
    read,
    start_error_ns=10_000,
)
