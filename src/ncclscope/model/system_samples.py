"""Samples of GPUs, network and hosts that samplers wrote into the capture, on the one clock.

They are read on demand and not saved with the model: there are few of them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ncclscope.arrays.types import Floats, Ints
from ncclscope.capture.housekeeping import identity_of
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE, Columns
from ncclscope.system.counters import COUNTERS, TOTAL, Counter, Device
from ncclscope.system.sample_files import NOT_THERE, SampleFile, read_sample_file, sample_files_in

_Place = tuple[int, Device]  # node and device
_MOST_SAMPLES, _FEWEST_SAMPLES = 200_000, 500  # of all hosts together; of one file


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """One counter of one device over time."""

    node: int
    device: Device
    counter: Counter
    time_ns: Ints  # on the one clock, in order
    value: Ints  # NONE: not known then
    sampler: Ints  # by sample who took it: totals of one container do not continue another's

    def per_second(self) -> Floats:
        """By sample how much a total grew per second since the sample before. NaN for a sampler's
        first sample, and where the total was reset.
        """
        out = np.full(len(self.value), np.nan)
        known = np.flatnonzero(self.value != NONE)
        grown = np.diff(self.value[known]).astype(np.float64)
        elapsed_ns = np.diff(self.time_ns[known]).astype(np.float64)
        fine = (grown >= 0) & (elapsed_ns > 0) & (np.diff(self.sampler[known]) == 0)
        out[known[1:][fine]] = grown[fine] * 1e9 / elapsed_ns[fine]
        return out

    def growth(self) -> int:
        """How much a total grew altogether; what it lost by resets is not counted."""
        known = np.flatnonzero(self.value != NONE)
        grown = np.diff(self.value[known])
        return int(grown[(grown > 0) & (np.diff(self.sampler[known]) == 0)].sum())


@dataclass(frozen=True, slots=True)
class SystemSamples:
    """All counters of a capture."""

    tracks: tuple[CounterSeries, ...] = ()
    samples: int = 0
    lost: int = 0  # samples that could not be written
    damaged: int = 0  # lines that could not be read
    unplaced: int = 0  # files of hosts, or of other boots of them, without a recorded process
    deleted: int = 0  # samples that made room for newer ones
    newer: int = 0  # files of a later release
    notes: tuple[tuple[str, str], ...] = ()  # host, and what could not be sampled there

    def of(self, kind: str, counter: str) -> dict[tuple[int, Device], CounterSeries]:
        """A counter by node and device."""
        return {
            (track.node, track.device): track
            for track in self.tracks
            if track.device.kind == kind and track.counter.name == counter
        }


def system_of(model: Model) -> SystemSamples:
    """All samples of a capture; empty for imports and where no sampler ran."""
    paths = sample_files_in(model.path)
    if not paths or not model.clocks:
        return SystemSamples()
    most = max(_MOST_SAMPLES // len(paths), _FEWEST_SAMPLES)
    parts: dict[_Place, list[_Part]] = defaultdict(list)
    samplers: dict[str, int] = {}
    journals = [read_sample_file(path, most) for path in paths]
    unplaced = 0
    boot_of = cache(lambda node: _boot_id(model, node))
    for journal in journals:
        if journal.newer:
            continue
        nodes = [n for n, host in enumerate(model.nodes) if host == journal.host]
        fitting = [n for n in nodes if not boot_of(n) or boot_of(n) == journal.boot_id]
        if fitting:
            known_as = journal.sampler or journal.path.name  # early samplers had no names
            sampler = samplers.setdefault(known_as, len(samplers))
            _add(parts, model, fitting[0], journal, sampler)
        else:
            unplaced += 1
    tracks = [track for (node, _), of in parts.items() for track in _tracks(node, of)]
    return SystemSamples(
        tuple(sorted(tracks, key=_order)),
        sum(journal.samples for journal in journals),
        sum(journal.lost for journal in journals),
        sum(journal.damaged for journal in journals),
        unplaced,
        _deleted(journals),
        sum(journal.newer for journal in journals),
        tuple(sorted({(one.host, note) for one in journals for note in one.notes})),
    )


def _deleted(journals: list[SampleFile]) -> int:
    """Samples that were deleted: each file says how many its sampler had deleted by then."""
    most: dict[str, int] = {}
    for journal in journals:
        known_as = journal.sampler or journal.path.name
        most[known_as] = max(most.get(known_as, 0), journal.deleted)
    return sum(most.values())


def _order(track: CounterSeries) -> tuple[int, str, int, str, str]:
    device = track.device
    return track.node, device.kind, len(device.name), device.name, track.counter.name


def _boot_id(model: Model, node: int) -> str:
    """The boot id of a node's host; "" where no process recorded it."""
    folders = (row.folder for row in model.processes if row.node == node)
    return next((identity_of(model.path / folder).get("boot_id", "") for folder in folders), "")


