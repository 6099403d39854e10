"""How ranks are connected, by NCCL's log.

Transports, NICs, rings, trees and choices of algorithms are taken as NCCL logs them. NVLink is
claimed only for links between ranks whose log shows that NCCL found it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ncclscope.ingest.files import ends_of, lines_of
from ncclscope.ingest.nccl_log import Init, Line, init_in, key_of, parse_line, version_in
from ncclscope.ingest.records import ImportReport
from ncclscope.model.schema import NONE
from ncclscope.model.topology import (
    Choice,
    Connected,
    GpuLinks,
    Link,
    Nic,
    NicSpeed,
    Topology,
    Warning,
)
from ncclscope.nccl.algorithms import ALGORITHMS, PROTOCOLS

_MOST_LINKS, _MOST_OTHERS = 1 << 20, 1 << 12
_LINK = re.compile(
    r"(?:Channel|Ring) (\d{1,3})(?:/(\d+))? : (\d{1,7})(?:\[[0-9a-f]+\])? -> "
    r"(\d{1,7})(?:\[[0-9a-f]+\])?(?: \[(send|receive)\])? via (.+)"
)
_RING = re.compile(r"Channel (\d{1,3})/(\d{1,3}) : +(\d[\d ]*)$")
_NEIGHBOURS = re.compile(r"Ring (\d{1,3}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})$")
_TREE = re.compile(
    r"\[(\d{1,3})\] (-?\d{1,7})/(-?\d{1,7})/(-?\d{1,7})->(-?\d{1,7})->(-?\d{1,7})(?=\||\s|$)"
)
_USING = re.compile(r"NET/(\w[\w .-]*?) *: Using (\[0\].*)")
_NIC = re.compile(r"\[(\d{1,3})\]([^\s:;,]+)(?::\d+)?(?:/(\w+))?")
_FUSED = re.compile(r"NET/(\w+) *: Made virtual device \[(\d{1,3})\] name=(\S+)")
_SPEED = re.compile(r"NET/\w+ ?: \[\d{1,3}\] ?([^\s:]{1,64}):.*? speed=(\d{1,8})\b")
_SYSTEM = re.compile(r"=== System : maxBw \d+\.\d+ totalBw (\d{1,6}\.\d{1,3}) ===")
_NETWORK = re.compile(r"Using network (.+)")
_NODES = re.compile(r"comm (0x[0-9a-f]+) rank \d+ nRanks \d+ nNodes (\d{1,7})")
_CHANNELS = re.compile(r"(\d{1,3}) (coll|collnet|nvls|p2p) channels\b(?! per)")
_PATTERN = re.compile(r"Pattern \d+,.*? type (\w+)/(\w+)")
_CHOICE = re.compile(r"(?:(\w+): )?(\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_ENVIRONMENT = re.compile(r"(NCCL_\w{1,64}) set by environment to (.{0,200}?)\.?$")
_NVLINK_PATHS = ("NVL", "NVB")
# INFO lines that explain a slow job as well as a warning does.
_NOTICES = (
    "No device found", "GPU Direct RDMA Disabled", "P2P is disabled", "Could not enable P2P",
    "falling back", "Failed to ", "NCCL_P2P_DISABLE set", "NCCL_IB_DISABLE set",
    "NCCL_SHM_DISABLE set",
)  # fmt: skip


def topology_of_logs(logs: Iterable[Path]) -> Topology:
    """The topology by some logs together."""
    return _topology_of(logs, lines_of)


def topology_of_ends(logs: Iterable[Path]) -> Topology:
    """The topology by the beginning and the end of some logs."""
    return _topology_of(logs, ends_of)


def _topology_of(
    logs: Iterable[Path], read: Callable[[Path, ImportReport], Iterator[bytes]]
) -> Topology:
    facts, report = _Facts(), ImportReport()
    for log in logs:
        facts.add_log(read(log, report))
    return facts.topology(report)


@dataclass(slots=True)
class _Comm:
    ranks: int = 0
    nodes: int = NONE
    hosts: dict[int, str] = field(default_factory=dict)  # by rank
    channels: dict[str, int] = field(default_factory=dict)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    nexts: dict[int, dict[int, int]] = field(default_factory=dict)  # by channel and rank
    trees: dict[int, dict[int, int]] = field(default_factory=dict)


class _Facts:
    """What lines said so far; every list is bounded."""

    def __init__(self) -> None:
        self._releases: Counter[str] = Counter()
        self._networks: Counter[str] = Counter()
        self._warnings: dict[tuple[str, bool], Counter[str]] = {}
        self._comms: dict[str, _Comm] = {}
        self._pointers: dict[tuple[str, int], dict[str, str]] = {}  # keys, by process
        self._current: dict[tuple[str, int, int], str] = {}  # by thread, and by device below zero
        self._links: dict[tuple[str, int, int, str], set[int]] = {}
        self._nics: dict[tuple[str, str, int], str] = {}
        self._choices: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        self._environment: dict[str, dict[str, None]] = {}
        self._nvlink: dict[str, None] = {}
        self._speeds: dict[tuple[str, str], int] = {}  # by host and device
        self._gpu_links: dict[str, int] = {}  # MB/s by host
        self._lines = self._left_out = 0

    def add_log(self, lines: Iterable[bytes]) -> None:
        """Reads one log."""
        for raw in lines:
            if b"NCCL" not in raw:
                continue
            release = version_in(raw)
            if release and len(self._releases) < _MOST_OTHERS:
                self._releases[release] += 1
            line = parse_line(raw)
            if line is None:
                continue
            self._lines += 1
            if line.level in ("WARN", "ERROR"):
                self._warn(line, notice=False)
            else:
                self._add(line)

    def _warn(self, line: Line, notice: bool) -> None:
        key = (line.text[:400], notice)
        if key in self._warnings or len(self._warnings) < _MOST_OTHERS:
            self._warnings.setdefault(key, Counter())[line.host] += 1
        else:
            self._left_out += 1

    def _add(self, line: Line) -> None:
        text = line.text
        if " via " in text and self._link(line):
            return
        if any(notice in text for notice in _NOTICES):
            self._warn(line, notice=True)
        init = init_in(text) if " rank " in text else None
        if init:
            self._init(line, init)
        comm = self._comm(line)
        if comm is not None:
            self._structure(comm, text)
        self._others(line, text)

    # ---- communicators ----
    def _init(self, line: Line, init: Init) -> None:
        pointers = self._pointers.setdefault((line.host, line.pid), {})
        key = key_of(init, pointers) or pointers.get(init.pointer, "")
        if not key:  # older releases name no hash: ranks of one size are one communicator
            key = f"{init.ranks} ranks"
        if key not in self._comms and len(self._comms) >= _MOST_OTHERS:
            self._left_out += 1
            return
        pointers[init.pointer] = key
        comm = self._comms.setdefault(key, _Comm())
        comm.ranks = max(comm.ranks, init.ranks)
        comm.hosts[init.rank] = line.host
        self._current[line.host, line.pid, line.thread] = key
        self._current[line.host, line.pid, -1 - line.device] = key
        nodes = _NODES.search(line.text)
        if nodes:
            comm.nodes = int(nodes[2])

    def _key(self, line: Line) -> str | None:
        host, pid = line.host, line.pid
        by_thread = self._current.get((host, pid, line.thread))
        return by_thread or self._current.get((host, pid, -1 - line.device))

    def _comm(self, line: Line) -> _Comm | None:
        key = self._key(line)
        return self._comms[key] if key else None

    def _structure(self, comm: _Comm, text: str) -> None:
        ring = _RING.match(text)
        if ring:
            comm.rings[int(ring[1])] = tuple(map(int, ring[3].split()[: 1 << 16]))
            return
        around = _NEIGHBOURS.match(text)
        if around:
            comm.nexts.setdefault(int(around[1]), {})[int(around[3])] = int(around[4])
        elif text.startswith("Trees "):
            for channel, *_, rank, parent in _TREE.findall(text):
                comm.trees.setdefault(int(channel), {})[int(rank)] = int(parent)
        elif " channels" in text:
            for count, kind in _CHANNELS.findall(text):
                comm.channels[kind] = int(count)

    # ---- links ----
    def _link(self, line: Line) -> bool:
        match = _LINK.match(line.text)
        if not match:
            return False
        channel, _, source, destination, _, via = match.groups()
        key = (self._key(line) or "", int(source), int(destination), via[:100])
        if key in self._links or len(self._links) < _MOST_LINKS:
            self._links.setdefault(key, set()).add(int(channel))
        else:
            self._left_out += 1
        return True

    # ---- the rest ----
    def _others(self, line: Line, text: str) -> None:
        using = _USING.match(text)
        if using:
            for index, name, _ in _NIC.findall(using[2].split("; OOB")[0]):
                self._nics[line.host, using[1], int(index)] = name
        self._peak(line.host, text)
        fused = _FUSED.match(text)
        if fused:
            self._nics[line.host, fused[1], int(fused[2])] = fused[3][:100]
        network = _NETWORK.match(text)
        if network and len(self._networks) < _MOST_OTHERS:
            self._networks[network[1][:100]] += 1
        pattern = _PATTERN.search(text)
        if pattern and pattern[1] in _NVLINK_PATHS:
            self._nvlink[line.host] = None
        if "+ NVL[" in text:
            self._nvlink[line.host] = None
        self._choice(text)
        variable = _ENVIRONMENT.search(text)
        if variable and len(self._environment) < _MOST_OTHERS:
            values = self._environment.setdefault(variable[1], {})
            if len(values) < 16:
                values[variable[2]] = None

    def _peak(self, host: str, text: str) -> None:
        """Bandwidths of links, as NCCL detected them."""
        speed = _SPEED.match(text) if " speed=" in text else None
        if speed and len(self._speeds) < _MOST_OTHERS:
            self._speeds[host, speed[1]] = int(speed[2])
        system = _SYSTEM.match(text)
        if system and len(self._gpu_links) < _MOST_OTHERS:
            total_mb_s = round(float(system[1]) * 1000)
            self._gpu_links[host] = max(self._gpu_links.get(host, 0), total_mb_s)

    def _choice(self, text: str) -> None:
        match = _CHOICE.search(text)
        if not match:
            return
        function, size, algorithm, protocol = match.groups()
        names = (
            function or "", _named(algorithm, ALGORITHMS),
            _named(protocol, PROTOCOLS),
        )  # fmt: skip
        if names not in self._choices and len(self._choices) >= _MOST_OTHERS:
            return
        count, least, most = self._choices.get(names, (0, int(size), int(size)))
        self._choices[names] = (count + 1, min(least, int(size)), max(most, int(size)))

    # ---- the end ----
    def topology(self, report: ImportReport) -> Topology:
        """The topology by all lines together."""
        warnings = [
            Warning(text, sum(hosts.values()), tuple(sorted(hosts)), notice)
            for (text, notice), hosts in self._warnings.items()
        ]
        notes = [f"{count:,} {reason}" for reason, count in report.lost.items()]
        if self._left_out:
            notes.append(f"{self._left_out:,} lines of NCCL's log left out: too many of a kind")
        return Topology(
            releases=tuple(release for release, _ in self._releases.most_common()),
            networks=tuple(name for name, _ in self._networks.most_common()),
            warnings=tuple(sorted(warnings, key=lambda one: (one.notice, -one.count, one.text))),
            communicators=tuple(self._connected()),
            links=tuple(self._all_links()),
            nics=tuple(Nic(*key, name) for key, name in sorted(self._nics.items())),
            choices=tuple(Choice(*key, *numbers) for key, numbers in sorted(self._choices.items())),
            environment={name: tuple(values) for name, values in sorted(self._environment.items())},
            nvlink_hosts=tuple(sorted(self._nvlink)),
            nic_speeds=tuple(NicSpeed(*key, speed) for key, speed in sorted(self._speeds.items())),
            gpu_links=tuple(GpuLinks(*one) for one in sorted(self._gpu_links.items())),
            lines=self._lines,
            notes=tuple(notes),
        )

    def _connected(self) -> Iterator[Connected]:
        for key, comm in self._comms.items():
            rings = dict(comm.rings)
            for channel, nexts in comm.nexts.items():
                whole = _around(nexts, comm.ranks)
                if channel not in rings and whole:
                    rings[channel] = whole
            hosts = tuple(sorted(set(comm.hosts.values())))
            yield Connected(
                key, comm.ranks, comm.nodes, hosts, comm.channels, dict(sorted(rings.items())),
                dict(sorted(comm.trees.items())),
            )  # fmt: skip

    def _all_links(self) -> Iterator[Link]:
        for (key, source, destination, via), channels in sorted(self._links.items()):
            hosts = self._comms[key].hosts if key else {}
            from_host, to_host = hosts.get(source, ""), hosts.get(destination, "")
            transport, *details = via.split("/")
            scope = ""
            if from_host and to_host:
                scope = "intra-node" if from_host == to_host else "inter-node"
            elif transport in ("SHM", "P2P"):
                scope = "intra-node" if transport == "SHM" else ""
            by_nvlink = transport == "P2P" and {from_host, to_host} - {""} <= self._nvlink.keys()
            yield Link(
                communicator=key,
                source=source,
                destination=destination,
                source_host=from_host,
                destination_host=to_host,
                transport="/".join([transport, *details[:1]]) if transport == "NET" else transport,
                via=via,
                scope=scope,
                nvlink=by_nvlink and bool(from_host or to_host),
                nics=self._nic_names(details, from_host, to_host) if transport == "NET" else (),
                gpu_direct="GDRDMA" in via,
                channels=len(channels),
            )

    def _nic_names(self, details: list[str], *hosts: str) -> tuple[str, ...]:
        """Names of the device with that number on the hosts of both ends."""
        index = re.match(r"\d{1,3}", details[1]) if len(details) > 1 else None
        if not index:
            return ()
        family = "Socket" if details[0] == "Socket" else "IB"
        names = [
            self._nics.get((host, network, int(index[0])))
            for host in hosts
            for network in dict.fromkeys((details[0], family))
        ]
        return tuple(dict.fromkeys(name for name in names if name)) or (f"device {index[0]}",)


def _named(word: str, numbered: tuple[str, ...]) -> str:
    """Older releases log numbers."""
    if word.isdigit():
        return numbered[int(word)] if int(word) < len(numbered) else word
    return word.upper()


def _around(nexts: dict[int, int], ranks: int) -> tuple[int, ...]:
    """The ring that neighbours make; () where some are missing."""
    order: list[int] = []
    rank = min(nexts, default=0)
    while rank in nexts and len(order) <= ranks:
        order.append(rank)
        rank = nexts[rank]
        if rank == order[0]:
            return tuple(order) if len(order) == ranks else ()
    return ()
