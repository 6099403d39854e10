"""All counters of a host at one moment."""

import time
from dataclasses import dataclass
from pathlib import Path

from ncclscope.system.counters import COUNTERS, GPU, NIC, PORT, Device
from ncclscope.system.gpus import Gpus
from ncclscope.system.host import Numbers, read_host
from ncclscope.system.network import read_network


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters by device; it contains only the devices and counters that the host has."""

    monotonic_ns: int
    realtime_ns: int
    numbers: dict[Device, Numbers]


class SystemReader:
    """Reads this host's counters; `root` is the directory that has its /proc and /sys."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._gpus = root, Gpus()

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be read here, and why."""
        return (f"no GPU counters: {self._gpus.why_none}",) if self._gpus.why_none else ()

    def read(self) -> Sample:
        """All counters now."""
        monotonic_ns, realtime_ns = time.monotonic_ns(), time.time_ns()
        numbers = {**self._gpus.read(), **read_network(self._root), **read_host(self._root)}
        return Sample(monotonic_ns, realtime_ns, numbers)


def counters_of_devices(numbers: dict[Device, Numbers]) -> list[tuple[Device, tuple[str, ...]]]:
    """The names of each device's counters, in the order of `COUNTERS`."""
    return [
        (device, tuple(c.name for c in COUNTERS[device.kind] if c.name in values))
        for device, values in numbers.items()
    ]


def device_counts(devices: list[Device]) -> tuple[int, int]:
    """Number of GPUs, and number of interfaces and ports."""
    gpus = sum(device.kind == GPU for device in devices)
    return gpus, sum(device.kind in (NIC, PORT) for device in devices)
