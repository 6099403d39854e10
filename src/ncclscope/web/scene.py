"""A scene: everything that the page can draw, as a tree of lanes with rows of bars."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.model.model import Model
from ncclscope.model.node_clock import NodeClock
from ncclscope.model.schema import NONE
from ncclscope.web.bars import Bars
from ncclscope.web.callback_rows import LaneKey
from ncclscope.web.counters import LineStyle, SampledDevice
from ncclscope.web.kinds import (
    CHANNEL,
    CHANNEL_KINDS,
    COMMUNICATOR,
    COUNTER,
    DROP,
    LANE_ORDER,
    PATH,
    PREVIEW,
    PROXY_KINDS,
    TITLES,
)


@dataclass(frozen=True, slots=True)
class SceneClock:
    """Converts times of a process's host to the scene's clock and back."""

    add_ns: int = 0  # where there is no model: the difference of the wall clocks
    clock: NodeClock | None = None

    def to_scene(self, local_ns: int) -> int:
        """A time of the host on the scene's clock."""
        if self.clock is None:
            return local_ns + self.add_ns
        return int(self.times_on_scene(np.array([local_ns], np.int64))[0])

    def times_on_scene(self, local_ns: Ints) -> Ints:
        """Times of the host on the scene's clock: of many, in one conversion."""
        return local_ns + self.add_ns if self.clock is None else self.clock.to_reference(local_ns)

    def to_local(self, scene_ns: int) -> int:
        """A time on the scene's clock on the host's."""
        if self.clock is None:
            return scene_ns - self.add_ns
        return int(self.times_on_host(np.array([scene_ns], np.int64))[0])

    def times_on_host(self, scene_ns: Ints) -> Ints:
        """Times on the scene's clock on the host's: of many."""
        if self.clock is None:
            return scene_ns - self.add_ns
        local = scene_ns
        for _ in range(3):  # offsets change by parts in a million, so this converges
            local = local + (scene_ns - self.clock.to_reference(local))
        return local


@dataclass(frozen=True, slots=True)
class Row:
    """Bars of one kind in one lane."""

    kind: str
    bars: Bars
    process: int
    clock: SceneClock | None  # None: its times are on the scene's clock
    key: str  # stays the same from scene to scene
    line_style: LineStyle | None = None  # of counters: they are drawn as a line

    def window(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """Two times of the scene on the row's own clock."""
        if self.clock is None:
            return first_ns, last_ns
        return self.clock.to_local(first_ns), self.clock.to_local(last_ns)

    def to_scene(self, own_ns: int) -> int:
        """A time of the row on the scene's clock."""
        return own_ns if self.clock is None else self.clock.to_scene(own_ns)

    def times_on_scene(self, own_ns: Ints) -> Ints:
        """Times of the row on the scene's clock: of many."""
        return own_ns if self.clock is None else self.clock.times_on_scene(own_ns)


@dataclass(slots=True)
class Lane:
    """A part of the page with a name, rows of bars, and lanes below it."""

    key: str
    level: str  # path, host, rank, communicator, thread, channel, proxy, machine, device
    title: str
    note: str = ""
    state: str = ""  # of a rank: killed …
    tracks: dict[str, list[int]] = field(default_factory=dict)  # numbers of rows by kind
    children: dict[str, "Lane"] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)  # rank, communicator: for filters
    line_styles: list[LineStyle] = field(default_factory=list)  # of its rows of counters

    def child(self, name: str, level: str, title: str, note: str = "", **ids: Any) -> "Lane":
        """The lane of that name below this one; a new one if there is none."""
        if name not in self.children:
            key = f"{self.key}/{name}" if self.key else name
            self.children[name] = Lane(key, level, title, note, ids={**self.ids, **ids})
        return self.children[name]

    def as_json(self) -> dict[str, Any]:
        """The lane and those below it, for the page."""
        kinds = sorted(self.tracks, key=lambda kind: LANE_ORDER.get(kind, len(LANE_ORDER)))
        tracks: list[dict[str, Any]] = [
            {"kind": kind, "title": TITLES.get(kind, kind), "rows": self.tracks[kind]}
            for kind in kinds
        ]
        for track in tracks:
            if track["kind"] == COUNTER:
                track["lines"] = [[style.title, style.unit] for style in self.line_styles]
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
class CommunicatorLabel:
    """A communicator as the lanes of one process name it."""

    row: int  # of the model; NONE before there is one
    name: str
    rank: int
    ranks: int
    global_rank: int


