"""An OTF2 archive, for Vampir and the other tools of Score-P.

A location group is a rank, a location is one communicator on it, a region is a function. OTF2 has
no records for NCCL, but its MPI records say the same: who took part in which collective, who sent
how much to whom. Regions of a location must nest; one that only overlaps gets a second location.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.errors import NcclscopeError
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_layers import drawn_times, selected_rows
from ncclscope.export.trace_model import OPEN, Rank, ranks_of
from ncclscope.export.trace_training import ranges_of_process
from ncclscope.humanize import printable
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import rows_of_table
from ncclscope.output_files import check_directory, writing_directory

ARCHIVE = "traces"
ROWS = 1 << 14  # converted at once
_CHUNK_BYTES = 1 << 18  # the smallest that OTF2 allows; each open location has one
_RESOLUTION = 10**9  # ticks a second
_NO_ROOT = 0xFFFFFFFF
# By function: OTF2's collective, role of the region, share of the bytes that a rank sends and
# receives: all, one rank's part, all on the root only, all on the others only.
ALL, PART, ROOT, OTHERS = range(4)
COLLECTIVES = {
    "AllReduce": ("ALLREDUCE", "COLL_ALL2ALL", ALL, ALL),
    "AllGather": ("ALLGATHER", "COLL_ALL2ALL", PART, ALL),
    "ReduceScatter": ("REDUCE_SCATTER", "COLL_ALL2ALL", ALL, PART),
    "AlltoAll": ("ALLTOALL", "COLL_ALL2ALL", ALL, ALL),
    "Broadcast": ("BCAST", "COLL_ONE2ALL", ROOT, OTHERS),
    "Scatter": ("SCATTER", "COLL_ONE2ALL", ROOT, PART),
    "Reduce": ("REDUCE", "COLL_ALL2ONE", ALL, ROOT),
    "Gather": ("GATHER", "COLL_ALL2ONE", PART, ROOT),
}
# Attributes of a region's enter record.
NUMBERS = ("size_bytes", "call_order", "channels", "wait_ns", "wire_ns", "operation")
WORDS = ("algorithm", "protocol", "datatype", "source", "state")
_COLUMNS = (
    "communicator", "rank", "function", "peer", "root", *NUMBERS[:-1], *WORDS
)  # fmt: skip


def load_library() -> Any:
    """The otf2 package. It is an extra, because on some machines pip must compile it."""
    try:
        return importlib.import_module("otf2")
    except ImportError:
        hint = "Install it with `pip install otf2`; without a wheel it needs gcc"
        raise NcclscopeError("cannot write OTF2: the package otf2 is not installed", hint) from None


def is_archive(path: Path) -> bool:
    """Whether a directory holds an archive and nothing else."""
    allowed = {f"{ARCHIVE}.otf2", f"{ARCHIVE}.def", ARCHIVE}
    return (path / f"{ARCHIVE}.otf2").is_file() and {e.name for e in path.iterdir()} <= allowed


def write_otf2(
    model: Model,
    selection: Selection,
    path: Path,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Writes the selected operations. Parts of others are not written: they lie within them."""
    library = load_library()
    check_directory(path, force, is_archive, "OTF2 archive")
    with writing_directory(path) as folder:
        trace = library.writer.Writer(
            str(folder), ARCHIVE, chunk_size_events=_CHUNK_BYTES, timer_resolution=_RESOLUTION
        )
        try:
            written = _write(library, trace, model, selection, progress)
            trace.close()
        except BaseException as error:
            trace._handle = None  # otherwise it tries to finish the archive, and fails again
            if type(error).__module__.startswith(("otf2", "_otf2")):
                raise NcclscopeError(f"cannot write {path}: {error}", "Is the disk full?") from None
            raise
    return written


