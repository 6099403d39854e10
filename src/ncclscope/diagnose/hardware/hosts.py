"""Hosts that are short of CPU or memory, beside their peers."""

import numpy as np

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import is_shared, spread, together, usual_of_others
from ncclscope.diagnose.hardware.samples import FAMILY, FEWEST, HardwareSamples, Place, known, rates
from ncclscope.humanize import percent
from ncclscope.system.counters import HOST

_TIMES_USUAL = 3.0
# The kernel adds it up over CPUs on which the group has work: of all CPUs it is at least that.
_OF_ALL_CPUS = ("cpu_throttled_us",)
# Counter of time in µs: share of the run that matters, what it is, what to do, whether it is a
# fault of itself where there is nobody to compare with.
_SHORT = {
    "memory_full_us": (
        0.1, "everything on {host} waited for memory {share} of the time",
        "it swaps or reclaims: look for what uses memory there, and at swap", True,
    ),
    "cpu_throttled_us": (
        0.02, "the control group on {host} was kept from running for {share} of all CPUs' time",
        "its CPU limit is too low for the ranks and NCCL's threads: raise or remove it", True,
    ),
    "io_full_us": (
        0.3, "everything on {host} waited for I/O {share} of the time",
        "look at its disks and file systems: data loaders and checkpoints wait for them", False,
    ),
    "cpu_pressure_us": (
        0.5, "something on {host} waited for a CPU {share} of the time",
        "look for more threads than CPUs, wrong affinity, other jobs", False,
    ),
}  # fmt: skip


def find(beside: HardwareSamples) -> list[Finding]:
    """All of them."""
    return [*_short(beside), *_killed(beside)]


def _short(beside: HardwareSamples) -> list[Finding]:
    found: list[Finding] = []
    for counter, (least, sentence, advice, alone) in _SHORT.items():
        shares = _shares(beside, counter)
        usual = usual_of_others(shares)
        often = {place: share for place, share in shares.items() if share >= least}
        shared: list[Finding] = []
        for place, share in sorted(often.items(), key=lambda one: -one[1]):
            theirs = usual.get(place)
            stands_out = alone if theirs is None else share > _TIMES_USUAL * theirs
            beside_them = "" if theirs is None else f", other hosts {percent(theirs)}"
            told = sentence.format(host=beside.host(place), share=percent(share))
            made = Finding(
                FAMILY,
                WARNING if stands_out else INFO,
                told + beside_them,
                advice,
                "short of " + counter.partition("_")[0],
                (),
                (beside.host(place),),
                evidence=(_evidence(beside, place, share),),
                confidence=0.7,
            )
            (found if stands_out else shared).append(made)
        if is_shared(len(shared), len(shares)):
            hosts = f"{len(shared):,} of {len(shares):,} hosts"
            told = sentence.format(
                host=hosts, share=spread(one.evidence[0].facts["share"] for one in shared)
            )
            shared = [together(shared, len(shares), told)]
        found += shared
    return found


def _shares(beside: HardwareSamples, counter: str) -> dict[Place, float]:
    """Of the time, by host."""
    found = {}
    cpus = beside.tracks(HOST, "cpus")
    for place, track in beside.tracks(HOST, counter).items():
        of = known(cpus.get(place)).max(initial=0) if counter in _OF_ALL_CPUS else 1
        if len(rates(track)) >= FEWEST and of > 0:
            found[place] = min(float(np.mean(rates(track))) / 1e6 / float(of), 1.0)
    return found


def _evidence(beside: HardwareSamples, place: Place, share: float) -> Evidence:
    return Evidence("as the kernel counts it", {"share": round(share, 4)}, beside.command(place))


def _killed(beside: HardwareSamples) -> list[Finding]:
    found = []
    for place, track in beside.tracks(HOST, "oom_kills").items():
        count = track.growth() if len(known(track)) > 1 else 0
        if count:
            found.append(
                Finding(
                    FAMILY,
                    WARNING,
                    f"the kernel of {beside.host(place)} killed {count} "
                    f"process{'es' if count > 1 else ''} for want of memory during the run",
                    "`dmesg` on that host says which; use less host memory, or give it more",
                    "out of memory",
                    (),
                    (beside.host(place),),
                    evidence=(Evidence(f"{count} kills", {"count": count}, beside.command(place)),),
                    confidence=0.9,
                )
            )
    return found
