"""Samples of the run's machines: counters cut to the run's time, and which GPU each rank has."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from ncclscope.arrays.types import Floats, Ints
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import ranks_in_words
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import CounterSeries, SystemSamples
from ncclscope.system.counters import GPU, NIC, PORT, Device

FAMILY = "machine"
FEWEST = 5  # samples: fewer say nothing
Place = tuple[int, Device]  # node and device


class HardwareSamples:
    """Counters of the run's GPUs, links and hosts."""

    def __init__(self, context: RuleContext, system: SystemSamples | None = None) -> None:
        self.context = context
        self.system = context.system if system is None else system

    def series(self, kind: str, counter: str) -> dict[Place, CounterSeries]:
        """A counter of all devices of a kind, from right before the run to right after it."""
        by_place = self.system.of(kind, counter)
        if kind == GPU:
            by_place = {p: series for p, series in by_place.items() if self._may_be_used(p)}
        return {place: self._cut(series) for place, series in by_place.items()}

    def link_series(self, counter: str) -> dict[Place, CounterSeries]:
        """A counter of all network interfaces and ports."""
        return {**self.series(NIC, counter), **self.series(PORT, counter)}

    def _may_be_used(self, place: Place) -> bool:
        """Whether a GPU may be the run's: not where its host's ranks are known to be on others."""
        return bool(self.ranks_of.get(place)) or place[0] not in self._nodes_with_ranks

    @cached_property
    def _nodes_with_ranks(self) -> set[int]:
        return {node for (node, _), ranks in self.ranks_of.items() if ranks}

    def _cut(self, series: CounterSeries) -> CounterSeries:
        begin, end = self.context.run.extent
        if begin >= end:  # in mode profile it is not known
            return series
        first = max(int(np.searchsorted(series.time_ns, begin, "right")) - 1, 0)
        last = int(np.searchsorted(series.time_ns, end)) + 1
        cut = slice(first, last)
        return replace(
            series,
            time_ns=series.time_ns[cut],
            value=series.value[cut],
            sampler=series.sampler[cut],
        )

    @cached_property
    def ranks_of(self) -> dict[Place, tuple[int, ...]]:
        """Ranks by GPU: by its uuid or bus id, which both NCCL's process and NVML know."""
        by_name: dict[tuple[int, str], set[int]] = {}
        model = self.context.model
        for gpu in model.gpus:
            node = model.processes[gpu.process].node
            for name in _gpu_names(gpu.uuid, gpu.bus_id) if gpu.global_rank != NONE else ():
                by_name.setdefault((node, name), set()).add(gpu.global_rank)
        ranks_of = {}
        for series in self.system.tracks:
            facts, node = series.device.facts, series.node
            if series.device.kind != GPU or (node, series.device) in ranks_of:
                continue
            names = _gpu_names(str(facts.get("uuid", "")), str(facts.get("bus_id", "")))
            ranks = next((by_name[node, name] for name in names if (node, name) in by_name), set())
            ranks_of[node, series.device] = tuple(sorted(ranks))
        return ranks_of

    # ---- in sentences ----
    def name(self, place: Place) -> str:
        """GPU 3 of node7 (rank 59)"""
        ranks = self.ranks_of.get(place, ())
        shown = f" ({ranks_in_words(ranks)})" if ranks else ""
        return f"{place[1].label} of {self.host(place)}{shown}"

    def host(self, place: Place) -> str:
        """The host of a device."""
        return self.context.model.nodes[place[0]]

    def command(self, place: Place) -> str:
        """The command that prints a device's samples."""
        host, device = shlex.quote(self.host(place)), shlex.quote(place[1].name)
        return f"ncclscope dump {self.context.path} --system --host {host} --device {device}"


def _gpu_names(uuid: str, bus_id: str) -> tuple[str, ...]:
    """The uuid and the bus id of a GPU in one notation: NVML and CUDA write them differently.

    In MIG mode CUDA gives an instance's uuid, NVML the GPU's: the bus id joins them. Older
    drivers name an instance by its GPU: MIG-GPU-<uuid>/<instance>/<instance>.
    """
    plain = uuid.lower().removeprefix("mig-").removeprefix("gpu-").partition("/")[0]
    plain = plain.replace("-", "")
    domain, _, rest = bus_id.lower().partition(":")
    bus = f"{domain[-4:]}:{rest}" if rest else ""
    return tuple(name for name in (plain, bus) if name)


def known_values(series: CounterSeries | None) -> Ints:
    """The values that are known."""
    return np.empty(0, np.int64) if series is None else series.value[series.value != NONE]


def rates_per_s(series: CounterSeries | None) -> Floats:
    """How much a total grew in each second, where that is known."""
    if series is None:
        return np.empty(0)
    rates = series.per_second()
    return rates[~np.isnan(rates)]


def median_or_none(values: Iterable[float]) -> float | None:
    """The median; None without values."""
    listed = list(values)
    return float(np.median(listed)) if listed else None
