"""Machines that are not there: trees of /proc and /sys, GPUs of a made-up NVML, samples of them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ncclscope.analysis.run import Run
from ncclscope.capture.housekeeping import identity_of
from ncclscope.model.build import open_model
from ncclscope.system.counters import GPU, HOST, NIC, PORT, POWER_CAP, THE_HOST, Device
from ncclscope.system.sample import Sample
from ncclscope.system.sample_writer import SampleWriter
from tests.support.paths import DATA

FAKE_NVML = DATA / "nvml"  # for PYTHONPATH
HEALTHY_GPU: dict[str, Any] = {
    "uuid": "GPU-51309a7e-0000-0000-0000-000000000000", "utilization": 97, "memory_used": 60 << 30,
    "power_mw": 610_000, "power_limit_mw": 700_000, "temperature": 61, "sm_clock": 1755,
    "memory_clock": 2619, "throttle": 0, "pcie_generation": 5, "pcie_width": 16,
    "pcie_tx_bytes": 10**12, "pcie_rx_bytes": 2 * 10**12, "pcie_replays": 0,
    "nvlink_tx_kib": 10**9, "nvlink_rx_kib": 10**9, "nvlink_replays": 0, "nvlink_recoveries": 0,
    "ecc_corrected": 0, "ecc_uncorrected": 0, "xids": [],
}  # fmt: skip
_PROC = {
    "proc/stat": "cpu  1000 10 500 90000 40 5 6 7 0 0\ncpu0 500 5 250 0 0 0 0 0 0 0\n"
    "cpu1 500 5 250 0 0 0 0 0 0 0\nctxt 5\n",
    "proc/meminfo": "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n"
    "SwapTotal: 100 kB\nSwapFree: 75 kB\n",
    "proc/vmstat": "nr_free_pages 1\noom_kill 3\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0.00 avg300=0.00 total=1234\n",
    "proc/pressure/memory": "some avg10=0 avg60=0 avg300=0 total=50\n"
    "full avg10=0 avg60=0 avg300=0 total=20\n",
    "proc/pressure/io": "some avg10=0 avg60=0 avg300=0 total=70\n"
    "full avg10=0 avg60=0 avg300=0 total=60\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 900\n",
}  # fmt: skip
_PORT_COUNTERS = {
    "counters/port_xmit_data": 1000, "counters/port_rcv_data": 2000, "counters/link_downed": 1,
    "counters/symbol_error": 2, "counters/port_rcv_errors": 3, "counters/port_xmit_discards": 4,
    "counters/link_error_recovery": 5, "counters/port_xmit_wait": 6,
    "hw_counters/out_of_sequence": 7, "hw_counters/packet_seq_err": 8,
    "hw_counters/local_ack_timeout_err": 9, "hw_counters/rp_cnp_handled": 10,
}  # fmt: skip


def write_tree(root: Path, files: Mapping[str, str | int]) -> Path:
    """Files below a directory."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n" if isinstance(content, int) else content)
    return root


def whole_tree(root: Path) -> Path:
    """A host with two interfaces, of which one is real, and an InfiniBand port."""
    files: dict[str, str | int] = dict(_PROC)
    for name in ("lo", "eth0", "docker0"):
        folder = f"sys/class/net/{name}"
        counters = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
        for number, counter in enumerate(counters):
            files[f"{folder}/statistics/{counter}"] = 100 + number
        files[f"{folder}/operstate"] = "up\n"
        files[f"{folder}/speed"] = "100000\n" if name == "eth0" else "-1\n"
    files["sys/class/net/eth0/device/vendor"] = "0x15b3\n"
    port = "sys/class/infiniband/mlx5_0/ports/1"
    files |= {f"{port}/{name}": value for name, value in _PORT_COUNTERS.items()}
    files |= {f"{port}/state": "4: ACTIVE\n", f"{port}/rate": "400 Gb/sec (4X NDR)\n"}
    files[f"{port}/link_layer"] = "InfiniBand\n"
    return write_tree(root, files)