def _write(
    library: Any, trace: Any, model: Model, selection: Selection, progress: Progress | None
) -> ExportResult:
    trace.creator = f"ncclscope {__version__}"
    written, ranks = ExportResult(0), ranks_of(model)
    archive, last_ns = _Archive(library, trace, model), _last_time(model)
    for rank in ranks:
        archive.define_rank(rank, selected_rows(model, selection, rank).whole)
    archive.define_communicators()
    for place, rank in enumerate(ranks):
        rows = selected_rows(model, selection, rank)
        written += ExportResult(len(rows.whole), rows.untimed)
        archive.write_rank(rank, rows.whole, last_ns)
        archive.write_ranges(rank, last_ns)
        if progress:
            progress(place + 1, len(ranks))
    archive.set_wall_clock()
    return written


def _last_time(model: Model) -> int:
    """The last known time: operations that have not ended are cut off there."""
    ops, last = model.tables["operations"], 0
    for name in ("end_ns", "start_ns", "launch_end_ns", "call_end_ns", "call_ns"):
        for first in range(0, rows_of_table(model, "operations"), 1 << 20):
            last = max(last, int(ops[name][first : first + (1 << 20)].max()))
    return last


@dataclass(slots=True)
class _EnteredRegion:
    """A region that was entered and not left."""

    end_ns: int
    region: Any
    at_end: list[tuple[str, tuple[Any, ...]]]  # records to write before it is left


@dataclass(slots=True)
class _Lane:
    """One location while it is written."""

    writer: Any
    location: Any
    stack: list[_EnteredRegion] = field(default_factory=list)

    def leave_until(self, time_ns: int) -> None:
        """Leaves all regions that end up to `time_ns`."""
        while self.stack and self.stack[-1].end_ns <= time_ns:
            entered = self.stack.pop()
            for record, arguments in entered.at_end:
                getattr(self.writer, record)(entered.end_ns, *arguments)
            self.writer.leave(entered.end_ns, entered.region)

    def can_nest(self, end_ns: int) -> bool:
        """Whether a region that ends at `end_ns` lies within the one that is open."""
        return not self.stack or end_ns <= self.stack[-1].end_ns


class _ClosedWriter:
    """Takes the place of a location's closed writer; without it the library opens another."""

    def close(self) -> None:
        """Does nothing."""


