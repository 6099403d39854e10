"""Counters of the machine as rows: a bar from sample to sample, which the page draws as a line."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Floats, Ints
from ncclscope.diagnose.hardware.samples import HardwareSamples, Place
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import ranks_in_words
from ncclscope.model.model import Model
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import CounterSeries
from ncclscope.system.counters import GPU, HOST, NIC, PORT, SLOWDOWNS
from ncclscope.web.bars import Bars, make_bars

_GB_S = 1e-9
_LARGEST = 2.0**52
_ORDER = (HOST, GPU, PORT, NIC)
_HOLDS = 4  # intervals; after a longer time without a sample the value of a gauge is unknown


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a row of a counter is shown."""

    title: str
    unit: str
    factor: float  # from the counter's numbers to the unit


@dataclass(frozen=True, slots=True)
class SampledDevice:
    """One device of a node with its rows."""

    node: int
    key: str
    title: str
    note: str
    rows: tuple[tuple[LineStyle, Bars], ...]


# Lines by kind of device. Counters of one line are added up.
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


def sampled_devices(model: Model) -> Iterator[SampledDevice]:
    """All devices that were sampled while the job ran, hosts first."""
    samples = HardwareSamples(RuleContext(model))
    places: dict[Place, dict[str, CounterSeries]] = {}
    for series in samples.system.tracks:
        if series.device.kind in _LINES:
            by_counter = places.setdefault((series.node, series.device), {})
            by_counter[series.counter.name] = series
    for place in sorted(places, key=lambda place: (place[0], _ORDER.index(place[1].kind))):
        node, device = place
        rows = tuple(_rows(places[place], device.kind))
        if rows:
            ranks = samples.ranks_of.get(place, ())
            note = ranks_in_words(ranks) if ranks else ""
            yield SampledDevice(node, f"{device.kind}{device.name}", device.label, note, rows)


def _rows(by_counter: dict[str, CounterSeries], kind: str) -> Iterator[tuple[LineStyle, Bars]]:
    for style, counters in _LINES[kind]:
        added = [by_counter[name] for name in counters if name in by_counter]
        if added:
            start_ns, end_ns, values = _steps(added)
            if len(start_ns):
                yield style, _bars(start_ns, end_ns, values)


def _steps(added: list[CounterSeries]) -> tuple[Ints, Ints, Floats]:
    """Start, end and value of each step.

    A gauge has its value from a sample to the next. A total has its growth a second from the sample
    before to the sample. Unknown values are left out. After a gap without samples a total's growth
    is still known; a gauge is not, so its step ends early.
    """
    time_ns = added[0].time_ns
    is_total = added[0].counter.kind == "total"
    values = np.zeros(len(time_ns))
    for series in added:
        if len(series.time_ns) == len(time_ns):
            values += _values(series)
    if len(time_ns) < 2:
        return time_ns[:0], time_ns[:0], values[:0]
    start_ns, end_ns = time_ns[:-1], time_ns[1:]
    values = values[1:] if is_total else values[:-1]
    if not is_total:
        interval_ns = _intervals_ns(added[0])
        holds = end_ns - start_ns <= _HOLDS * interval_ns
        end_ns = np.where(holds, end_ns, start_ns + interval_ns)
    has_value = ~np.isnan(values) & (end_ns > start_ns)
    return start_ns[has_value], end_ns[has_value], values[has_value]


def _intervals_ns(series: CounterSeries) -> Ints:
    """The usual interval of the sampler of each sample but the last: samplers of one host may have
    different ones.
    """
    steps_ns, sampler = np.diff(series.time_ns), series.sampler[:-1]
    same_sampler = np.diff(series.sampler) == 0
    interval_ns = np.full(len(steps_ns), np.median(steps_ns), np.int64)
    for number in np.unique(sampler[same_sampler]).tolist():
        interval_ns[sampler == number] = np.median(steps_ns[same_sampler & (sampler == number)])
    return interval_ns


def _values(series: CounterSeries) -> Floats:
    if series.counter.kind == "total":
        return series.per_second()
    values = np.where(series.value == NONE, np.nan, series.value.astype(np.float64))
    if series.counter.kind == "bits":
        slowed = (np.maximum(series.value, 0) & sum(SLOWDOWNS)) != 0
        values = np.where(np.isnan(values), np.nan, slowed)
    return values


def _bars(start_ns: Ints, end_ns: Ints, values: Floats) -> Bars:
    """Bars whose `ref` is the value itself."""
    plain = np.zeros(len(values), np.uint8)
    return make_bars(
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "wait_ns": np.empty(0, np.int64),
            # Rounded up: a tenth of an error a second is not none.
            "ref": np.ceil(np.clip(values, 0, _LARGEST)).astype(np.int64),
            "code": plain,
            "look": plain,
        }
    )


def amounts(style: LineStyle, bars: Bars) -> Floats:
    """Value x time of each bar; the line shows amount / time."""
    return bars.ref * style.factor * (bars.end_ns - bars.start_ns)
