"""Everything of the machine at one moment."""

import time
from dataclasses import dataclass
from pathlib import Path

from ncclscope.system.counters import COUNTERS, GPU, NIC, PORT, Device
from ncclscope.system.gpus import Gpus
from ncclscope.system.host import Numbers, read_host
from ncclscope.system.network import read_network


@dataclass(frozen=True, slots=True)
class Sample:
    """Numbers by device. Devices and counters that a machine does not have are not there."""

    monotonic_ns: int
    realtime_ns: int
    numbers: dict[Device, Numbers]


class SystemReader:
    """This host; `root` is where its /proc and /sys are to be found."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._gpus = root, Gpus()

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be had here, and why."""
        return (f"no GPU counters: {self._gpus.why_none}",) if self._gpus.why_none else ()

    def read(self) -> Sample:
        """What everything says now."""
        monotonic_ns, realtime_ns = time.monotonic_ns(), time.time_ns()
        numbers = {**self._gpus.read(), **read_network(self._root), **read_host(self._root)}
        return Sample(monotonic_ns, realtime_ns, numbers)


def in_order(numbers: dict[Device, Numbers]) -> list[tuple[Device, tuple[str, ...]]]:
    """Devices with the counters that they have, in the catalogue's order."""
    return [
        (device, tuple(one.name for one in COUNTERS[device.kind] if one.name in mine))
        for device, mine in numbers.items()
    ]


def amounts(devices: list[Device]) -> tuple[int, int]:
    """How many GPUs, and how many interfaces and ports."""
    gpus = sum(device.kind == GPU for device in devices)
    return gpus, sum(device.kind in (NIC, PORT) for device in devices)