class _Archive:
    """Definitions and events of an archive. All ranks are defined before any is written."""

    def __init__(self, library: Any, trace: Any, model: Model) -> None:
        self._library, self._trace, self._model = library, trace, model
        self._definitions = definitions = trace.definitions
        nodes = definitions.system_tree_nodes
        root = nodes.create("job", "job")
        self._hosts = [nodes.create(printable(host), "host", root) for host in model.nodes]
        self._regions = {name: self._region(name) for name in [*model.words["function"], "?"]}
        kinds = library.Type
        self._attributes = {
            name: definitions.attribute(name, f"ncclscope: {name}", kind)
            for names, kind in ((NUMBERS, kinds.INT64), (WORDS, kinds.STRING))
            for name in names
        }
        self._groups: dict[int, Any] = {}  # of locations, by number of the rank
        self._locations: dict[tuple[int, int], Any] = {}  # by number of the rank, communicator
        self._members: dict[int, dict[int, Any]] = {}  # locations by communicator, rank in it
        self._places: dict[int, dict[int, int]] = {}  # in the group, by communicator, rank in it
        self._comms: dict[int, Any] = {}
        self._user_regions: dict[str, Any] = {}

    def _region(self, name: str) -> Any:
        roles, paradigm = self._library.RegionRole, self._library.Paradigm.CUDA
        role = COLLECTIVES[name][1] if name in COLLECTIVES else "POINT2POINT"
        return self._definitions.region(
            f"nccl{printable(name)}", source_file="NCCL", region_role=getattr(roles, role),
            paradigm=paradigm,
        )  # fmt: skip

    def define_rank(self, rank: Rank, rows: Any) -> None:
        """Defines a rank's location group, and a location for each of its communicators."""
        if not len(rows):
            return
        ops = self._model.tables["operations"]
        self._groups[rank.number] = self._definitions.location_groups.create(
            f"{rank.name} ({', '.join(rank.labels)})",
            location_group_type=self._library.LocationGroupType.PROCESS,
            system_tree_parent=self._hosts[self._model.processes[rank.process].node],
        )
        pairs = np.stack([ops["communicator"][rows], ops["rank"][rows]])
        for communicator, place in np.unique(pairs, axis=1).T.tolist():
            name = self._model.communicator_name(communicator)
            location = self._location(rank, name)
            self._locations[rank.number, communicator] = location
            self._members.setdefault(communicator, {})[place] = location

    def _location(self, rank: Rank, name: str) -> Any:
        return self._definitions.locations.create(
            printable(name), type=self._library.LocationType.ACCELERATOR_STREAM,
            group=self._groups[rank.number],
        )  # fmt: skip

    def define_communicators(self) -> None:
        """Defines communicators as groups of locations, and each rank's place in them."""
        library, groups = self._library, self._definitions.groups
        mpi = {"paradigm": library.Paradigm.MPI}
        members = {
            row: tuple(places[place] for place in sorted(places))
            for row, places in sorted(self._members.items())
        }
        locations = tuple(location for listed in members.values() for location in listed)
        groups.create("NCCL", library.GroupType.COMM_LOCATIONS, members=locations, **mpi)
        for row, listed in members.items():
            self._places[row] = {rank: at for at, rank in enumerate(sorted(self._members[row]))}
            name = printable(self._model.communicator_name(row))
            group = groups.create(name, library.GroupType.COMM_GROUP, members=listed, **mpi)
            self._comms[row] = self._definitions.comm(name, group)

    def write_rank(self, rank: Rank, rows: Any, last_ns: int) -> None:
        """Writes all operations of a rank."""
        start, end = drawn_times(self._model, rows)
        end = np.where(end == OPEN, np.maximum(start, last_ns), end)
        order = np.lexsort((-end, start))  # at equal starts the longest first
        lanes: dict[int, list[_Lane]] = {}
        for first in range(0, len(order), ROWS):
            some = order[first : first + ROWS]
            self._write_rows(rank, rows[some], start[some], end[some], lanes)
        for of_communicator in lanes.values():
            for lane in of_communicator:
                lane.leave_until(OPEN)
                self._close(lane)

    def write_ranges(self, rank: Rank, last_ns: int) -> None:
        """Writes the program's ranges as user regions: a location for each thread."""
        if not self._model.has_context or rank.number not in self._groups:
            return
        ranges = ranges_of_process(self._model, rank.process)
        if ranges is None:
            return
        end = np.where(ranges["end_ns"] == NONE, last_ns, ranges["end_ns"])
        end = np.maximum(end, ranges["start_ns"])
        order = np.lexsort((-end, ranges["start_ns"], ranges["thread"]))
        lanes: dict[int, list[_Lane]] = {}
        for row in order.tolist():
            thread, begin, until = (
                int(ranges["thread"][row]),
                int(ranges["start_ns"][row]),
                end[row],
            )
            some = lanes.setdefault(thread, [])
            lane = self._thread_lane(rank, some, thread, begin, int(until))
            region = self._user_region(str(ranges["text"][row]))
            lane.writer.enter(begin, region)
            lane.stack.append(_EnteredRegion(int(until), region, []))
        for of_thread in lanes.values():
            for lane in of_thread:
                lane.leave_until(OPEN)
                self._close(lane)

    def _thread_lane(
        self, rank: Rank, lanes: list[_Lane], thread: int, start: int, end: int
    ) -> _Lane:
        for lane in lanes:
            lane.leave_until(start)
            if lane.can_nest(end):
                return lane
        name = f"thread {thread}" + (f" ({len(lanes) + 1})" if lanes else "")
        location = self._definitions.locations.create(
            name, type=self._library.LocationType.CPU_THREAD, group=self._groups[rank.number]
        )
        lanes.append(_Lane(self._trace.event_writer_from_location(location), location))
        return lanes[-1]

    def _user_region(self, text: str) -> Any:
        """A region of the user's program."""
        name = printable(text)
        if name not in self._user_regions:
            self._user_regions[name] = self._definitions.region(
                name, source_file="ranges", region_role=self._library.RegionRole.CODE,
                paradigm=self._library.Paradigm.USER,
            )  # fmt: skip
        return self._user_regions[name]

    def _write_rows(
        self, rank: Rank, rows: Any, start: Any, end: Any, lanes: dict[int, list[_Lane]]
    ) -> None:
        ops = self._model.tables["operations"]
        columns = [np.asarray(ops[name][rows]).tolist() for name in _COLUMNS]
        times = zip(rows.tolist(), start.tolist(), end.tolist(), strict=True)
        for (row, begin, until), *values in zip(times, *columns, strict=True):
            op = dict(zip(_COLUMNS, values, strict=True)) | {"operation": row}
            some = lanes.setdefault(op["communicator"], [])
            self._enter(self._lane(rank, some, op["communicator"], begin, until), op, begin, until)

    def _lane(
        self, rank: Rank, lanes: list[_Lane], communicator: int, start: int, end: int
    ) -> _Lane:
        for lane in lanes:
            lane.leave_until(start)
            if lane.can_nest(end):
                return lane
        if lanes:
            name = f"{self._model.communicator_name(communicator)} ({len(lanes) + 1})"
            location = self._location(rank, name)
        else:
            location = self._locations[rank.number, communicator]
        lanes.append(_Lane(self._trace.event_writer_from_location(location), location))
        return lanes[-1]

    def _enter(self, lane: _Lane, op: dict[str, int], start: int, end: int) -> None:
        words = self._model.words
        function = words["function"][op["function"]] if op["function"] >= 0 else ""
        attributes: dict[Any, Any] = {
            self._attributes[name]: op[name] for name in NUMBERS if op[name] != NONE
        }
        attributes |= {
            self._attributes[name]: printable(words[name][op[name]])
            for name in WORDS
            if op[name] != NONE
        }
        region = self._regions[function or "?"]
        lane.writer.enter(start, region, attributes)
        comm, size = self._comms[op["communicator"]], max(op["size_bytes"], 0)
        peer = self._places[op["communicator"]].get(op["peer"])  # None: not in the archive
        at_end: list[tuple[str, tuple[Any, ...]]] = []
        if function in COLLECTIVES:
            lane.writer.mpi_collective_begin(start)
            at_end.append(("mpi_collective_end", self._collective(function, comm, op, size)))
        elif function == "Send" and peer is not None:
            lane.writer.mpi_send(start, peer, comm, 0, size)
        elif function == "Recv" and peer is not None:
            at_end.append(("mpi_recv", (peer, comm, 0, size)))
        lane.stack.append(_EnteredRegion(end, region, at_end))

    def _collective(self, function: str, comm: Any, op: dict[str, int], size: int) -> Any:
        kind, _, sent, received = COLLECTIVES[function]
        ranks = max(int(self._model.tables["communicators"]["ranks"][op["communicator"]]), 1)
        is_root = op["rank"] == op["root"]
        shares = {
            ALL: size,
            PART: size // ranks,
            ROOT: size * is_root,
            OTHERS: size * (not is_root),
        }
        place = self._places[op["communicator"]].get(op["root"], _NO_ROOT)
        root = place if ROOT in (sent, received) else _NO_ROOT
        collective = getattr(self._library.CollectiveOp, kind)
        return collective, comm, root, shares[sent], shares[received]

    def _close(self, lane: _Lane) -> None:
        """Closes a location's file; the library would keep all files and buffers to the end."""
        writers = getattr(self._trace, "_event_writers", {})
        if lane.location._ref in writers:
            lane.writer.close()
            writers[lane.location._ref] = _ClosedWriter()

    def set_wall_clock(self) -> None:
        """Sets the wall-clock time of the first event: the library would use the present."""
        first = getattr(self._trace, "_first_timestamp", None)
        if first is not None:
            self._trace._realtime_timestamp = (first + self._model.realtime_offset_ns) / 1e9
