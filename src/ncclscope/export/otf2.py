"""An OTF2 archive: what Score-P's tools, Vampir among them, read.

A location group is a rank, a location one communicator on it, a region a function. OTF2 has no
records of NCCL's own; its MPI records say the same: who took part in which collective, who sent how
much to whom. Regions nest; what overlaps without nesting gets a second location.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope._version import __version__
from ncclscope.analysis.selection import Selection
from ncclscope.errors import NcclscopeError
from ncclscope.export.atomic_files import check_directory, writing_directory
from ncclscope.export.trace_layers import chosen_rows, span
from ncclscope.export.trace_model import OPEN, Rank, ranks_of
from ncclscope.export.written import Written
from ncclscope.humanize import printable
from ncclscope.model.model import Model, Progress
from ncclscope.model.schema import NONE
from ncclscope.model.sql_views import rows_of_table

ARCHIVE = "traces"
ROWS = 1 << 14  # of a piece
_CHUNK_BYTES = 1 << 18  # the least that OTF2 allows; each open location has one
_RESOLUTION = 10**9  # ticks a second
_NO_ROOT = 0xFFFFFFFF
# By function: OTF2's collective, role of the region, shares of the whole that a rank sends and
# receives: all of it, one rank's part, or all of it on the root only.
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
# Attributes of a region's beginning: column -> OTF2's type.
NUMBERS = ("size_bytes", "call_order", "channels", "wait_ns", "wire_ns", "operation")
WORDS = ("algorithm", "protocol", "datatype", "source", "state")
_COLUMNS = (
    "communicator", "rank", "function", "peer", "root", *NUMBERS[:-1], *WORDS
)  # fmt: skip


def load_library() -> Any:
    """The otf2 package; it is an extra, because of where it has no wheels it is compiled."""
    try:
        return importlib.import_module("otf2")
    except ImportError:
        hint = "Install it with `pip install otf2`; without a wheel it needs gcc"
        raise NcclscopeError("cannot write OTF2: the package otf2 is not installed", hint) from None


def is_archive(path: Path) -> bool:
    """Whether a directory is one that we wrote, or another tool did in the same way."""
    allowed = {f"{ARCHIVE}.otf2", f"{ARCHIVE}.def", ARCHIVE}
    return (path / f"{ARCHIVE}.otf2").is_file() and {e.name for e in path.iterdir()} <= allowed


def write_otf2(
    model: Model,
    chosen: Selection,
    path: Path,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Writes the chosen operations; sends and receives that make up another one are within it."""
    library = load_library()
    check_directory(path, force, is_archive, "OTF2 archive")
    with writing_directory(path) as folder:
        trace = library.writer.Writer(
            str(folder), ARCHIVE, chunk_size_events=_CHUNK_BYTES, timer_resolution=_RESOLUTION
        )
        try:
            written = _write(library, trace, model, chosen, progress)
            trace.close()
        except BaseException as error:
            trace._handle = None  # it would try to finish what cannot be finished
            if type(error).__module__.startswith(("otf2", "_otf2")):
                raise NcclscopeError(f"cannot write {path}: {error}", "Is the disk full?") from None
            raise
    return written


def _write(
    library: Any, trace: Any, model: Model, chosen: Selection, progress: Progress | None
) -> Written:
    trace.creator = f"ncclscope {__version__}"
    written, ranks = Written(0), ranks_of(model)
    archive, last_ns = _Archive(library, trace, model), _last_time(model)
    for rank in ranks:
        archive.define_rank(rank, chosen_rows(model, chosen, rank).whole)
    archive.define_communicators()
    for place, rank in enumerate(ranks):
        rows = chosen_rows(model, chosen, rank)
        written = written.plus(Written(len(rows.whole), rows.timeless))
        archive.write_rank(rank, rows.whole, last_ns)
        if progress:
            progress(place + 1, len(ranks))
    archive.set_wall_clock()
    return written


def _last_time(model: Model) -> int:
    """Where operations that have not ended are cut off."""
    ops, last = model.tables["operations"], 0
    for name in ("end_ns", "start_ns", "launch_end_ns", "call_end_ns", "call_ns"):
        for first in range(0, rows_of_table(model, "operations"), 1 << 20):
            last = max(last, int(ops[name][first : first + (1 << 20)].max()))
    return last


@dataclass(slots=True)
class _Open:
    """A region that has been entered."""

    end_ns: int
    region: Any
    at_end: list[tuple[str, tuple[Any, ...]]]  # records before it is left


@dataclass(slots=True)
class _Lane:
    """One location while it is written."""

    writer: Any
    location: Any
    stack: list[_Open] = field(default_factory=list)

    def leave_until(self, time_ns: int) -> None:
        """Leaves regions that end by then."""
        while self.stack and self.stack[-1].end_ns <= time_ns:
            left = self.stack.pop()
            for record, arguments in left.at_end:
                getattr(self.writer, record)(left.end_ns, *arguments)
            self.writer.leave(left.end_ns, left.region)

    def has_room(self, end_ns: int) -> bool:
        """Whether a region up to then lies within the one that is open."""
        return not self.stack or end_ns <= self.stack[-1].end_ns


