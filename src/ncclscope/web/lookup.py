"""Finds events and bars of a scene, one by one or many at once."""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.capture import layout
from ncclscope.capture.dump_events import Event, EventReader
from ncclscope.capture.process import open_process
from ncclscope.errors import FormatError
from ncclscope.model.schema import NONE
from ncclscope.web.kinds import CALLBACK_KINDS, CHANNEL, COUNTER, OPERATION, PART, PATH
from ncclscope.web.scene import Row, Scene
from ncclscope.web.training_rows import RangeTexts, range_texts

_MOST_OPEN = 8  # processes whose events stay open
_MOST_KEPT = 20_000  # events that were read ahead: some ten MB
_OPERATION_KINDS = (OPERATION, PART, CHANNEL)


class _ReadAhead:
    """What was read of a part of a row, for its bars."""

    def __init__(self, process: int, row: Row | None) -> None:
        self.process = process
        self.clock = None if row is None else row.clock
        self.events: dict[int, Event | None] = {}  # by key; None: not on record
        self.scene_ns: dict[int, int] = {}  # by the time on `clock`
        self.errors_ns: dict[int, int | None] = {}  # by the time of the scene


class Lookup:
    """Finds events and bars of a scene. It keeps the last few processes open."""

    def __init__(self, scene: Scene, path: Path) -> None:
        self.scene, self._path = scene, path
        self._open: OrderedDict[int, EventReader | None] = OrderedDict()
        self._range_texts: dict[int, RangeTexts] = {}
        self._ahead = _ReadAhead(NONE, None)
        self._rows: dict[tuple[int, str], list[int]] = {}
        for number, row in enumerate(scene.rows):
            self._rows.setdefault((row.process, row.kind), []).append(number)

    # ---- events ----
    def reader(self, process: int) -> EventReader | None:
        """A process's events; None where its files are gone."""
        if process not in self._open:
            try:
                folder = self._path / self.scene.processes[process].folder
                self._open[process] = EventReader(open_process(folder))
            except (FormatError, OSError):
                self._open[process] = None
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(process)
        return self._open[process]

    def range_texts(self, process: int) -> RangeTexts:
        """Texts of a process's ranges by event; those of the last process are kept."""
        if process not in self._range_texts and self.scene.model is not None:
            self._range_texts = {process: range_texts(self.scene.model, process)}
        return self._range_texts.get(process, {})

    def events(self, process: int, keys: Iterable[int]) -> list[Event]:
        """Events by their keys; those that are not on record are left out."""
        keys = np.fromiter(keys, np.int64)
        if process == self._ahead.process and set(keys.tolist()) <= self._ahead.events.keys():
            events = (self._ahead.events[key] for key in keys.tolist())
            return [event for event in events if event is not None]
        reader = self.reader(process)
        if reader is None:
            return []
        stream, index = keys >> layout.INDEX_BITS, keys & layout.INDEX_MASK
        return reader.at(stream << 48 | index)

    # ---- times ----
    def to_scene(self, row: Row, own_ns: int) -> int:
        """A time of a row on the scene's clock."""
        if row.clock is not None and row.clock is self._ahead.clock:
            scene_ns = self._ahead.scene_ns.get(own_ns)
            if scene_ns is not None:
                return scene_ns
        return row.to_scene(own_ns)

    def error_ns(self, row: Row, scene_ns: int) -> int | None:
        """How far a time on the scene's clock can be off; None where that is not known."""
        if row.process == self._ahead.process and scene_ns in self._ahead.errors_ns:
            return self._ahead.errors_ns[scene_ns]
        return self._errors_ns(row, np.array([scene_ns], np.int64))[0]

    def _errors_ns(self, row: Row, scene_ns: Ints) -> list[int | None]:
        model = self.scene.model
        if model is None or row.kind in (COUNTER, PATH):
            return [None] * len(scene_ns)
        process = model.processes[row.process]
        if process.node >= len(model.clocks):
            return [None] * len(scene_ns)
        local_ns = self.scene.processes[row.process].clock.times_on_host(scene_ns)
        errors = model.clocks[process.node].error_at(local_ns).tolist()
        gpu_ns = process.gpu_clock_error_ns if row.kind in _OPERATION_KINDS else 0
        return [int(error) + gpu_ns if np.isfinite(error) else None for error in errors]

    # ---- many at once ----
    def read_ahead(self, number: int, places: range) -> None:
        """Reads what details of these bars of a row need: a tenth of the time that single events
        and single conversions take. It replaces what was read ahead before.
        """
        row = self.scene.rows[number]
        part = slice(places.start, places.stop)
        before, ahead = self._ahead, _ReadAhead(row.process, row)
        if row.process == before.process and len(before.events) < _MOST_KEPT:
            ahead.events = before.events  # rows of a process have parents in common
        self._ahead = ahead
        events = self._read_events(row, row.bars.ref[part])
        times = [row.bars.start_ns[part], row.bars.end_ns[part]]
        for event in events:
            times.append(np.array([event["start_ns"], *(s["t_ns"] for s in event["states"])]))
            if event["stop_ns"] is not None:
                times.append(np.array([event["stop_ns"]]))
        own_ns = np.unique(np.concatenate(times).astype(np.int64))
        scene_ns = row.times_on_scene(own_ns)
        ahead.scene_ns = dict(zip(own_ns.tolist(), scene_ns.tolist(), strict=True))
        starts = np.array([self.to_scene(row, ns) for ns in row.bars.start_ns[part].tolist()])
        errors = self._errors_ns(row, starts.astype(np.int64))
        ahead.errors_ns = dict(zip(starts.tolist(), errors, strict=True))

    def _read_events(self, row: Row, refs: Ints) -> list[Event]:
        """The events of bars, and their parents; those that are not on record are left out."""
        if row.kind in (OPERATION, PART) and self.scene.model is not None:
            refs = np.asarray(self.scene.model.tables["operations"]["event"][refs])
        elif row.kind not in CALLBACK_KINDS:
            return []
        kept, events_read = self._ahead.events, list[Event]()
        keys = set(refs.tolist())
        for _ in range(2):
            keys.discard(NONE)
            unread = sorted(keys - kept.keys())
            events = {key_of(event["id"]): event for event in self.events(row.process, unread)}
            kept.update((key, events.get(key)) for key in unread)
            read = [event for key in keys if (event := kept[key]) is not None]
            events_read += read
            keys = {own_parent(event) for event in read}
        return events_read

    # ---- bars ----
    def place_of(
        self, process: int, kinds: tuple[str, ...], ref: int, own_ns: int
    ) -> tuple[int, int] | None:
        """Row and place of the bar with this `ref`, which begins at `own_ns`; None: not drawn."""
        for kind in kinds:
            for number in self._rows.get((process, kind), ()):
                bars = self.scene.rows[number].bars
                first = int(np.searchsorted(bars.start_ns, own_ns, "left"))
                for place in range(max(first - 1, 0), min(first + 3, len(bars))):
                    if int(bars.ref[place]) == ref:
                        return number, place
        return None


def key_of(reference: str) -> int:
    """The key of the event `stream.index`."""
    stream, index = reference.split(".")
    return int(stream) << layout.INDEX_BITS | int(index)


def own_parent(event: Event) -> int:
    """The key of an event's parent; NONE where it has none in its own process."""
    reference = event["parent"]
    if reference is None or "/" in reference or ":" in reference:
        return NONE
    return key_of(reference)
