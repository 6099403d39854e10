"""Counters of the machine as rows of the timeline: a bar from sample to sample, drawn as a line."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncclscope.diagnose.hardware.samples import HardwareSamples, Place
from ncclscope.diagnose.rule_context import Floats, Ints, RuleContext
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import Series
from ncclscope.system.counters import GPU, HOST, NIC, PORT, SLOWDOWNS
from ncclscope.web.bars import Bars, bars_of

_GB_S = 1e-9
_LARGEST = 2.0**52
_ORDER = (HOST, GPU, PORT, NIC)
_HOLDS = 4  # intervals: after more of them without a sample, nobody knows what a gauge was


@dataclass(frozen=True, slots=True)
class LineStyle:
    """What a row of a counter is called, and what its numbers are times."""

    title: str
    unit: str
    factor: float


@dataclass(frozen=True, slots=True)
class SampledDevice:
    """One device with its rows."""

    node: int
    key: str
    title: str
    note: str
    rows: tuple[tuple[LineStyle, Bars], ...]


# By kind of device: title, unit, factor, and counters that are added up.
_LINES: dict[str, tuple[tuple[LineStyle, tuple[str, ...]], ...]] = {
    GPU: (
        (LineStyle("utilisation", "%", 1), ("utilization_percent",)),
        (LineStyle("clock", "MHz", 1), ("sm_clock_mhz",)),
        (LineStyle("slowed down", "of 1", 1), ("throttle_reasons",)),
        (LineStyle("power", "W", 1e-3), ("power_mw",)),
        (LineStyle("temperature", "°C", 1), ("temperature_c",)),
        (LineStyle("NVLink", "GB/s", _GB_S), ("nvlink_tx_bytes", "nvlink_rx_bytes")),
        (LineStyle("PCIe", "GB/s", _GB_S), ("pcie_tx_bytes", "pcie_rx_bytes")),
        (LineStyle("PCIe", "GB/s", _GB_S), ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")),
    ),
    PORT: (
        (LineStyle("received", "GB/s", _GB_S), ("rx_bytes",)),
        (LineStyle("sent", "GB/s", _GB_S), ("tx_bytes",)),
        (
            LineStyle("errors", "a second", 1),
            ("symbol_errors", "rx_errors", "retransmissions", "tx_discards", "link_downed"),
        ),
    ),
    NIC: (
        (LineStyle("received", "GB/s", _GB_S), ("rx_bytes",)),
        (LineStyle("sent", "GB/s", _GB_S), ("tx_bytes",)),
        (LineStyle("errors", "a second", 1), ("rx_errors", "tx_errors")),
    ),
    HOST: (
        (LineStyle("CPUs busy", "CPUs", 1e-3), ("cpu_busy_ms",)),
        (LineStyle("memory available", "GB", 1e-9), ("memory_available_bytes",)),
        (LineStyle("waiting for memory", "% of time", 1e-4), ("memory_full_us",)),
        (LineStyle("waiting for I/O", "% of time", 1e-4), ("io_full_us",)),
    ),
}


def gauged(model: Model) -> Iterator[SampledDevice]:
    """All devices that were sampled beside a capture, hosts first."""
    beside = HardwareSamples(RuleContext(model))
    places: dict[Place, dict[str, Series]] = {}
    for track in beside.system.tracks:
        if track.device.kind in _LINES:
            mine = places.setdefault((track.node, track.device), {})
            mine[track.counter.name] = track
    for place in sorted(places, key=lambda one: (one[0], _ORDER.index(one[1].kind))):
        node, device = place
        rows = tuple(_rows(places[place], device.kind))
        if rows:
            ranks = beside.ranks_of.get(place, ())
            note = ranks_in_words(ranks) if ranks else ""
            yield SampledDevice(node, f"{device.kind}{device.name}", device.label, note, rows)


def _rows(tracks: dict[str, Series], kind: str) -> Iterator[tuple[LineStyle, Bars]]:
    for drawn, counters in _LINES[kind]:
        known = [tracks[name] for name in counters if name in tracks]
        if known:
            start_ns, end_ns, values = _steps(known)
            if len(start_ns):
                yield drawn, _bars(start_ns, end_ns, values)


def _steps(tracks: list[Series]) -> tuple[Ints, Ints, Floats]:
    """Stretches of time with what holds in each: of gauges from a sample to the next, of totals
    what they grew by in a second up to a sample. Unknown ones are left out, and so is the time in
    which nobody took samples: a total's growth is known over that, a gauge is not.
    """
    time_ns = tracks[0].time_ns
    total = tracks[0].counter.kind == "total"
    values = np.zeros(len(time_ns))
    for track in tracks:
        if len(track.time_ns) == len(time_ns):
            values += _values(track)
    if len(time_ns) < 2:
        return time_ns[:0], time_ns[:0], values[:0]
    start_ns, end_ns = time_ns[:-1], time_ns[1:]
    values = values[1:] if total else values[:-1]
    if not total:
        usual_ns = _usual_steps_ns(tracks[0])
        stays = end_ns - start_ns <= _HOLDS * usual_ns
        end_ns = np.where(stays, end_ns, start_ns + usual_ns)
    fine = ~np.isnan(values) & (end_ns > start_ns)
    return start_ns[fine], end_ns[fine], values[fine]


def _usual_steps_ns(track: Series) -> Ints:
    """By sample but the last: how soon its sampler usually took the next. Samplers of one host
    may keep different intervals.
    """
    steps_ns, sampler = np.diff(track.time_ns), track.sampler[:-1]
    own = np.diff(track.sampler) == 0
    usual_ns = np.full(len(steps_ns), np.median(steps_ns), np.int64)
    for one in np.unique(sampler[own]).tolist():
        usual_ns[sampler == one] = np.median(steps_ns[own & (sampler == one)])
    return usual_ns


def _values(track: Series) -> Floats:
    if track.counter.kind == "total":
        return track.per_second()
    values = np.where(track.value == NONE, np.nan, track.value.astype(np.float64))
    if track.counter.kind == "bits":
        slowed = (np.maximum(track.value, 0) & sum(SLOWDOWNS)) != 0
        values = np.where(np.isnan(values), np.nan, slowed)
    return values


def _bars(start_ns: Ints, end_ns: Ints, values: Floats) -> Bars:
    """The number itself is what a bar refers to."""
    nothing = np.zeros(len(values), np.uint8)
    return bars_of(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "wait_ns": np.empty(0, np.int64),
            "ref": np.ceil(np.clip(values, 0, _LARGEST)).astype(np.int64),  # one error is not none
            "code": nothing,
            "look": nothing,
        }
    )


def amounts(drawn: LineStyle, bars: Bars) -> Floats:
    """Value times time: what is drawn is its slope."""
    return bars.ref * drawn.factor * (bars.end_ns - bars.start_ns)
