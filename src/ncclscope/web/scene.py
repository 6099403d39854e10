"""A scene: everything that can be drawn at one moment, as a tree of lanes over rows of bars."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ncclscope.model.align.host_clocks import NodeClock
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.web.bars import Bars
from ncclscope.web.callback_rows import CHANNEL_KINDS, KINDS, PROXY_KINDS, Place
from ncclscope.web.counters import LineStyle, SampledDevice

OPERATION, PART, CHANNEL, COARSE, DROP = "operation", "part", "channel", "coarse", "Drop"
COUNTER = "counter"
# What a kind of row is called at its lane.
_TITLES = {
    OPERATION: "operations",
    PART: "sends and receives of it",
    CHANNEL: "kernel, by GPU stamps",
    COARSE: "sampled",
    DROP: "events dropped",
    "KernelCh": "KernelCh, as the host saw it",
    "Comm": "init and finalize",
}
_ORDER = {
    kind: place for place, kind in enumerate((COARSE, DROP, OPERATION, PART, CHANNEL, *KINDS))
}


@dataclass(frozen=True, slots=True)
class Shift:
    """A process's host clock on the scene's: by the model's clocks, else by the wall clock."""

    add_ns: int = 0
    clock: NodeClock | None = None

    def to_scene(self, local_ns: int) -> int:
        """A time of the host on the scene's clock."""
        if self.clock is None:
            return local_ns + self.add_ns
        return int(self.clock.to_reference(np.array([local_ns], np.int64))[0])

    def to_local(self, scene_ns: int) -> int:
        """The other way round."""
        if self.clock is None:
            return scene_ns - self.add_ns
        local = scene_ns
        for _ in range(3):  # offsets change by parts in a million: this is exact soon
            local += scene_ns - self.to_scene(local)
        return local


@dataclass(frozen=True, slots=True)
class Row:
    """Bars of one kind in one lane."""

    kind: str
    bars: Bars
    process: int
    shift: Shift | None  # None: its times are on the one clock already
    key: str  # stays the same from scene to scene
    drawn: LineStyle | None = None  # as a line

    def window(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """A stretch of the scene's time on the row's own clock."""
        if self.shift is None:
            return first_ns, last_ns
        return self.shift.to_local(first_ns), self.shift.to_local(last_ns)

    def moment(self, own_ns: int) -> int:
        """A time of the row on the scene's clock."""
        return own_ns if self.shift is None else self.shift.to_scene(own_ns)


@dataclass(slots=True)
class Lane:
    """A line of the page with a name, rows, and lanes below it."""

    key: str
    level: str  # host, rank, communicator, thread, channel, proxy, machine, device
    title: str
    note: str = ""
    state: str = ""  # why it looks different: killed …
    tracks: dict[str, list[int]] = field(default_factory=dict)  # numbers of rows by kind
    children: dict[str, "Lane"] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)  # rank, communicator: for filters
    drawn: list[LineStyle] = field(default_factory=list)  # of its rows of counters, in their order

    def child(self, name: str, level: str, title: str, note: str = "", **ids: Any) -> "Lane":
        """The lane of that name below this one."""
        if name not in self.children:
            key = f"{self.key}/{name}" if self.key else name
            self.children[name] = Lane(key, level, title, note, ids={**self.ids, **ids})
        return self.children[name]

    def as_json(self) -> dict[str, Any]:
        """For the page."""
        kinds = sorted(self.tracks, key=lambda kind: _ORDER.get(kind, len(_ORDER)))
        tracks: list[dict[str, Any]] = [
            {"kind": kind, "title": _TITLES.get(kind, kind), "rows": self.tracks[kind]}
            for kind in kinds
        ]
        for track in tracks:
            if track["kind"] == COUNTER:
                track["lines"] = [[one.title, one.unit] for one in self.drawn]
        return {
            "key": self.key,
            "level": self.level,
            "title": self.title,
            "note": self.note,
            "state": self.state,
            "ids": self.ids,
            "tracks": tracks,
            "children": [lane.as_json() for lane in self.children.values()],
        }


@dataclass(frozen=True, slots=True)
class Known:
    """Names of one process's lanes."""

    host: str
    node: str
    node_note: str
    folder: str
    pid: int
    gpu: str
    fate: str  # of one that did not end by itself, else ""
    rank: int  # NONE where nobody tells
    last_ns: int  # of its host
    threads: dict[str, str]
    communicators: dict[int, "KnownCommunicator"]  # by number in the process
    shift: Shift


@dataclass(frozen=True, slots=True)
class KnownCommunicator:
    """A communicator as one process's lanes name it."""

    row: int  # of the model; NONE before there is one
    name: str
    rank: int
    ranks: int
    global_rank: int


@dataclass(frozen=True, slots=True)
class Scene:
    """All rows, and the tree of lanes over them."""

    rows: list[Row]
    root: Lane
    first_ns: int
    last_ns: int
    model: Model | None
    known: list[Known]


