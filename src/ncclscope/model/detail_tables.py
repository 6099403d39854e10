"""Tables that are made on demand from the capture's events: channels, launches, proxy ops and
steps. Process by process, on the one clock.
"""

import json
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.joins import positions_of, take
from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.columns import (
    START_NS,
    STOP_NS,
    HeadFilter,
    elapsed_column,
    flag_column,
    key,
    number,
    time,
)
from ncclscope.capture.process import Process, open_process
from ncclscope.errors import FormatError
from ncclscope.humanize import printable
from ncclscope.model.detail_schema import DETAILS
from ncclscope.model.model import Model, Progress, process_rows
from ncclscope.model.process.calls import Calls, calls_of, link, rows_of
from ncclscope.model.process.channels import on_host_clock
from ncclscope.model.process.communicators import LocalCommunicators, local_communicators
from ncclscope.model.process.events import ProcessEvents, events_of
from ncclscope.model.process.inferred_collectives import has_parts
from ncclscope.model.process.operations import KINDS, operations_of
from ncclscope.model.process.range_meaning import SOURCE_NAMES
from ncclscope.model.process.ranges import Ranges, payloads_of_ranges, ranges_of
from ncclscope.model.process.works import LAUNCHED, Works, launches_of, works_of
from ncclscope.model.schema import NONE, RECV, SEND, Columns
from ncclscope.model.store.decoded_files import log_is_incomplete, read_details
from ncclscope.model.vocabulary import Vocabulary
from ncclscope.nccl.events import FIRST_WITH_STAMPS, RECV_STEP_STATES, SEND_STEP_STATES

# Columns of proxy steps by state: those of sends, those of receives.
_SEND_STATES = dict(
    zip(SEND_STEP_STATES, ("gpu_since_ns", "peer_since_ns", "network_since_ns"), strict=True)
)
_RECV_STATES = dict(
    zip(RECV_STEP_STATES, ("network_since_ns", "flush_since_ns", "gpu_since_ns"), strict=True)
)
_RECEIVES = HeadFilter(states=layout.STATE_RECV)


def details_of(model: Model, table: str, progress: Progress | None = None) -> Iterator[Columns]:
    """The table's columns, one process after the other."""
    for row in range(len(model.processes)):
        if progress:
            progress(row, len(model.processes))
        columns = details_of_process(model, table, row)
        if columns is not None:
            yield columns


def details_of_process(model: Model, table: str, row: int) -> Columns | None:
    """The table's columns of one process; None where its files can no longer be read."""
    folder = model.path / model.processes[row].folder
    try:
        if log_is_incomplete(folder):
            return _placed(model, row, read_details(folder, table), table)
        process = open_process(folder)
    except (FormatError, OSError):  # it could be read when the model was made
        return None
    return _placed(model, row, own_details(process, table), table)


def own_details(process: Process, table: str) -> Columns:
    """A table's columns of one process in its own numbers: operations by the keys of their main
    events, communicators by NCCL's hashes, times on its host's clock.
    """
    return _MAKERS[table](process, Vocabulary())


def _placed(model: Model, number: int, columns: Columns, table: str) -> Columns:
    """The columns with rows of the model's tables, and times of the one clock."""
    columns["process"] = np.full(len(columns["start_ns"]), number, np.int64)
    if "operation" in columns:
        columns["operation"] = _rows_of_operations(model, number, columns["operation"])
    if "communicator" in columns:
        columns["communicator"] = _rows_of_communicators(model, columns["communicator"])
    node = model.processes[number].node
    for name, values in columns.items():
        if name.endswith("_ns") and model.clocks:
            moved = model.clocks[node].to_reference(values)
            columns[name] = np.where(values != NONE, moved, NONE)
    rows = len(columns["process"])
    for column in DETAILS[table]:  # decoded files of older releases have fewer columns
        if column.name not in columns:
            columns[column.name] = np.full(rows, None if column.dtype == "text" else NONE, "O")
    return {
        column.name: columns[column.name].astype("O" if column.dtype == "text" else column.dtype)
        for column in DETAILS[table]
    }


def _rows_of_operations(model: Model, process: int, events: Ints) -> Ints:
    """Rows of a process's operations by their main events."""
    operations = model.tables["operations"]
    first, last = process_rows(operations, process)
    own = first + np.flatnonzero(~has_parts(operations, slice(first, last)))
    own = own[np.argsort(operations["event"][own], kind="stable")]
    return take(own, positions_of(np.asarray(operations["event"][own]), events))


