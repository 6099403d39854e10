"""Hosts that are short of CPU or memory, against their peers."""

import numpy as np

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import combine, is_shared, medians_of_others, percent_range
from ncclscope.diagnose.hardware.samples import (
    FAMILY,
    FEWEST,
    HardwareSamples,
    Place,
    known_values,
    rates_per_s,
)
from ncclscope.humanize import percent
from ncclscope.system.counters import HOST

_TIMES_USUAL = 3.0
# The kernel adds these up over the CPUs on which the group has work.
_OF_ALL_CPUS = ("cpu_throttled_us",)
# By counter of time in µs: the share of the run that matters, sentence, advice, and whether it is a
# fault also where there are no other hosts to compare with.
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


def find(samples: HardwareSamples) -> list[Finding]:
    """Findings about single hosts, and about what most of them share."""
    return [*_short(samples), *_killed(samples)]


def _short(samples: HardwareSamples) -> list[Finding]:
    single: list[Finding] = []
    for counter, (least, sentence, advice, alone) in _SHORT.items():
        shares = _shares(samples, counter)
        usual = medians_of_others(shares)
        often = {place: share for place, share in shares.items() if share >= least}
        shared: list[Finding] = []
        for place, share in sorted(often.items(), key=lambda item: -item[1]):
            theirs = usual.get(place)
            stands_out = alone if theirs is None else share > _TIMES_USUAL * theirs
            peers_text = "" if theirs is None else f", other hosts {percent(theirs)}"
            text = sentence.format(host=samples.host(place), share=percent(share))
            finding = Finding(
                FAMILY,
                WARNING if stands_out else INFO,
                text + peers_text,
                advice,
                kind="short of " + counter.partition("_")[0],
                ranks=(),
                hosts=(samples.host(place),),
                evidence=(_evidence(samples, place, share),),
                confidence=0.7,
            )
            (single if stands_out else shared).append(finding)
        if is_shared(len(shared), len(shares)):
            hosts = f"{len(shared):,} of {len(shares):,} hosts"
            share_text = percent_range(f.evidence[0].facts["share"] for f in shared)
            text = sentence.format(host=hosts, share=share_text)
            shared = [combine(shared, len(shares), text)]
        single += shared
    return single


def _shares(samples: HardwareSamples, counter: str) -> dict[Place, float]:
    """By host the share of the time that a counter of time counted."""
    shares = {}
    cpus = samples.series(HOST, "cpus")
    for place, series in samples.series(HOST, counter).items():
        of = known_values(cpus.get(place)).max(initial=0) if counter in _OF_ALL_CPUS else 1
        if len(rates_per_s(series)) >= FEWEST and of > 0:
            shares[place] = min(float(np.mean(rates_per_s(series))) / 1e6 / float(of), 1.0)
    return shares


def _evidence(samples: HardwareSamples, place: Place, share: float) -> Evidence:
    return Evidence("as the kernel counts it", {"share": round(share, 4)}, samples.command(place))


def _killed(samples: HardwareSamples) -> list[Finding]:
    findings = []
    for place, series in samples.series(HOST, "oom_kills").items():
        count = series.growth() if len(known_values(series)) > 1 else 0
        if count:
            findings.append(
                Finding(
                    FAMILY,
                    WARNING,
                    f"the kernel of {samples.host(place)} killed {count} "
                    f"process{'es' if count > 1 else ''} for want of memory during the run",
                    "`dmesg` on that host says which; use less host memory, or give it more",
                    kind="out of memory",
                    ranks=(),
                    hosts=(samples.host(place),),
                    evidence=(
                        Evidence(f"{count} kills", {"count": count}, samples.command(place)),
                    ),
                    confidence=0.9,
                )
            )
    return findings