class Composer:
    """Puts rows into lanes."""

    def __init__(self, known: list[Known], model: Model | None) -> None:
        self.known, self.model = known, model
        self.rows: list[Row] = []
        self.root = Lane("", "root", "")
        self._ranks: dict[tuple[int, int], Lane] = {}
        nodes = {one.node: number for number, one in reversed(list(enumerate(known)))}
        order = sorted(range(len(known)), key=lambda n: (nodes[known[n].node], known[n].rank, n))
        for process in order:
            self._add_process(process)

    def _add_process(self, process: int) -> None:
        one = self.known[process]
        host = self.root.child(one.node, "host", one.host, one.node_note)
        told = sorted(one.communicators.values(), key=lambda comm: (comm.global_rank, comm.row))
        ranks = {comm.global_rank for comm in told} or {one.rank}
        for rank in sorted(ranks):
            title = f"rank {rank}" if rank != NONE else one.folder
            note = f"pid {one.pid}" + (f" · {one.gpu}" if one.gpu else "")
            lane = host.child(f"p{process}.{rank}", "rank", title, note, rank=rank, process=process)
            lane.state = one.fate
            self._ranks[process, rank] = lane
        for comm in told:
            self._communicator(process, comm)

    def _communicator(self, process: int, comm: KnownCommunicator | None) -> Lane:
        """The lane of a communicator on one rank; None: events that say no communicator."""
        self.known[process]
        if comm is None:
            lane = self._ranks[process, min(rank for p, rank in self._ranks if p == process)]
            return lane.child("other", "communicator", "no communicator", "or another process's")
        lane = self._ranks[process, comm.global_rank]
        note = f"rank {comm.rank} of {comm.ranks}" if comm.ranks > 0 else ""
        name = f"c{comm.row}" if comm.row != NONE else f"n{comm.name}"
        return lane.child(name, "communicator", comm.name, note, communicator=comm.row)

    def add(self, lane: Lane, kind: str, process: int, bars: Bars, shift: Shift | None) -> None:
        """One more row of a lane."""
        if not len(bars):
            return
        numbers = lane.tracks.setdefault(kind, [])
        key = f"{lane.key}/{kind}/{len(numbers)}"
        numbers.append(len(self.rows))
        self.rows.append(Row(kind, bars, process, shift, key))

    def add_model_rows(self, process: int, rows: Iterable[tuple[Place, Bars]]) -> None:
        """Rows of operations and of channels by the GPU's stamps; their communicators are the
        model's, their threads the ranks in them.
        """
        for place, bars in rows:
            lane = self._of_row(process, place.communicator, place.thread)
            if place.kind == CHANNEL:
                lane = lane.child(
                    f"ch{place.channel}", "channel", f"channel {place.channel}", "GPU"
                )
            self.add(lane, place.kind, process, bars, None)

    def _of_row(self, process: int, communicator: int, rank: int) -> Lane:
        found = [c for c in self.known[process].communicators.values() if c.row == communicator]
        comm = next((one for one in found if one.rank == rank), found[0] if found else None)
        return self._communicator(process, comm)

    def add_events(self, process: int, rows: Iterable[tuple[Place, Bars]]) -> None:
        """Rows of callbacks."""
        one = self.known[process]
        for place, bars in rows:
            if place.kind == DROP:
                lane = next(lane for (p, _), lane in self._ranks.items() if p == process)
            else:
                comm = one.communicators.get(place.communicator)
                lane = self._place(one, self._communicator(process, comm), place)
            self.add(lane, place.kind, process, bars, one.shift)

    def _place(self, one: Known, lane: Lane, place: Place) -> Lane:
        """The lane of a row below its communicator's."""
        if place.kind == "Comm":
            return lane
        if place.kind in CHANNEL_KINDS:
            return _channel(lane, place)
        name = one.threads.get(str(place.thread), "")
        lane = lane.child(f"t{place.thread}", "thread", f"thread {place.thread}", name)
        if place.kind not in PROXY_KINDS:
            return lane
        way = {1: "send", 0: "recv"}.get(place.sends, "network")
        channel = f"channel {place.channel}" if place.channel != NONE else "op not on record"
        return lane.child(f"{way}{place.channel}", "proxy", f"{way}, {channel}", "proxy")

    def add_coarse(self, process: int, bars: Bars) -> None:
        """What sampling a process's file showed."""
        lane = next(lane for (p, _), lane in self._ranks.items() if p == process)
        self.add(lane, COARSE, process, bars, self.known[process].shift)

    def add_counters(self, devices: Iterable[SampledDevice]) -> None:
        """What was sampled of the hosts, in a lane of each; on the one clock."""
        for device in devices:
            host = self.root.children.get(f"h{device.node}")
            if host is None:
                continue
            machine = host.child("machine", "machine", "machine", "GPUs, network, host")
            lane = machine.child(device.key, "device", device.title, device.note)
            for drawn, bars in device.rows:
                lane.drawn.append(drawn)
                self.add(lane, COUNTER, NONE, bars, None)
                self.rows[-1] = replace(self.rows[-1], drawn=drawn)

    def scene(self) -> Scene:
        """What was put together."""
        first, last = [], []
        for row in self.rows:
            if row.kind == COUNTER:  # samplers begin before the job and end after it
                continue
            first.append(row.moment(int(row.bars.start_ns[0])))
            last.append(row.moment(int(row.bars.end_ns[-1])))
        return Scene(
            self.rows,
            self.root,
            min(first, default=0),
            max(last, default=1),
            self.model,
            self.known,
        )


def _channel(lane: Lane, place: Place) -> Lane:
    """The lane of a GPU channel below its communicator's."""
    return lane.child(f"ch{place.channel}", "channel", f"channel {place.channel}", "GPU")
