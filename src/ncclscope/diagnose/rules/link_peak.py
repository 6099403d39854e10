"""Bandwidth against what the links can carry, where the capture says that. Peaks are never guessed.

Between nodes: the network devices that a communicator uses by NCCL's log, at their speed by samples
or by the log. Within a node: the sum of a GPU's links by the log, where it shows NVLink.
"""

from dataclasses import dataclass
from shlex import quote

import numpy as np

from ncclscope.analysis.wire_bandwidth import WireBandwidth, wire_bandwidths
from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.samples import HardwareSamples, known_values
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, percent, plural
from ncclscope.model.topology import Link, Topology

_SHORT, _GRAVE = 0.6, 0.3  # of the peak
_LOST_SHARE = 0.02  # of the run: less is nobody's concern
_LARGE_BYTES = 4 << 20  # a rank's part: of less, latency counts as well
_MOST = 5
_LOG, _SAMPLES = "NCCL's log", "samples beside the run"
Speed = tuple[float, str]  # GB/s, and where it is from


@dataclass(frozen=True, slots=True)
class Peak:
    """What a communicator's narrowest links can carry."""

    gbs: float
    what: str  # which links
    source: str  # where the speed is from


def find(context: RuleContext) -> list[Finding]:
    """Communicators whose large collectives stay far below their links."""
    peaks = _peaks(context, context.topology) if context.topology else {}
    if not peaks:
        return []
    alike: dict[tuple[str, str, int], list[WireBandwidth]] = {}
    for reached in wire_bandwidths(context.run):
        if reached.communicator in peaks and reached.size_bytes >= _LARGE_BYTES * reached.ranks:
            name = context.model.communicator_names[reached.communicator].partition("#")[0]
            alike.setdefault((name, reached.function, reached.size_bytes), []).append(reached)
    findings = [_describe(context, name, same, peaks) for (name, *_), same in alike.items()]
    short = [finding for finding in findings if finding is not None]
    return sorted(short, key=lambda finding: -finding.lost_share)[:_MOST]


# ---- peaks ----
def _peaks(context: RuleContext, topology: Topology) -> dict[int, Peak]:
    """By communicator, where the speeds of its links are known."""
    table = context.model.tables["communicators"]
    rows = {f"{number % (1 << 64):#x}": row for row, number in enumerate(table["id"].tolist())}
    links_of: dict[int, list[Link]] = {}
    for link in topology.links:
        if link.communicator in rows:
            links_of.setdefault(rows[link.communicator], []).append(link)
    speeds = _speeds(context, topology)
    peaks = {}
    for row, links in links_of.items():
        inter = [link for link in links if link.scope == "inter-node"]
        peak = _between_nodes(inter, speeds) if inter else _within_a_node(links, topology)
        if peak is not None:
            peaks[row] = peak
    return peaks


def _speeds(context: RuleContext, topology: Topology) -> dict[tuple[str, str], Speed]:
    """By host and device; samples before the log."""
    speeds = {
        (nic.host, nic.name): (nic.mbit_s / 8e3, _LOG)
        for nic in topology.nic_speeds
        if nic.mbit_s > 0
    }
    samples = HardwareSamples(context)
    for place, series in samples.link_series("speed_mbit_s").items():
        values = known_values(series)
        if len(values) and values.max() > 0:
            device = place[1].name.partition("/")[0]  # mlx5_0/1
            speeds[samples.host(place), device] = float(values.max()) / 8e3, _SAMPLES
    return speeds


def _between_nodes(inter: list[Link], speeds: dict[tuple[str, str], Speed]) -> Peak | None:
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
        known = [speeds[host, name] for name in sorted(names) if (host, name) in speeds]
        if not names or len(known) < len(names):
            return None
        total, sources = sum(gbs for gbs, _ in known), sorted({source for _, source in known})
        sums.append((total, f"{', '.join(sorted(names))} of {host}", " and ".join(sources)))
    return Peak(*min(sums)) if sums else None


def _within_a_node(intra: list[Link], topology: Topology) -> Peak | None:
    hosts = {host for link in intra for host in (link.source_host, link.destination_host)}
    totals = {gpu.host: gpu.total_mb_s / 1e3 for gpu in topology.gpu_links if gpu.total_mb_s > 0}
    if not all(link.nvlink for link in intra) or len(hosts) != 1:
        return None
    (host,) = hosts
    if host not in totals:
        return None
    return Peak(totals[host], f"the NVLinks of a GPU of {host}", f"{_LOG}, totalBw")


# ---- sentences ----
def _describe(
    context: RuleContext, name: str, same: list[WireBandwidth], peaks: dict[int, Peak]
) -> Finding | None:
    """One finding for communicators of one name that make the same calls."""
    shares = [reached.busbw_gbs / peaks[reached.communicator].gbs for reached in same]
    middle = int(np.argsort(shares)[(len(shares) - 1) // 2])
    share, typical = shares[middle], same[middle]
    if share >= _SHORT:
        return None
    peak = peaks[typical.communicator]
    lost = max(reached.wire_ns for reached in same) * (1 - share) / context.run.span_ns
    names = tuple(context.model.communicator_names[reached.communicator] for reached in same)
    where = f"{name} ({plural(len(same), 'communicator')})" if len(same) > 1 else names[0]
    return Finding(
        "below_expected",
        WARNING if share < _GRAVE and lost >= _LOST_SHARE else INFO,
        f"{typical.function} of {binary_size(typical.size_bytes)} on {where} reaches "
        f"{typical.busbw_gbs:.3g} GB/s of bus bandwidth on the wire, {percent(share)} of the "
        f"{peak.gbs:.3g} GB/s of {peak.what} (speed: {peak.source})",
        "other traffic or other GPUs on the same adapter, no GPUDirect RDMA, congestion, or few "
        "channels: `ncclscope report` has NCCL's links, `ncclscope bench` what they reach alone",
        kind="peak",
        communicators=names,
        confidence=0.6,
        lost_share=min(lost, 1.0),
        evidence=(
            Evidence(
                f"bus bandwidth over the wire against {peak.source}",
                {"busbw_gbs": round(typical.busbw_gbs, 4), "peak_gbs": peak.gbs, "of": peak.what},
                f"ncclscope report {context.path} --comm {quote(names[0])}",
            ),
        ),
    )
