"""Counters of network interfaces and InfiniBand ports, from /sys."""

import re
from pathlib import Path

from ncclscope.system.counters import NIC, PORT, Device
from ncclscope.system.host import Numbers, number_in, text_of

_MOST_NICS, _MOST_PORTS = 64, 64
_PORT_WORD_BYTES = 4  # port_xmit_data and port_rcv_data count words of four lanes
_NIC_COUNTERS = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
# Counters of a port, and the files whose numbers are added up; a port may lack some of them.
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
    values = {name: number_in(folder / "statistics" / name) for name in _NIC_COUNTERS}
    state = text_of(folder / "operstate").strip()
    values["up"] = None if state in ("", "unknown") else int(state == "up")
    values["speed_mbit_s"] = number_in(folder / "speed")
    return {name: value for name, value in values.items() if value is not None}


def _read_nics(root: Path) -> dict[Device, Numbers]:
    """Interfaces of hardware; in a container, which has none of them, all but loopback."""
    interfaces = [path for path in _entries(root / "sys/class/net") if path.name != "lo"]
    hardware = [path for path in interfaces if (path / "device").exists()]
    readings = ((path.name, _nic(path)) for path in (hardware or interfaces)[:_MOST_NICS])
    return {Device(NIC, name): numbers for name, numbers in readings if numbers}


def _speed_mbit_s(rate: str) -> int | None:
    """The speed in "400 Gb/sec (4X NDR)"; None if the text has none."""
    match = re.match(r"(\d{1,6})(?:\.(\d))? Gb/sec", rate)
    return int(match[1]) * 1000 + int(match[2] or 0) * 100 if match else None


def _port(folder: Path) -> Numbers:
    values: dict[str, int | None] = {}
    for name, file in (("rx_bytes", "port_rcv_data"), ("tx_bytes", "port_xmit_data")):
        words = number_in(folder / "counters" / file)
        values[name] = None if words is None else words * _PORT_WORD_BYTES
    for name, files in _PORT_COUNTERS.items():
        parts = [
            number for number in (number_in(folder / file) for file in files) if number is not None
        ]
        values[name] = sum(parts) if parts else None
    state = text_of(folder / "state").strip()  # 4: ACTIVE
    values["up"] = int(state.startswith("4:")) if state else None
    values["speed_mbit_s"] = _speed_mbit_s(text_of(folder / "rate"))
    return {name: value for name, value in values.items() if value is not None}


def _read_ports(root: Path) -> dict[Device, Numbers]:
    ports: dict[Device, Numbers] = {}
    for card in _entries(root / "sys/class/infiniband"):
        for path in _entries(card / "ports"):
            numbers = _port(path)
            if numbers and len(ports) < _MOST_PORTS:
                layer = text_of(path / "link_layer").strip()[:32]
                ports[Device(PORT, f"{card.name}/{path.name}", {"layer": layer})] = numbers
    return ports


def read_network(root: Path) -> dict[Device, Numbers]:
    """Counters of all interfaces and ports."""
    return _read_nics(root) | _read_ports(root)