@dataclass(frozen=True, slots=True)
class ProcessLabels:
    """Names for the lanes of one process."""

    host: str
    node: str
    node_note: str
    folder: str
    pid: int
    gpu: str
    fate: str  # of a process that did not end by itself, else ""
    rank: int  # NONE where it is not known
    last_ns: int  # on its host's clock
    threads: dict[str, str]
    communicators: dict[int, CommunicatorLabel]  # by number in the process
    clock: SceneClock


@dataclass(frozen=True, slots=True)
class Scene:
    """All rows, and the tree of lanes that holds them."""

    rows: list[Row]
    root: Lane
    first_ns: int
    last_ns: int
    model: Model | None
    processes: list[ProcessLabels]


def _natural(name: str) -> list[tuple[str, int, str]]:
    """A key that sorts node2 before node10."""
    parts = re.findall(r"([^0-9]*)([0-9]*)", name)
    numbers = ((text, digits.lstrip("0")) for text, digits in parts)
    return [(text, len(digits), digits) for text, digits in numbers]


class SceneBuilder:
    """Puts rows into lanes."""

    def __init__(self, processes: list[ProcessLabels], model: Model | None) -> None:
        self.processes, self.model = processes, model
        self.rows: list[Row] = []
        self.root = Lane("", "root", "")
        self._ranks: dict[tuple[int, int], Lane] = {}
        nodes = {labels.node: place for place, labels in reversed(list(enumerate(processes)))}

        def order(process: int) -> tuple[list[tuple[str, int, str]], int, int, int]:
            labels = processes[process]
            return _natural(labels.host), nodes[labels.node], labels.rank, process

        for process in sorted(range(len(processes)), key=order):
            self._add_process(process)

    def _add_process(self, process: int) -> None:
        labels = self.processes[process]
        host = self.root.child(labels.node, "host", labels.host, labels.node_note)
        comms = sorted(labels.communicators.values(), key=lambda comm: (comm.global_rank, comm.row))
        ranks = {comm.global_rank for comm in comms} or {labels.rank}
        for rank in sorted(ranks):
            title = f"rank {rank}" if rank != NONE else labels.folder
            note = f"pid {labels.pid}" + (f" · {labels.gpu}" if labels.gpu else "")
            lane = host.child(f"p{process}.{rank}", "rank", title, note, rank=rank, process=process)
            lane.state = labels.fate
            self._ranks[process, rank] = lane
        for comm in comms:
            self._communicator_lane(process, comm)

    def _communicator_lane(self, process: int, comm: CommunicatorLabel | None) -> Lane:
        """The lane of a communicator on one rank; None: of events without a communicator."""
        if comm is None:
            lane = self._ranks[process, min(rank for p, rank in self._ranks if p == process)]
            return lane.child("other", "communicator", "no communicator", "or another process's")
        lane = self._ranks[process, comm.global_rank]
        note = f"rank {comm.rank} of {comm.ranks}" if comm.ranks > 0 else ""
        name = f"c{comm.row}" if comm.row != NONE else f"n{comm.name}"
        return lane.child(name, "communicator", comm.name, note, communicator=comm.row)

    def _first_rank_lane(self, process: int) -> Lane:
        return next(lane for (p, _), lane in self._ranks.items() if p == process)

    def _add_row(
        self, lane: Lane, kind: str, process: int, bars: Bars, clock: SceneClock | None
    ) -> None:
        if not len(bars):
            return
        numbers = lane.tracks.setdefault(kind, [])
        key = f"{lane.key}/{kind}/{len(numbers)}"
        numbers.append(len(self.rows))
        self.rows.append(Row(kind, bars, process, clock, key))

    def add_model_rows(self, process: int, rows: Iterable[tuple[LaneKey, Bars]]) -> None:
        """Adds rows of operations and of channels by GPU stamps, whose communicators are the
        model's.
        """
        for key, bars in rows:
            lane = self._lane_by_model(process, key.communicator, key.rank)
            if key.kind == CHANNEL:
                lane = _channel_lane(lane, key.channel)
            self._add_row(lane, key.kind, process, bars, None)

    def _lane_by_model(self, process: int, communicator: int, rank: int) -> Lane:
        labels = self.processes[process].communicators.values()
        comms = [comm for comm in labels if comm.row == communicator]
        of_rank = (comm for comm in comms if comm.rank == rank)
        return self._communicator_lane(process, next(of_rank, comms[0] if comms else None))

    def add_callbacks(self, process: int, rows: Iterable[tuple[LaneKey, Bars]]) -> None:
        """Adds rows of callbacks, whose communicators are numbers of the process."""
        labels = self.processes[process]
        for key, bars in rows:
            if key.kind == DROP:
                lane = self._first_rank_lane(process)
            else:
                comm = labels.communicators.get(key.communicator)
                lane = _callback_lane(labels, self._communicator_lane(process, comm), key)
            self._add_row(lane, key.kind, process, bars, labels.clock)

    def add_training(self, process: int, rows: Iterable[tuple[LaneKey, Bars]]) -> None:
        """Adds steps, phases and ranges: a lane above the communicators of the first rank."""
        for key, bars in rows:
            rank = self._first_rank_lane(process)
            lane = rank.child("training", "thread", "training", "steps and phases")
            if key.thread != NONE:
                name = self.processes[process].threads.get(str(key.thread), "")
                lane = lane.child(f"t{key.thread}", "thread", f"thread {key.thread}", name)
            # The training comes first, although communicators are known before.
            rank.children = {"training": rank.children.pop("training"), **rank.children}
            self._add_row(lane, key.kind, process, bars, None)

    def add_path(self, bars: Bars) -> None:
        """Adds the critical path: a lane above all hosts."""
        lane = self.root.child("path", "path", PATH, "what set the run's length")
        self.root.children = {"path": self.root.children.pop("path"), **self.root.children}
        self._add_row(lane, PATH, NONE, bars, None)

    def add_preview(self, process: int, bars: Bars) -> None:
        """Adds what is known of a process before it is indexed."""
        lane = self._first_rank_lane(process)
        self._add_row(lane, PREVIEW, process, bars, self.processes[process].clock)

    def add_counters(self, devices: Iterable[SampledDevice]) -> None:
        """Adds the sampled devices of each host, in one lane of the host."""
        for device in devices:
            host = self.root.children.get(f"h{device.node}")
            if host is None:
                continue
            machine = host.child("machine", "machine", "machine", "GPUs, network, host")
            lane = machine.child(device.key, "device", device.title, device.note)
            for style, bars in device.rows:
                lane.line_styles.append(style)
                self._add_row(lane, COUNTER, NONE, bars, None)
                self.rows[-1] = replace(self.rows[-1], line_style=style)

    def scene(self) -> Scene:
        """The scene of all rows that were added."""
        # Samplers begin before the job and end after it: they do not count for the extent. Nor
        # does the path, which begins with a call.
        timed = [row for row in self.rows if row.kind not in (COUNTER, PATH)]
        return Scene(
            self.rows,
            self.root,
            min((row.to_scene(int(row.bars.start_ns[0])) for row in timed), default=0),
            max((row.to_scene(int(row.bars.end_ns[-1])) for row in timed), default=1),
            self.model,
            self.processes,
        )


def _callback_lane(labels: ProcessLabels, lane: Lane, key: LaneKey) -> Lane:
    """The lane of a row of callbacks, below its communicator's lane."""
    if key.kind == COMMUNICATOR:
        return lane
    if key.kind in CHANNEL_KINDS:
        return _channel_lane(lane, key.channel)
    name = labels.threads.get(str(key.thread), "")
    lane = lane.child(f"t{key.thread}", "thread", f"thread {key.thread}", name)
    if key.kind not in PROXY_KINDS:
        return lane
    direction = {1: "send", 0: "recv"}.get(key.sends, "network")
    channel = f"channel {key.channel}" if key.channel != NONE else "op not on record"
    return lane.child(f"{direction}{key.channel}", "proxy", f"{direction}, {channel}", "proxy")


def _channel_lane(lane: Lane, channel: int) -> Lane:
    """The lane of a GPU channel, below its communicator's lane."""
    return lane.child(f"ch{channel}", "channel", f"channel {channel}", "GPU")
