"""Network interfaces and InfiniBand ports, from /sys."""

import re
from pathlib import Path

from ncclscope.system.counters import NIC, PORT, Device
from ncclscope.system.host import Numbers, number_in, text_of

_MOST_NICS, _MOST_PORTS = 64, 64
_PORT_WORD_BYTES = 4  # port_xmit_data and port_rcv_data count words of four lanes
_NIC_COUNTERS = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
# Counters of a port: files of which the numbers are added up, those that are there.
_PORT_COUNTERS = {
    "link_downed": ("counters/link_downed",),
    "link_recoveries": ("counters/link_error_recovery",),
    "symbol_errors": ("counters/symbol_error",),
    "rx_errors": ("counters/port_rcv_errors", "counters/local_link_integrity_errors"),
    "tx_discards": ("counters/port_xmit_discards",),
    "tx_wait_ticks": ("counters/port_xmit_wait",),
    "retransmissions": (
        "hw_counters/local_ack_timeout_err",
        "hw_counters/out_of_sequence",
        "hw_counters/packet_seq_err",
    ),
    "congestion_notices": ("hw_counters/rp_cnp_handled",),
}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _nic(folder: Path) -> Numbers:
    found = {name: number_in(folder / "statistics" / name) for name in _NIC_COUNTERS}
    state = text_of(folder / "operstate").strip()
    found["up"] = None if state in ("", "unknown") else int(state == "up")
    found["speed_mbit_s"] = number_in(folder / "speed")
    return {name: value for name, value in found.items() if value is not None}


def _read_nics(root: Path) -> dict[Device, Numbers]:
    """Interfaces with a device behind them; in a container, which has none, all but loopback."""
    all_of_them = [path for path in _entries(root / "sys/class/net") if path.name != "lo"]
    real = [path for path in all_of_them if (path / "device").exists()]
    found = {}
    for path in (real or all_of_them)[:_MOST_NICS]:
        numbers = _nic(path)
        if numbers:
            found[Device(NIC, path.name)] = numbers
    return found


def _speed_mbit_s(rate: str) -> int | None:
    """400 Gb/sec (4X NDR)"""
    found = re.match(r"(\d{1,6})(?:\.(\d))? Gb/sec", rate)
    return int(found[1]) * 1000 + int(found[2] or 0) * 100 if found else None


def _port(folder: Path) -> Numbers:
    found: dict[str, int | None] = {}
    for name, file in (("rx_bytes", "port_rcv_data"), ("tx_bytes", "port_xmit_data")):
        words = number_in(folder / "counters" / file)
        found[name] = None if words is None else words * _PORT_WORD_BYTES
    for name, files in _PORT_COUNTERS.items():
        parts = [
            number for number in (number_in(folder / file) for file in files) if number is not None
        ]
        found[name] = sum(parts) if parts else None
    state = text_of(folder / "state").strip()  # 4: ACTIVE
    found["up"] = int(state.startswith("4:")) if state else None
    found["speed_mbit_s"] = _speed_mbit_s(text_of(folder / "rate"))
    return {name: value for name, value in found.items() if value is not None}


def _read_ports(root: Path) -> dict[Device, Numbers]:
    found: dict[Device, Numbers] = {}
    for card in _entries(root / "sys/class/infiniband"):
        for path in _entries(card / "ports"):
            numbers = _port(path)
            if numbers and len(found) < _MOST_PORTS:
                layer = text_of(path / "link_layer").strip()[:32]
                found[Device(PORT, f"{card.name}/{path.name}", {"layer": layer})] = numbers
    return found


def read_network(root: Path) -> dict[Device, Numbers]:
    """All interfaces and ports that there are."""
    return _read_nics(root) | _read_ports(root)