def _rows_of_communicators(model: Model, ids: Ints) -> Ints:
    """Rows of communicators by NCCL's hash; NONE for 0, which is no hash."""
    known = np.asarray(model.tables["communicators"]["id"])
    order = np.argsort(known, kind="stable")
    return take(order, np.where(ids != 0, positions_of(known[order], ids), NONE))


def _channels(process: Process, words: Vocabulary) -> Columns:
    made = operations_of(process, words)
    channels = made.channels.channels
    start_ns, end_ns = on_host_clock(channels, made.clocks)
    return {
        "operation": take(made.columns["event"], made.channels.row),
        "channel": channels.channel,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "seen_start_ns": channels.seen_start_ns,
        "seen_end_ns": channels.seen_end_ns,
        "stamp": channels.stamp,
    }


def _launches(process: Process, words: Vocabulary) -> Columns:
    decoded = events_of(process, KINDS)
    works, calls = works_of(decoded, words), calls_of(decoded, words)
    launches, local = decoded["KernelLaunch"], local_communicators(process, works)
    columns = launches.read(stream=number("stream"), **LAUNCHED)
    of_work = launches_of(decoded, columns, works, link(calls, works).group_call)
    return columns | {
        "communicator": _ids(local, columns["comm"]),
        "thread": launches.thread,
        "operations": np.bincount(of_work[of_work != NONE], minlength=len(launches)),
        "event": launches.keys,
    }


def _ids(local: LocalCommunicators, numbers: Ints) -> Ints:
    """NCCL's hashes of communicators by their numbers in the process; 0 where there is none."""
    return local.id[np.minimum(numbers, len(local.id) - 1)]


def _events_of_works(calls: Calls, works: Works) -> Ints:
    """Main events of the works' operations."""
    rows = rows_of(calls, link(calls, works))
    event = rows.column((calls.keys, rows.called), (works.keys, rows.work))
    out = np.full(len(works), NONE, np.int64)
    known = rows.work != NONE
    out[rows.work[known]] = event[known]
    return out


def _operations_of_proxy_ops(decoded: ProcessEvents, works: Works, words: Vocabulary) -> Ints:
    """Main events of the operations that proxy ops work for."""
    work = positions_of(works.keys, decoded["ProxyOp"].one(key("parent")))
    return take(_events_of_works(calls_of(decoded, words), works), work)


def _proxy_ops(process: Process, words: Vocabulary) -> Columns:
    decoded = events_of(process, KINDS)
    works = works_of(decoded, words)
    events, local = decoded["ProxyOp"], local_communicators(process, works)
    columns = events.read(
        rank=number("rank"),
        peer=number("peer"),
        channel=number("chan"),
        steps=number("steps"),
        chunk_bytes=number("chunk_size"),
        pid=number("pid"),
        start_ns=START_NS,
        in_progress_ns=time("t_in_progress", HeadFilter(states=layout.STATE_FIRST)),
        end_ns=STOP_NS,
        comm=number("comm"),
        ctx_nonce=number("ctx_nonce"),
        is_send=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
    )
    comm = columns.pop("comm")
    own = columns.pop("ctx_nonce") == process.header.nonce  # not another process's (PXN)
    return columns | {
        "operation": _operations_of_proxy_ops(decoded, works, words),
        "communicator": np.where(own, _ids(local, comm), 0),
        "form": np.where(columns.pop("is_send"), SEND, RECV),
        "thread": events.thread,
        "event": events.keys,
    }


def _proxy_steps(process: Process, words: Vocabulary) -> Columns:
    decoded = events_of(process, (*KINDS, "ProxyStep", "State"))
    steps, ops = decoded["ProxyStep"], decoded["ProxyOp"]
    columns = steps.read(
        proxy_op=key("parent"),
        step=number("step"),
        start_ns=START_NS,
        end_ns=STOP_NS,
        receives=flag_column(_RECEIVES),
    )
    of_op = ops.read(
        is_send=flag_column(HeadFilter(flags=layout.FLAG_SEND)),
        channel=number("chan"),
        peer=number("peer"),
    )
    op = ops.find(columns["proxy_op"])
    operation = _operations_of_proxy_ops(decoded, works_of(decoded, words), words)
    sends = take(of_op["is_send"].astype(np.int64), op)
    by_state = np.where(columns.pop("receives"), 0, 1)
    return {
        **columns,
        "operation": take(operation, op),
        "form": np.where(np.where(sends != NONE, sends, by_state) != 0, SEND, RECV),
        "channel": take(of_op["channel"], op),
        "peer": take(of_op["peer"], op),
        **_waits(decoded),
    }


