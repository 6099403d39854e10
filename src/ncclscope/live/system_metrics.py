"""The machine beside NCCL as metrics: `ncclscope serve --system`.

Where `run --system` samples a host already, its file is read instead of sampling twice.
"""

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.live.series import Labels, Samples
from ncclscope.system.counters import (
    GPU,
    HOST,
    NIC,
    PORT,
    POWER_CAP,
    SLOWDOWNS,
    Device,
    pcie_capacity,
)
from ncclscope.system.host import Numbers
from ncclscope.system.sample import Sample, SystemReader
from ncclscope.system.sample_files import SampleTail, sample_files_in

_FRESH_NS = 5_000_000_000  # at 1 Hz; what is older is no longer served
_LONGEST_INTERVAL_NS = 3_600_000_000_000  # that `run` takes; a file may say anything
_FIRST_SAMPLE_S = 2.0
_REASONS = SLOWDOWNS | {POWER_CAP: "SW power cap"}
# Counters that become metrics as they are: metric, further labels, factor.
_GPU_METRICS: dict[str, tuple[str, Labels, float]] = {
    "utilization_percent": ("gpu_utilization_ratio", (), 0.01),
    "memory_used_bytes": ("gpu_memory_used_bytes", (), 1),
    "power_mw": ("gpu_power_watts", (), 1e-3),
    "power_limit_mw": ("gpu_power_limit_watts", (), 1e-3),
    "temperature_c": ("gpu_temperature_celsius", (), 1),
    "sm_clock_mhz": ("gpu_sm_clock_hertz", (), 1e6),
    "pcie_tx_bytes": ("gpu_pcie_bytes", ("tx",), 1),
    "pcie_rx_bytes": ("gpu_pcie_bytes", ("rx",), 1),
    "pcie_tx_bytes_per_s": ("gpu_pcie_bytes_per_second", ("tx",), 1),
    "pcie_rx_bytes_per_s": ("gpu_pcie_bytes_per_second", ("rx",), 1),
    "pcie_replays": ("gpu_pcie_replays", (), 1),
    "nvlink_tx_bytes": ("gpu_nvlink_bytes", ("tx",), 1),
    "nvlink_rx_bytes": ("gpu_nvlink_bytes", ("rx",), 1),
    "nvlink_errors": ("gpu_nvlink_errors", (), 1),
    "ecc_corrected": ("gpu_ecc_errors", ("corrected",), 1),
    "ecc_uncorrected": ("gpu_ecc_errors", ("uncorrected",), 1),
    "xid_errors": ("gpu_xid_errors", (), 1),
}
_LINK_METRICS: dict[str, tuple[str, Labels, float]] = {
    "rx_bytes": ("link_bytes", ("rx",), 1),
    "tx_bytes": ("link_bytes", ("tx",), 1),
    "up": ("link_up", (), 1),
    "speed_mbit_s": ("link_speed_bytes_per_second", (), 125_000),
    **{
        name: ("link_errors", (name,), 1)
        for name in (
            "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "link_downed", "link_recoveries",
            "symbol_errors", "tx_discards", "retransmissions", "congestion_notices",
        )
    },
}  # fmt: skip
_HOST_METRICS: dict[str, tuple[str, Labels, float]] = {
    "cpus": ("host_cpus", (), 1),
    "cpu_busy_ms": ("host_cpu_busy_seconds", (), 1e-3),
    "cpu_throttled_us": ("host_cpu_throttled_seconds", (), 1e-6),
    "memory_available_bytes": ("host_memory_available_bytes", (), 1),
    "memory_bytes": ("host_memory_bytes", (), 1),
    "swap_used_bytes": ("host_swap_used_bytes", (), 1),
    "oom_kills": ("host_oom_kills", (), 1),
    "cpu_pressure_us": ("host_pressure_seconds", ("cpu", "some"), 1e-6),
    "memory_pressure_us": ("host_pressure_seconds", ("memory", "some"), 1e-6),
    "memory_full_us": ("host_pressure_seconds", ("memory", "full"), 1e-6),
    "io_pressure_us": ("host_pressure_seconds", ("io", "some"), 1e-6),
    "io_full_us": ("host_pressure_seconds", ("io", "full"), 1e-6),
}


_METRICS = {
    GPU: _GPU_METRICS,
    HOST: _HOST_METRICS,
    NIC: _LINK_METRICS,
    PORT: _LINK_METRICS,
}
PcieCapacities = dict[Labels, int]  # by host and GPU, bytes a second


