"""Every counter that is sampled, in one list; docs/format.md has the same list.

Values are integers, 0 or more. A total counts from the start of the device, its driver or its host;
the difference of two samples is what happened between them.
"""

from dataclasses import dataclass, field

GAUGE, TOTAL, BITS = "gauge", "total", "bits"
GPU, NIC, PORT, HOST = "gpu", "nic", "port", "host"
THE_HOST = "host"  # the name of the one device of its kind


@dataclass(frozen=True, slots=True)
class Counter:
    """One number of a device."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Device:
    """What counters belong to: a GPU, an interface, a port of an InfiniBand card, the host."""

    kind: str
    name: str
    facts: dict[str, str | int] = field(default_factory=dict, compare=False)  # constant properties

    @property
    def label(self) -> str:
        """Its name in a sentence: GPU 3, mlx5_0/1, eth0."""
        return f"GPU {self.name}" if self.kind == GPU else self.name


COUNTERS = {
    GPU: (
        Counter("utilization_percent", GAUGE, "time in which a kernel ran, NCCL's included"),
        Counter("memory_used_bytes", GAUGE, "memory in use"),
        Counter("power_mw", GAUGE, "power drawn"),
        Counter("power_limit_mw", GAUGE, "power allowed"),
        Counter("temperature_c", GAUGE, "temperature of the chip"),
        Counter("sm_clock_mhz", GAUGE, "clock of the multiprocessors"),
        Counter("memory_clock_mhz", GAUGE, "clock of the memory"),
        Counter("throttle_reasons", BITS, "why clocks are lower than they could be, NVML's bits"),
        Counter("pcie_generation", GAUGE, "PCIe generation in use; lower on an idle GPU"),
        Counter("pcie_width", GAUGE, "PCIe lanes in use"),
        Counter("pcie_tx_bytes", TOTAL, "sent over PCIe"),
        Counter("pcie_rx_bytes", TOTAL, "received over PCIe"),
        Counter("pcie_tx_bytes_per_s", GAUGE, "sent over 20 ms, where there is no total"),
        Counter("pcie_rx_bytes_per_s", GAUGE, "received over 20 ms, where there is no total"),
        Counter("pcie_replays", TOTAL, "PCIe packets sent again"),
        Counter("nvlink_tx_bytes", TOTAL, "sent over all NVLinks"),
        Counter("nvlink_rx_bytes", TOTAL, "received over all NVLinks"),
        Counter("nvlink_errors", TOTAL, "CRC errors, replays and recoveries of all NVLinks"),
        Counter("ecc_corrected", TOTAL, "memory errors that were corrected"),
        Counter("ecc_uncorrected", TOTAL, "memory errors that were not"),
        Counter("xid_errors", TOTAL, "the driver's Xid messages since sampling began"),
        Counter("last_xid", GAUGE, "number of the last of them"),
    ),
    NIC: (
        Counter("rx_bytes", TOTAL, "received"),
        Counter("tx_bytes", TOTAL, "sent"),
        Counter("rx_errors", TOTAL, "packets received damaged"),
        Counter("tx_errors", TOTAL, "packets that could not be sent"),
        Counter("rx_dropped", TOTAL, "packets received and not taken"),
        Counter("tx_dropped", TOTAL, "packets not sent"),
        Counter("up", GAUGE, "1 while the link is up"),
        Counter("speed_mbit_s", GAUGE, "what the link was negotiated to"),
    ),
    PORT: (
        Counter("rx_bytes", TOTAL, "received"),
        Counter("tx_bytes", TOTAL, "sent"),
        Counter("link_downed", TOTAL, "times the link went down"),
        Counter("link_recoveries", TOTAL, "times the link was trained again"),
        Counter("symbol_errors", TOTAL, "symbols received damaged"),
        Counter("rx_errors", TOTAL, "packets received damaged"),
        Counter("tx_discards", TOTAL, "packets not sent: the link was down or congested"),
        Counter("tx_wait_ticks", TOTAL, "ticks with data to send and no room at the other end"),
        Counter("retransmissions", TOTAL, "timeouts, out-of-sequence packets, sequence errors"),
        Counter("congestion_notices", TOTAL, "congestion notifications taken (RoCE)"),
        Counter("up", GAUGE, "1 while the port is active"),
        Counter("speed_mbit_s", GAUGE, "what the link was trained to"),
    ),
    HOST: (
        Counter("cpus", GAUGE, "processors that are on"),
        Counter("cpu_busy_ms", TOTAL, "CPU time of everything that ran, all processors together"),
        Counter("cpu_steal_ms", TOTAL, "CPU time that a hypervisor gave to others"),
        Counter("cpu_throttled_us", TOTAL, "the control group kept from running, summed over CPUs"),
        Counter("memory_available_bytes", GAUGE, "memory that programs could still have"),
        Counter("memory_bytes", GAUGE, "memory there is"),
        Counter("swap_used_bytes", GAUGE, "swap in use"),
        Counter("oom_kills", TOTAL, "processes killed for want of memory"),
        Counter("cpu_pressure_us", TOTAL, "time in which somebody waited for a CPU"),
        Counter("memory_pressure_us", TOTAL, "time in which somebody waited for memory"),
        Counter("memory_full_us", TOTAL, "time in which everybody waited for memory"),
        Counter("io_pressure_us", TOTAL, "time in which somebody waited for I/O"),
        Counter("io_full_us", TOTAL, "time in which everybody waited for I/O"),
    ),
}  # fmt: skip

# NVML's bits of throttle_reasons that make a GPU slower than it was meant to be.
SLOWDOWNS = {
    0x08: "HW slowdown",
    0x20: "SW thermal slowdown",
    0x40: "HW thermal slowdown",
    0x80: "HW power brake",
}
POWER_CAP = 0x04  # usual on busy GPUs: notable only where other GPUs of the job do not have it
# Bytes a second of one PCIe lane, by generation, after line coding.
PCIE_LANE_BYTES_PER_S = {
    1: 250_000_000, 2: 500_000_000, 3: 984_600_000, 4: 1_969_000_000, 5: 3_938_000_000,
    6: 7_563_000_000,
}  # fmt: skip


def pcie_capacity(generation: int, width: int) -> int | None:
    """The most bytes a second that a PCIe link moves in one direction; None if it is unknown."""
    lane = PCIE_LANE_BYTES_PER_S.get(generation)
    return lane * width if lane and 0 < width <= 32 else None