def gpus_file(path: Path, *gpus: Mapping[str, Any]) -> Path:
    """What FAKE_NVML names; written as a whole, because samplers read it meanwhile."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps([dict(gpu) for gpu in gpus]))
    new.replace(path)
    return path


def gpu(number: int, **facts: str | int) -> Device:
    """A GPU with the facts that NVML gives of an H100."""
    usual: dict[str, str | int] = {
        "uuid": f"GPU-51309a7e-0000-0000-0000-{number:012x}", "bus_id": f"00000000:{number:02X}:00.0",
        "memory_bytes": 80 << 30, "sm_clock_most_mhz": 1980, "pcie_generation_most": 5,
        "pcie_width_most": 16,
    }  # fmt: skip
    return Device(GPU, str(number), usual | facts)


def nic(name: str) -> Device:
    return Device(NIC, name)


def port(name: str) -> Device:
    return Device(PORT, name)


THE = Device(HOST, THE_HOST)


def write_journal(
    capture: Path, host: str, samples: list[Sample], pid: int = 1, **about: Any
) -> Path:
    """A sampler's file, as if it had run there."""
    header = {"host": host, "boot_id": f"boot-{host}", "pid": pid, "interval_ms": 1000, "notes": []}
    writer = SampleWriter(capture, header | about)
    for sample in samples:
        writer.write(sample)
    writer.close()
    return writer.path(0)


# ---- machines beside a written job ----
GPUS_A_HOST = 8
SAMPLES = 60
Numbers = dict[Device, dict[str, int]]
Change = Callable[[str, Numbers, int], None]  # host, what it says, number of the sample


def healthy(host: int, at: int, seconds: float) -> Numbers:
    """What a machine that is well says at its sample number `at`, taken every `seconds`."""
    moved = round(at * seconds * 1e9)
    found: Numbers = {}
    for number in range(GPUS_A_HOST):
        rank = host * GPUS_A_HOST + number
        found[Device(GPU, str(number), gpu(rank).facts)] = {
            "utilization_percent": 97 - at % 3, "memory_used_bytes": 60 << 30,
            "power_mw": 600_000 + 1000 * (at % 7), "power_limit_mw": 700_000, "temperature_c": 60,
            "sm_clock_mhz": 1755 - 15 * (at % 2), "throttle_reasons": POWER_CAP * (at % 2),
            "pcie_generation": 5, "pcie_width": 16, "pcie_tx_bytes": 10**12 + 5 * moved,
            "pcie_rx_bytes": 10**12 + 5 * moved, "pcie_replays": 3,
            "nvlink_tx_bytes": 10**14 + 90 * moved, "nvlink_rx_bytes": 10**14 + 90 * moved,
            "nvlink_errors": 2, "ecc_corrected": 1, "ecc_uncorrected": 0, "xid_errors": 0,
            "last_xid": 0,
        }  # fmt: skip
    found[nic("eth0")] = {
        "rx_bytes": 10**9 + moved // 1000, "tx_bytes": 10**9, "rx_errors": 0, "tx_errors": 0,
        "rx_dropped": 7 * at, "tx_dropped": 0, "up": 1, "speed_mbit_s": 25_000,
    }  # fmt: skip
    for number in range(4):
        found[port(f"mlx5_{number}/1")] = {
            "rx_bytes": 10**12 + 20 * moved, "tx_bytes": 10**12 + 20 * moved, "link_downed": 1,
            "link_recoveries": 0, "symbol_errors": 0, "rx_errors": 0, "tx_discards": 0,
            "tx_wait_ticks": 900 * at, "retransmissions": 40 + at // 4, "congestion_notices": at,
            "up": 1, "speed_mbit_s": 400_000,
        }  # fmt: skip
    found[THE] = {
        "cpus": 192, "cpu_busy_ms": round(60_000 * at * seconds), "cpu_steal_ms": 0,
        "cpu_throttled_us": 0, "memory_available_bytes": 1 << 40, "memory_bytes": 2 << 40,
        "swap_used_bytes": 0, "oom_kills": 2, "cpu_pressure_us": round(3e4 * at * seconds),
        "memory_pressure_us": 10, "memory_full_us": 5, "io_pressure_us": round(2e5 * at * seconds),
        "io_full_us": round(1e5 * at * seconds),
    }  # fmt: skip
    return found


def with_samples(capture: Path, change: Change | None = None, samples: int = SAMPLES) -> Path:
    """Samples of all hosts of a written job, over the time of its run."""
    model = open_model(capture)
    begin, end = Run(model).extent
    every_ns = (end - begin) // (samples - 1)
    for node, host in enumerate(model.nodes):
        folder = next(row.folder for row in model.processes if row.node == node)
        boot_id = identity_of(capture / folder)["boot_id"]
        taken = []
        for at in range(samples):
            numbers = healthy(node, at, every_ns / 1e9)
            if change:
                change(host, numbers, at)
            local_ns = begin + at * every_ns - int(model.clocks[node].offset_ns[0])
            taken.append(Sample(local_ns, local_ns + 10**18, numbers))
        write_journal(capture, host, taken, boot_id=boot_id)
    return capture