# ---- one host's sample as metrics ----
def add_machine(
    samples: Samples, host: str, sample: Sample, age_s: float, pcie: PcieCapacities
) -> None:
    """All series of one host; devices of kinds that a later release may sample have none."""
    for device, numbers in sample.numbers.items():
        labels: Labels = (host,) if device.kind == HOST else (host, device.name)
        known = _METRICS.get(device.kind, {})
        if device.kind == GPU:
            _add_gpu(samples, labels, device, numbers)
            _add_pcie(samples, labels, numbers, pcie)
        for name, value in numbers.items():
            if name in known:
                metric, more, factor = known[name]
                samples.add(metric, (*labels, *more), value * factor)
    samples.add("host_sample_age_seconds", (host,), max(age_s, 0.0))


def _add_gpu(samples: Samples, labels: Labels, device: Device, numbers: Numbers) -> None:
    facts = device.facts
    told = tuple(str(facts.get(name, "")) for name in ("uuid", "bus_id", "model"))
    samples.add("gpu", (*labels, *told), 1.0)
    memory = facts.get("memory_bytes")
    if isinstance(memory, int):
        samples.add("gpu_memory_bytes", labels, float(memory))
    if "throttle_reasons" in numbers:
        for bit, reason in _REASONS.items():
            active = float(bool(numbers["throttle_reasons"] & bit))
            samples.add("gpu_slowed", (*labels, reason), active)


def _add_pcie(
    samples: Samples, labels: Labels, numbers: Numbers, capacities: PcieCapacities
) -> None:
    """Generations fall while a GPU is idle: the highest seen is the link's."""
    now = pcie_capacity(numbers.get("pcie_generation", 0), numbers.get("pcie_width", 0))
    most = capacities[labels] = max(capacities.get(labels, 0), now or 0)
    if most:
        samples.add("gpu_pcie_capacity_bytes_per_second", labels, float(most))


# ---- where samples come from ----
class _Sampler(threading.Thread):
    """Samples this host in a thread of its own: a driver that hangs must not stop readings."""

    def __init__(self, root: Path, interval_s: float) -> None:
        super().__init__(daemon=True, name="system")
        self._root, self._interval_s = root, interval_s
        self.first = threading.Event()
        self.stopped = threading.Event()
        self.latest: Sample | None = None

    def run(self) -> None:
        """Until it is told to stop."""
        machine = SystemReader(self._root)
        while True:
            self.latest = machine.read()
            self.first.set()
            if self.stopped.wait(self._interval_s):
                return


@dataclass(slots=True)
class Machines:
    """The newest sample of each host."""

    root: Path
    interval_s: float
    all_hosts: bool = False
    _followed: dict[Path, SampleTail] = field(default_factory=dict)
    _sampler: _Sampler | None = None
    _pcie: PcieCapacities = field(default_factory=dict)

    def read(self, captures: Iterable[Path]) -> Samples:
        """Metrics of this host, and of others where captures tell and they were asked for."""
        here, now_ns = socket.gethostname(), time.time_ns()
        newest: dict[str, Sample] = {}
        for host, sample in self._from_captures(captures, now_ns):
            if (self.all_hosts or host == here) and (
                host not in newest or sample.realtime_ns > newest[host].realtime_ns
            ):
                newest[host] = sample
        if here in newest:
            self._stop()
        elif (own := self._sampled()) is not None and self._is_fresh(now_ns - own.realtime_ns):
            newest[here] = own
        found = Samples()
        for host, sample in sorted(newest.items()):
            age_s = (now_ns - sample.realtime_ns) / 1e9
            add_machine(found, host, sample, age_s, self._pcie)
        return found

    def _is_fresh(self, age_ns: int, interval_ns: int = 0) -> bool:
        """Whether what is so old is the newest there should be of a file of that interval."""
        longest_ns = max(int(self.interval_s * 1e9), min(interval_ns, _LONGEST_INTERVAL_NS))
        return age_ns <= max(_FRESH_NS, 3 * longest_ns)

    def _from_captures(self, captures: Iterable[Path], now_ns: int) -> Iterator[tuple[str, Sample]]:
        """Last samples of files that are being written."""
        paths = {path for capture in set(captures) for path in sample_files_in(capture)}
        self._followed = {path: one for path, one in self._followed.items() if path in paths}
        for path in sorted(paths):
            try:
                age_ns = now_ns - path.stat().st_mtime_ns
            except OSError:
                continue
            followed = self._followed.setdefault(path, SampleTail(path))
            if not self._is_fresh(age_ns) and not self._is_fresh(age_ns, followed.interval_ns()):
                continue
            sample, interval_ns = followed.read(), followed.interval_ns()
            if sample is not None and self._is_fresh(now_ns - sample.realtime_ns, interval_ns):
                yield followed.host, sample

    def _sampled(self) -> Sample | None:
        if self._sampler is None:
            self._sampler = _Sampler(self.root, self.interval_s)
            self._sampler.start()
            self._sampler.first.wait(_FIRST_SAMPLE_S)
        return self._sampler.latest

    def _stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stopped.set()
            self._sampler = None
