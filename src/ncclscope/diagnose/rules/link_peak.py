"""Bandwidth against what the links carry, where the capture tells that; peaks are never guessed.

Between nodes: the network devices that NCCL's log shows a communicator to use, at the speed that
samples beside the run or the log give them. Within a node: what the log gives a GPU's links
together, where it shows NVLink.
"""

from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.samples import HardwareSamples, known, links
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.diagnose.rules.below_expected import Reached, reached
from ncclscope.errors import FormatError
from ncclscope.humanize import binary_size, percent, plural
from ncclscope.ingest.nccl_log_topology import topology_of
from ncclscope.model.topology import Link, Topology

_SHORT, _GRAVE = 0.6, 0.3  # of the peak
_LOST_SHARE = 0.02  # of the run: less is nobody's concern
_LARGE_BYTES = 4 << 20  # a rank's part: of less, latency counts as well
_MOST = 5
_LOG, _SAMPLES = "NCCL's log", "samples beside the run"


@dataclass(frozen=True, slots=True)
class Peak:
    """What a communicator's narrowest links carry."""

    gbs: float
    what: str
    source: str


def find(frame: RuleContext) -> list[Finding]:
    """Communicators whose large collectives stay far below their links."""
    try:
        topology = topology_of(frame.model.path)
    except FormatError:  # `report` says so
        return []
    peaks = _peaks(frame, topology) if topology else {}
    if not peaks:
        return []
    alike: dict[tuple[str, str, int], list[Reached]] = {}
    for one in reached(frame):
        if one.communicator in peaks and one.size_bytes >= _LARGE_BYTES * one.ranks:
            name = frame.model.communicator_names[one.communicator].partition("#")[0]
            alike.setdefault((name, one.function, one.size_bytes), []).append(one)
    found = [_describe(frame, name, same, peaks) for (name, *_), same in alike.items()]
    short = [finding for finding in found if finding is not None]
    return sorted(short, key=lambda finding: -finding.lost_share)[:_MOST]


# ---- peaks ----
def _peaks(frame: RuleContext, topology: Topology) -> dict[int, Peak]:
    """By communicator."""
    table = frame.model.tables["communicators"]
    rows = {f"{one % (1 << 64):#x}": row for row, one in enumerate(table["id"].tolist())}
    of_comm: dict[int, list[Link]] = {}
    for link in topology.links:
        if link.communicator in rows:
            of_comm.setdefault(rows[link.communicator], []).append(link)
    speeds = _speeds(frame, topology)
    found = {}
    for row, mine in of_comm.items():
        inter = [link for link in mine if link.scope == "inter-node"]
        peak = _between_nodes(inter, speeds) if inter else _within_a_node(mine, topology)
        if peak is not None:
            found[row] = peak
    return found


def _speeds(frame: RuleContext, topology: Topology) -> dict[tuple[str, str], tuple[float, str]]:
    """GB/s by host and device, and who says so."""
    told = (one for one in topology.nic_speeds if one.mbit_s > 0)
    found = {(one.host, one.name): (one.mbit_s / 8e3, _LOG) for one in told}
    beside = HardwareSamples(frame)
    for place, track in links(beside, "speed_mbit_s").items():
        values = known(track)
        if len(values) and values.max() > 0:
            device = place[1].name.partition("/")[0]  # mlx5_0/1
            found[beside.host(place), device] = float(values.max()) / 8e3, _SAMPLES
    return found


def _between_nodes(
    inter: list[Link], speeds: dict[tuple[str, str], tuple[float, str]]
) -> Peak | None:
    """All that leaves a node goes through the devices it uses: the narrowest node counts."""
    devices: dict[str, set[str]] = {}
    for link in inter:
        for host, ends in (
            (link.source_host, link.nics[:1]),
            (link.destination_host, link.nics[-1:]),
        ):
            devices.setdefault(host, set()).update(ends)
    sums: list[tuple[float, str, str]] = []
    for host, names in devices.items():
        told = [speeds.get((host, name)) for name in sorted(names)]
        if not told or None in told:
            return None
        sources = sorted({one[1] for one in told if one})
        total = sum(one[0] for one in told if one)
        sums.append((total, f"{', '.join(sorted(names))} of {host}", " and ".join(sources)))
    return Peak(*min(sums)) if sums else None


def _within_a_node(intra: list[Link], topology: Topology) -> Peak | None:
    hosts = {host for link in intra for host in (link.source_host, link.destination_host)}
    totals = {one.host: one.total_mb_s / 1e3 for one in topology.gpu_links if one.total_mb_s > 0}
    if not all(link.nvlink for link in intra) or len(hosts) != 1:
        return None
    (host,) = hosts
    if host not in totals:
        return None
    return Peak(totals[host], f"the NVLinks of a GPU of {host}", f"{_LOG}, totalBw")


# ---- words ----
def _describe(
    frame: RuleContext, name: str, same: list[Reached], peaks: dict[int, Peak]
) -> Finding | None:
    """One finding for communicators of one name that make the same calls."""
    shares = [one.busbw_gbs / peaks[one.communicator].gbs for one in same]
    middle = int(np.argsort(shares)[(len(shares) - 1) // 2])
    share, typical = shares[middle], same[middle]
    if share >= _SHORT:
        return None
    peak = peaks[typical.communicator]
    lost = max(one.wire_ns for one in same) * (1 - share) / frame.span_ns
    names = tuple(frame.model.communicator_names[one.communicator] for one in same)
    where = f"{name} ({plural(len(same), 'communicator')})" if len(same) > 1 else names[0]
    return Finding(
        "below_expected",
        WARNING if share < _GRAVE and lost >= _LOST_SHARE else INFO,
        f"{typical.function} of {binary_size(typical.size_bytes)} on {where} reaches "
        f"{typical.busbw_gbs:.3g} GB/s of bus bandwidth on the wire, {percent(share)} of the "
        f"{peak.gbs:.3g} GB/s of {peak.what} (speed: {peak.source})",
        "other traffic or other GPUs on the same adapter, no GPUDirect RDMA, congestion, or few "
        "channels: `ncclscope report` has NCCL's links, `ncclscope bench` what they reach alone",
        "peak",
        communicators=names,
        confidence=0.6,
        lost_share=min(lost, 1.0),
        evidence=(
            Evidence(
                f"bus bandwidth over the wire against {peak.source}",
                {"busbw_gbs": round(typical.busbw_gbs, 4), "peak_gbs": peak.gbs, "of": peak.what},
                f"ncclscope report {frame.path} --comm {quote(names[0])}",
            ),
        ),
    )
