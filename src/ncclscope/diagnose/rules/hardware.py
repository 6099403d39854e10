"""What of GPUs, network and hosts explains a slow run, and on which ranks.

Everything is compared with the other GPUs, links and hosts of the run. Needs `run --system`.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from ncclscope.analysis.kernel_time import share_in_nccl
from ncclscope.diagnose.finding import INFO, Evidence, Finding, at_least
from ncclscope.diagnose.hardware import gpus, hosts, network
from ncclscope.diagnose.hardware.peers import MOST, few_of_each_kind
from ncclscope.diagnose.hardware.samples import (
    FAMILY,
    FEWEST,
    HardwareSamples,
    known_values,
    rates_per_s,
)
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import amount, percent, plural
from ncclscope.model.system_samples import SystemSamples
from ncclscope.system.counters import GPU, pcie_capacity

_LOOKS_BUSY_PERCENT = 90
_MOST_NOTES = 3
_IN_NCCL = 0.5  # of the run
_LITTLE = 0.1  # of what PCIe alone could carry
# Which kinds of causes explain which families: a bad cable makes nobody compute longer.
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


def find(context: RuleContext) -> list[Finding]:
    """All that samples show; nothing without samples."""
    samples = HardwareSamples(context)
    findings = _missing(samples)
    if samples.system.tracks:
        findings += [*gpus.find(samples), *network.find(samples), *hosts.find(samples)]
        findings += _waiting(samples)
    return findings


def _missing(samples: HardwareSamples) -> list[Finding]:
    """Samples that could not be written, and samples that cannot be read or placed."""
    system = samples.system
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
    reasons = [f"{count:,} {what}" for count, what in counts.values() if count]
    if not reasons and not system.notes:
        return []
    notes = Counter(note for _, note in system.notes)
    hosts = tuple(dict.fromkeys(host for host, _ in system.notes))
    reasons += [f"{note} ({_on(hosts, number)})" for note, number in notes.most_common(_MOST_NOTES)]
    return [
        Finding(
            FAMILY,
            INFO,
            f"some samples of the machine are missing: {', '.join(reasons)}",
            _remedy(system),
            kind="samples missing",
            hosts=hosts,
            evidence=(
                Evidence(
                    f"{system.samples:,} samples",
                    {name: count for name, (count, _) in counts.items()},
                    f"ncclscope dump {samples.context.path} --system",
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
def _waiting(samples: HardwareSamples) -> list[Finding]:
    """GPUs that look busy, spend their time in NCCL, and move next to nothing."""
    use = [known_values(series) for series in samples.series(GPU, "utilization_percent").values()]
    use = [values for values in use if len(values) >= FEWEST]
    share = share_in_nccl(samples.context.run)
    if not use or share is None or share < _IN_NCCL:
        return []
    busy = float(np.median([np.median(values) for values in use]))
    moved = _moved_per_s(samples)
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
            kind="busy waiting",
            evidence=(
                Evidence(
                    "over PCIe and NVLink, by GPU",
                    {
                        "utilization_percent": busy,
                        "in_nccl_share": round(share, 4),
                        "bytes_per_s": round(moved[0]),
                    },
                    f"ncclscope report {samples.context.path} --by rank",
                ),
            ),
            confidence=0.7,
        )
    ]


def _moved_per_s(samples: HardwareSamples) -> tuple[float, float] | None:
    """Bytes a second that the median GPU received, and what its PCIe link can carry."""
    generations, widths = samples.series(GPU, "pcie_generation"), samples.series(GPU, "pcie_width")
    nvlink, pcie = samples.series(GPU, "nvlink_rx_bytes"), samples.series(GPU, "pcie_rx_bytes")
    moved, could = [], []
    for place in {*nvlink, *pcie}:
        parts = [rates_per_s(series) for series in (nvlink.get(place), pcie.get(place)) if series]
        generation, width = known_values(generations.get(place)), known_values(widths.get(place))
        if any(len(part) for part in parts) and len(generation) and len(width):
            moved.append(sum(float(np.mean(part)) for part in parts if len(part)))
            could.append(pcie_capacity(int(generation.max()), int(width.max())) or 0)
    return (float(np.median(moved)), float(np.median(could))) if moved else None


# ---- what explains other findings ----
def add_causes(findings: list[Finding]) -> list[Finding]:
    """Findings with what samples of the same ranks or hosts show as evidence. Of findings about
    hardware only the worst of each kind are kept; that comes last, because all of them may explain
    another one.
    """
    causes = [f for f in findings if f.family == FAMILY and at_least(f.severity, "warning")]
    others = [_with_causes(finding, causes) for finding in findings if finding.family != FAMILY]
    hardware = [finding for finding in findings if finding.family == FAMILY]
    return [*others, *few_of_each_kind(hardware)]


def _with_causes(finding: Finding, causes: list[Finding]) -> Finding:
    kinds = _EXPLAINED.get(finding.family, ())
    own = [cause for cause in causes if cause.kind in kinds and _concerns(cause, finding)]
    if not own:
        return finding
    evidence = tuple(
        Evidence(f"beside it: {cause.sentence}", cause.evidence[0].facts, cause.evidence[0].command)
        for cause in own[:MOST]
    )
    if len(own) > MOST:
        evidence += (Evidence(f"beside it: {len(own) - MOST:,} more remarks of the machine"),)
    advice = f"what is beside it is the likely reason: {own[0].advice}"
    return replace(finding, evidence=(*finding.evidence, *evidence), advice=advice)


def _concerns(cause: Finding, finding: Finding) -> bool:
    """Whether a cause concerns the ranks of a finding: a GPU its ranks, a link or a host all ranks
    there.
    """
    if cause.ranks and finding.ranks:
        return bool(set(cause.ranks) & set(finding.ranks))
    same_host = bool(set(cause.hosts) & set(finding.hosts))
    if cause.kind in (*_GPU_CAUSES, *_PCIE_CAUSES):  # it is not known which rank has that GPU
        return same_host and finding.kind.startswith("host ")
    return same_host
