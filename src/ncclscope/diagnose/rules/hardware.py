"""The machine beside NCCL: what of GPUs, network and hosts explains a slow run, and whom.

Everything is held against the other GPUs, links and hosts of the run. Needs `run --system`.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from ncclscope.arrays.intervals import union_lengths
from ncclscope.diagnose.finding import INFO, Evidence, Finding, at_least
from ncclscope.diagnose.hardware import gpus, hosts, network
from ncclscope.diagnose.hardware.peers import MOST, few_of_each_kind
from ncclscope.diagnose.hardware.samples import FAMILY, FEWEST, HardwareSamples, known, rates
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import amount, percent, plural
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import SystemSamples
from ncclscope.system.counters import GPU, pcie_capacity

_LOOKS_BUSY_PERCENT = 90
_MOST_NOTES = 3
_IN_NCCL = 0.5  # of the run
_LITTLE = 0.1  # of what PCIe alone could carry
# What kinds of causes explain which families: a bad cable makes nobody compute longer.
_GPU_CAUSES = ("slowed GPU", "power cap", "Xid errors", "ECC errors", "NVLink errors")
_PCIE_CAUSES = ("full PCIe link", "narrow PCIe link")
_HOST_CAUSES = ("short of memory", "short of cpu", "short of io", "out of memory")
_LINK_CAUSES = ("network errors", "slow network link", "network link down", "full network link")
_MOVING = (*_LINK_CAUSES, *_PCIE_CAUSES, "NVLink errors")
_EXPLAINED = {
    "straggler": (*_GPU_CAUSES, *_PCIE_CAUSES, *_HOST_CAUSES),
    "slow_link": _MOVING,
    "degradation": (*_MOVING, "slowed GPU", "power cap"),
    "intra_inter": _MOVING,
    "hang": ("Xid errors", "ECC errors", "NVLink errors", "out of memory", *_LINK_CAUSES),
}


def find(frame: RuleContext) -> list[Finding]:
    """All that the machine shows; nothing where nobody sampled it."""
    beside = HardwareSamples(frame)
    if not beside.system.tracks:
        return _missing(beside)
    found = _missing(beside)
    found += [*gpus.find(beside), *network.find(beside), *hosts.find(beside)]
    return [*found, *_waiting(beside)]


def _missing(beside: HardwareSamples) -> list[Finding]:
    """What samplers could not write, and what cannot be read or placed of what they wrote."""
    system = beside.system
    counts = {
        "lost": (system.lost, "could not be written"),
        "deleted": (system.deleted, "of the beginning were deleted to make room"),
        "damaged": (system.damaged, "cannot be read"),
        "unplaced": (
            system.unplaced,
            "are files of hosts, or boots of them, without a recorded process",
        ),
        "newer": (system.newer, "are files of a later release of ncclscope"),
    }
    told = [f"{count:,} {what}" for count, what in counts.values() if count]
    if not told and not system.notes:
        return []
    notes = Counter(note for _, note in system.notes)
    hosts = tuple(dict.fromkeys(host for host, _ in system.notes))
    told += [f"{note} ({_on(hosts, number)})" for note, number in notes.most_common(_MOST_NOTES)]
    return [
        Finding(
            FAMILY,
            INFO,
            f"some samples of the machine are missing: {', '.join(told)}",
            _remedy(system),
            "samples missing",
            hosts=hosts,
            evidence=(
                Evidence(
                    f"{system.samples:,} samples",
                    {name: count for name, (count, _) in counts.items()},
                    f"ncclscope dump {beside.frame.path} --system",
                ),
            ),
        )
    ]


def _on(hosts: tuple[str, ...], number: int) -> str:
    return f"on {hosts[0]}" if len(hosts) == number == 1 else f"on {plural(number, 'host')}"


def _remedy(system: SystemSamples) -> str:
    if system.newer:
        return "upgrade ncclscope to read them; what is there was used"
    if system.lost or system.damaged:
        return "look for a full disk, or a damaged capture; what is there was used"
    if system.notes:
        return (
            "GPU counters need NVIDIA's driver and nvidia-ml-py where the job runs "
            "(`pip install nvidia-ml-py`); what is there was used"
        )
    return "what is there was used"


# ---- busy with waiting ----
def _share_in_nccl(frame: RuleContext) -> float | None:
    """Of the time of an average rank."""
    ops = frame.ops
    timed = np.flatnonzero(frame.timed & (ops["global_rank"] != NONE))
    ranks, group = np.unique(ops["global_rank"][timed], return_inverse=True)
    if not len(ranks):
        return None
    start, end = (np.asarray(ops[name], np.int64)[timed] for name in ("start_ns", "end_ns"))
    # Operations of a rank may overlap: the length of their union.
    total = int(union_lengths(group.astype(np.int32), len(ranks), start, end).sum())
    return total / len(ranks) / frame.span_ns


def _waiting(beside: HardwareSamples) -> list[Finding]:
    """GPUs that look busy, spend their time in NCCL, and move next to nothing."""
    use = [known(track) for track in beside.tracks(GPU, "utilization_percent").values()]
    use = [one for one in use if len(one) >= FEWEST]
    share = _share_in_nccl(beside.frame)
    if not use or share is None or share < _IN_NCCL:
        return []
    busy = float(np.median([np.median(one) for one in use]))
    moved = _moved_per_s(beside)
    if busy < _LOOKS_BUSY_PERCENT or moved is None or moved[0] > _LITTLE * moved[1]:
        return []
    return [
        Finding(
            FAMILY,
            INFO,
            f"GPUs look busy ({busy:.0f} % utilisation) and move little "
            f"({amount(round(moved[0]))} a second each): {percent(min(share, 1.0))} of the time "
            "is in NCCL's kernels, which count as work while they wait",
            "this is waiting, not computing: look at stragglers and links, not at kernels",
            "busy waiting",
            evidence=(
                Evidence(
                    "over PCIe and NVLink, by GPU",
                    {
                        "utilization_percent": busy,
                        "in_nccl_share": round(share, 4),
                        "bytes_per_s": round(moved[0]),
                    },
                    f"ncclscope report {beside.frame.path} --by rank",
                ),
            ),
            confidence=0.7,
        )
    ]


def _moved_per_s(beside: HardwareSamples) -> tuple[float, float] | None:
    """Bytes a second that the median GPU received, and what its PCIe link could carry."""
    generations, widths = beside.tracks(GPU, "pcie_generation"), beside.tracks(GPU, "pcie_width")
    nvlink, pcie = beside.tracks(GPU, "nvlink_rx_bytes"), beside.tracks(GPU, "pcie_rx_bytes")
    moved, could = [], []
    for place in {*nvlink, *pcie}:
        parts = [rates(track) for track in (nvlink.get(place), pcie.get(place)) if track]
        generation, width = known(generations.get(place)), known(widths.get(place))
        if any(len(part) for part in parts) and len(generation) and len(width):
            moved.append(sum(float(np.mean(part)) for part in parts if len(part)))
            could.append(pcie_capacity(int(generation.max()), int(width.max())) or 0)
    return (float(np.median(moved)), float(np.median(could))) if moved else None


# ---- what explains other findings ----
def explained(findings: list[Finding]) -> list[Finding]:
    """Findings with what the machine of the same ranks or hosts shows as evidence; of the machine
    itself the worst of each kind, which comes last because all of them may explain.
    """
    causes = [f for f in findings if f.family == FAMILY and at_least(f.severity, "warning")]
    others = [_explained(one, causes) for one in findings if one.family != FAMILY]
    return [*others, *few_of_each_kind([one for one in findings if one.family == FAMILY])]


def _explained(finding: Finding, causes: list[Finding]) -> Finding:
    kinds = _EXPLAINED.get(finding.family, ())
    mine = [cause for cause in causes if cause.kind in kinds and _concerns(cause, finding)]
    if not mine:
        return finding
    evidence = tuple(
        Evidence(f"beside it: {cause.sentence}", cause.evidence[0].facts, cause.evidence[0].command)
        for cause in mine[:MOST]
    )
    if len(mine) > MOST:
        evidence += (Evidence(f"beside it: {len(mine) - MOST:,} more remarks of the machine"),)
    advice = f"what is beside it is the likely reason: {mine[0].advice}"
    return replace(finding, evidence=(*finding.evidence, *evidence), advice=advice)


def _concerns(cause: Finding, finding: Finding) -> bool:
    """A GPU concerns its ranks, a link or a host all ranks there."""
    if cause.ranks and finding.ranks:
        return bool(set(cause.ranks) & set(finding.ranks))
    same_host = bool(set(cause.hosts) & set(finding.hosts))
    if cause.kind in (*_GPU_CAUSES, *_PCIE_CAUSES):  # nobody knows whose GPU it is
        return same_host and finding.kind.startswith("host ")
    return same_host
