"""System counters of hosts as metrics: `ncclscope serve --system`.

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

_FRESH_NS = 5_000_000_000  # older samples are not served, at the usual interval of 1 s
_LONGEST_INTERVAL_NS = 3_600_000_000_000  # that `run` accepts; a file is not trusted
_FIRST_SAMPLE_S = 2.0
_REASONS = SLOWDOWNS | {POWER_CAP: "SW power cap"}
# Counters and their metrics: name, labels after host and device, factor.
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


# ---- metrics of one host's sample ----
def add_host(
    samples: Samples, host: str, sample: Sample, age_s: float, pcie: PcieCapacities
) -> None:
    """Adds all series of one host; kinds of devices that this release does not know have none."""
    for device, numbers in sample.numbers.items():
        labels: Labels = (host,) if device.kind == HOST else (host, device.name)
        metrics = _METRICS.get(device.kind, {})
        if device.kind == GPU:
            _add_gpu(samples, labels, device, numbers)
            _add_pcie(samples, labels, numbers, pcie)
        for name, value in numbers.items():
            if name in metrics:
                metric, more, factor = metrics[name]
                samples.add(metric, (*labels, *more), value * factor)
    samples.add("host_sample_age_seconds", (host,), max(age_s, 0.0))


def _add_gpu(samples: Samples, labels: Labels, device: Device, numbers: Numbers) -> None:
    facts = device.facts
    about = (str(facts.get(name, "")) for name in ("uuid", "bus_id", "model"))
    samples.add("gpu", (*labels, *about), 1.0)
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
    """The PCIe link's capacity: the highest so far, because idle GPUs lower the generation."""
    now = pcie_capacity(numbers.get("pcie_generation", 0), numbers.get("pcie_width", 0))
    most = capacities[labels] = max(capacities.get(labels, 0), now or 0)
    if most:
        samples.add("gpu_pcie_capacity_bytes_per_second", labels, float(most))


# ---- where samples come from ----
class _SamplerThread(threading.Thread):
    """Samples this host in a thread: a driver that hangs must not stop `serve`."""

    def __init__(self, root: Path, interval_s: float) -> None:
        super().__init__(daemon=True, name="system")
        self._root, self._interval_s = root, interval_s
        self.first = threading.Event()
        self.stopped = threading.Event()
        self.latest: Sample | None = None

    def run(self) -> None:
        """Samples until `stopped` is set."""
        machine = SystemReader(self._root)
        while True:
            self.latest = machine.read()
            self.first.set()
            if self.stopped.wait(self._interval_s):
                return


@dataclass(slots=True)
class SystemMetrics:
    """Reads the newest sample of each host."""

    root: Path
    interval_s: float
    all_hosts: bool = False
    _tails: dict[Path, SampleTail] = field(default_factory=dict)
    _thread: _SamplerThread | None = None
    _pcie: PcieCapacities = field(default_factory=dict)

    def read(self, captures: Iterable[Path]) -> Samples:
        """Metrics of this host, and with `all_hosts` of others that captures have samples of."""
        here, now_ns = socket.gethostname(), time.time_ns()
        newest: dict[str, Sample] = {}
        for host, sample in self._from_captures(captures, now_ns):
            if (self.all_hosts or host == here) and (
                host not in newest or sample.realtime_ns > newest[host].realtime_ns
            ):
                newest[host] = sample
        if here in newest:
            self.stop_sampling()
        elif (own := self._sample_here()) is not None and self._is_fresh(now_ns - own.realtime_ns):
            newest[here] = own
        samples = Samples()
        for host, sample in sorted(newest.items()):
            age_s = (now_ns - sample.realtime_ns) / 1e9
            add_host(samples, host, sample, age_s, self._pcie)
        return samples

    def _is_fresh(self, age_ns: int, interval_ns: int = 0) -> bool:
        """Whether a sample of that age can be the newest of a sampler with that interval."""
        longest_ns = max(int(self.interval_s * 1e9), min(interval_ns, _LONGEST_INTERVAL_NS))
        return age_ns <= max(_FRESH_NS, 3 * longest_ns)

    def _from_captures(self, captures: Iterable[Path], now_ns: int) -> Iterator[tuple[str, Sample]]:
        """Hosts and last samples of the files that are being written."""
        paths = {path for capture in set(captures) for path in sample_files_in(capture)}
        self._tails = {path: tail for path, tail in self._tails.items() if path in paths}
        for path in sorted(paths):
            try:
                age_ns = now_ns - path.stat().st_mtime_ns
            except OSError:
                continue
            tail = self._tails.setdefault(path, SampleTail(path))
            if not self._is_fresh(age_ns) and not self._is_fresh(age_ns, tail.interval_ns()):
                continue
            sample, interval_ns = tail.read(), tail.interval_ns()
            if sample is not None and self._is_fresh(now_ns - sample.realtime_ns, interval_ns):
                yield tail.host, sample

    def _sample_here(self) -> Sample | None:
        """The last sample of the thread, which is started if it does not run."""
        if self._thread is None:
            self._thread = _SamplerThread(self.root, self.interval_s)
            self._thread.start()
            self._thread.first.wait(_FIRST_SAMPLE_S)
        return self._thread.latest

    def stop_sampling(self) -> None:
        """Stops the thread that samples this host, if it runs."""
        if self._thread is not None:
            self._thread.stopped.set()
            self._thread = None