class _Closed:
    """What stands for a location's writer that is closed; without, the library opens another."""

    def close(self) -> None:
        """It is."""


class _Archive:
    """Definitions and events of an archive. First all ranks are defined, then written."""

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

    def _region(self, name: str) -> Any:
        roles, paradigm = self._library.RegionRole, self._library.Paradigm.CUDA
        role = COLLECTIVES[name][1] if name in COLLECTIVES else "POINT2POINT"
        return self._definitions.region(
            f"nccl{printable(name)}", source_file="NCCL", region_role=getattr(roles, role),
            paradigm=paradigm,
        )  # fmt: skip

    def define_rank(self, rank: Rank, rows: Any) -> None:
        """A rank's group of locations, and a location for each of its communicators."""
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
            name = self._model.communicator_names[communicator]
            location = self._location(rank, name)
            self._locations[rank.number, communicator] = location
            self._members.setdefault(communicator, {})[place] = location

    def _location(self, rank: Rank, name: str) -> Any:
        return self._definitions.locations.create(
            printable(name), type=self._library.LocationType.ACCELERATOR_STREAM,
            group=self._groups[rank.number],
        )  # fmt: skip

    def define_communicators(self) -> None:
        """Communicators as groups of the locations that there are, and each rank's place in it."""
        library, groups = self._library, self._definitions.groups
        how = {"paradigm": library.Paradigm.MPI}
        members = {
            row: tuple(places[place] for place in sorted(places))
            for row, places in sorted(self._members.items())
        }
        located = tuple(location for some in members.values() for location in some)
        groups.create("NCCL", library.GroupType.COMM_LOCATIONS, members=located, **how)
        for row, some in members.items():
            self._places[row] = {rank: at for at, rank in enumerate(sorted(self._members[row]))}
            name = printable(self._model.communicator_names[row])
            group = groups.create(name, library.GroupType.COMM_GROUP, members=some, **how)
            self._comms[row] = self._definitions.comm(name, group)

    def write_rank(self, rank: Rank, rows: Any, last_ns: int) -> None:
        """All operations of a rank."""
        start, end = span(self._model, rows)
        end = np.where(end == OPEN, np.maximum(start, last_ns), end)
        order = np.lexsort((-end, start))  # of those that begin together, the longest first
        lanes: dict[int, list[_Lane]] = {}
        for first in range(0, len(order), ROWS):
            some = order[first : first + ROWS]
            self._write_piece(rank, rows[some], start[some], end[some], lanes)
        for opened in lanes.values():
            for lane in opened:
                lane.leave_until(OPEN)
                self._close(lane)

    def _write_piece(
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
            if lane.has_room(end):
                return lane
        if lanes:
            name = f"{self._model.communicator_names[communicator]} ({len(lanes) + 1})"
            location = self._location(rank, name)
        else:
            location = self._locations[rank.number, communicator]
        lanes.append(_Lane(self._trace.event_writer_from_location(location), location))
        return lanes[-1]

    def _enter(self, lane: _Lane, op: dict[str, int], start: int, end: int) -> None:
        words = self._model.words
        function = words["function"][op["function"]] if op["function"] >= 0 else ""
        said: dict[Any, Any] = {
            self._attributes[name]: op[name] for name in NUMBERS if op[name] != NONE
        }
        said |= {
            self._attributes[name]: printable(words[name][op[name]])
            for name in WORDS
            if op[name] != NONE
        }
        region = self._regions[function or "?"]
        lane.writer.enter(start, region, said)
        comm, size = self._comms[op["communicator"]], max(op["size_bytes"], 0)
        peer = self._places[op["communicator"]].get(op["peer"])  # None: it is not in the archive
        at_end: list[tuple[str, tuple[Any, ...]]] = []
        if function in COLLECTIVES:
            lane.writer.mpi_collective_begin(start)
            at_end.append(("mpi_collective_end", self._collective(function, comm, op, size)))
        elif function == "Send" and peer is not None:
            lane.writer.mpi_send(start, peer, comm, 0, size)
        elif function == "Recv" and peer is not None:
            at_end.append(("mpi_recv", (peer, comm, 0, size)))
        lane.stack.append(_Open(end, region, at_end))

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
        """The library keeps every location's file and buffer open to the end: hundreds of them."""
        writers = getattr(self._trace, "_event_writers", {})
        if lane.location._ref in writers:
            lane.writer.close()
            writers[lane.location._ref] = _Closed()

    def set_wall_clock(self) -> None:
        """The library would take the time of writing for the time of the first event."""
        first = getattr(self._trace, "_first_timestamp", None)
        if first is not None:
            self._trace._realtime_timestamp = (first + self._model.realtime_offset_ns) / 1e9