# ---- samples of a device ----
@dataclass(frozen=True, slots=True)
class _Part:
    """A sampler's samples of a device, with the same counters."""

    sampler: int
    device: Device
    time_ns: Ints
    values: dict[str, Ints]  # by counter

    def without(self, spans: list[tuple[int, int]]) -> "_Part":
        """The samples outside of some stretches of time."""
        if not spans:
            return self
        outside = np.ones(len(self.time_ns), np.bool_)
        for begin, end in spans:
            outside &= (self.time_ns < begin) | (self.time_ns > end)
        values = {name: numbers[outside] for name, numbers in self.values.items()}
        return _Part(self.sampler, self.device, self.time_ns[outside], values)


def _add(
    parts: dict[_Place, list[_Part]], model: Model, node: int, journal: SampleFile, sampler: int
) -> None:
    for stretch in journal.spans:
        local_ns = np.frombuffer(stretch.monotonic_ns, np.int64)
        if not len(local_ns) or not stretch.width:
            continue
        time_ns = model.clocks[node].to_reference(local_ns)
        rows = np.frombuffer(stretch.values, np.int64).reshape(len(local_ns), stretch.width)
        place = 0
        for device, names in stretch.layout:
            values = {name: rows[:, place + at] for at, name in enumerate(names)}
            parts[node, device].append(_Part(sampler, device, time_ns, values))
            place += len(names)


def _one_at_a_time(parts: list[_Part]) -> list[_Part]:
    """Where several samplers saw a device at the same time, only the one with more samples of it:
    in containers, devices of the same name may be different ones.
    """
    by_sampler: dict[int, list[_Part]] = defaultdict(list)
    for part in parts:
        by_sampler[part.sampler].append(part)
    spans = sorted(
        (
            -sum(len(part.time_ns) for part in of),
            min(int(part.time_ns.min()) for part in of),
            max(int(part.time_ns.max()) for part in of),
            sampler,
        )
        for sampler, of in by_sampler.items()
    )
    kept = []
    for rank, (_, begin, end, sampler) in enumerate(spans):
        before = [(b, e) for _, b, e, _ in spans[:rank] if b <= end and begin <= e]
        kept += [part.without(before) for part in by_sampler[sampler]]
    return kept


def _tracks(node: int, parts: list[_Part]) -> Iterator[CounterSeries]:
    """Every counter of a device."""
    kept = _one_at_a_time(parts)
    device = kept[0].device  # with the facts that most of the samples are of
    by_counter: dict[str, list[_Part]] = defaultdict(list)
    for part in kept:
        for name in part.values if len(part.time_ns) else ():
            by_counter[name].append(part)
    for name, of in by_counter.items():
        time_ns = np.concatenate([part.time_ns for part in of])
        value = np.concatenate([part.values[name] for part in of])
        sampler = np.repeat([part.sampler for part in of], [len(part.time_ns) for part in of])
        order = np.argsort(time_ns, kind="stable")
        of_name = (one for one in COUNTERS.get(device.kind, ()) if one.name == name)
        counter = next(of_name, Counter(name, "gauge", ""))  # of a later release
        value = np.where(value[order] == NOT_THERE, NONE, value[order])
        yield CounterSeries(node, device, counter, time_ns[order], value, sampler[order])


def system_columns(system: SystemSamples) -> tuple[Columns, dict[str, list[str]]]:
    """The columns of `system`, a row for each value; and the names that codes stand for."""
    names: dict[str, list[str]] = {"kind": [], "device": [], "counter": []}
    columns: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
    for track in system.tracks:
        rates = (
            track.per_second() if track.counter.kind == TOTAL else np.full(len(track.value), np.nan)
        )
        known = track.value != NONE
        columns["time_ns"].append(track.time_ns[known])
        columns["value"].append(track.value[known])
        rates = np.where(np.isnan(rates), NONE, np.minimum(np.rint(rates), 2.0**62))
        columns["per_second"].append(rates[known].astype(np.int64))
        codes = {
            "kind": track.device.kind,
            "device": track.device.name,
            "counter": track.counter.name,
        }
        for column, name in codes.items():
            if name not in names[column]:
                names[column].append(name)
            code = names[column].index(name)
            columns[column].append(np.full(int(known.sum()), code, np.int64))
        columns["node"].append(np.full(int(known.sum()), track.node, np.int64))
    order = ("time_ns", "node", "kind", "device", "counter", "value", "per_second")
    empty = np.empty(0, np.int64)
    return {name: np.concatenate([empty, *columns[name]]) for name in order}, names