def _waits(decoded: ProcessEvents) -> Columns:
    """When each step began to wait for what, and how many bytes it moved."""
    steps = decoded["ProxyStep"]
    out = {name: np.full(len(steps), NONE, np.int64) for name in _SEND_STATES.values()}
    out |= {name: np.full(len(steps), NONE, np.int64) for name in _RECV_STATES.values()}
    moved = np.zeros(len(steps), np.int64)
    for receives, states in ((False, _SEND_STATES), (True, _RECV_STATES)):
        for place, (bit, name) in enumerate(zip(layout.STATE_BITS, states.values(), strict=True)):
            receiving = layout.STATE_RECV
            head = (
                HeadFilter(states=bit | receiving)
                if receives
                else HeadFilter(states=bit, not_states=receiving)
            )
            waited = steps.read(
                since=elapsed_column("dt", place, head), size=number("size", "i8", head, place)
            )
            out[name] = np.where(waited["since"] != NONE, waited["since"], out[name])
            moved = np.maximum(moved, waited["size"])
    _add_appended(decoded, out, moved)
    has_sizes = any(c.version >= FIRST_WITH_STAMPS for c in decoded.process.communicators)
    out["size_bytes"] = moved if has_sizes else np.full(len(steps), NONE, np.int64)
    return out


def _add_appended(decoded: ProcessEvents, out: Columns, moved: Ints) -> None:
    """Adds states that have slots of their own, because they came late or from another thread."""
    appended = decoded["State"]
    state_of = appended.read(
        parent=key("parent"), state=number("state"), arg=number("arg"), start_ns=START_NS
    )
    place = decoded["ProxyStep"].find(state_of["parent"])
    for state, name in (_SEND_STATES | _RECV_STATES).items():
        rows = np.flatnonzero((place != NONE) & (state_of["state"] == state))
        # The first counts: of several assignments to one place the last one holds.
        rows = rows[np.argsort(state_of["start_ns"][rows], kind="stable")][::-1]
        rows = rows[out[name][place[rows]] == NONE]
        out[name][place[rows]] = state_of["start_ns"][rows]
        np.maximum.at(moved, place[rows], state_of["arg"][rows])


def _ranges(process: Process, words: Vocabulary) -> Columns:
    ranges = ranges_of(events_of(process, ("Range",)))
    if ranges is None:
        return {
            column.name: np.empty(0, "O" if column.dtype == "text" else np.int64)
            for column in DETAILS["ranges"]
        }
    depth = np.zeros(len(ranges), np.int64)
    for number_, level in enumerate(ranges.levels()):
        depth[level] = number_
    sources = {code: SOURCE_NAMES.get(code) for code in np.unique(ranges.source).tolist()}
    return {
        "thread": ranges.thread,
        "source": np.array([sources[code] for code in ranges.source.tolist()], "O"),
        "domain": np.array(
            [ranges.domains.get(code) or None for code in ranges.domain.tolist()], "O"
        ),
        "text": np.array([ranges.texts[place] for place in ranges.text.tolist()], "O"),
        "category": _categories(process, ranges),
        "depth": depth,
        "start_ns": ranges.start_ns,
        "end_ns": ranges.end_ns,
        "is_mark": ranges.is_mark.astype(np.int64),
        "payload": np.where(ranges.payload_type == layout.PAYLOAD_NONE, NONE, ranges.payload),
        "fields": _fields(process, ranges),
        "event": ranges.keys,
    }


def _categories(process: Process, ranges: Ranges) -> npt.NDArray[np.object_]:
    """The name of each range's category, its number where it has no name, None for 0."""
    out = np.full(len(ranges), None, "O")
    for row in np.flatnonzero(ranges.category).tolist():
        number_ = int(ranges.category[row])
        name = process.range_categories.get((int(ranges.domain[row]), number_))
        out[row] = printable(name) if name else str(number_)
    return out


def _fields(process: Process, ranges: Ranges) -> npt.NDArray[np.object_]:
    """The payload of each range by its schema as JSON; None without one."""
    out = np.full(len(ranges), None, "O")
    for row, fields in payloads_of_ranges(process, ranges).items():
        out[row] = json.dumps({printable(name): value for name, value in fields.items()})
    return out


_MAKERS: dict[str, Callable[[Process, Vocabulary], Columns]] = {
    "channels": _channels,
    "launches": _launches,
    "proxy_ops": _proxy_ops,
    "proxy_steps": _proxy_steps,
    "ranges": _ranges,
}
