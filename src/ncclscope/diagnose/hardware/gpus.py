"""GPUs that were slowed down, whose PCIe link is full or narrow, or that have errors."""

from dataclasses import dataclass

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import (
    MANY_ERRORS,
    OFTEN_FULL,
    SELDOM_FULL,
    TIMES_USUAL,
    combine,
    is_shared,
    medians_of_others,
    percent_range,
)
from ncclscope.diagnose.hardware.samples import (
    FAMILY,
    FEWEST,
    HardwareSamples,
    Place,
    known_values,
    median_or_none,
    rates_per_s,
)
from ncclscope.humanize import amount, percent
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import CounterSeries
from ncclscope.system.counters import GPU, POWER_CAP, SLOWDOWNS, pcie_capacity

_SLOWED = 0.2  # of the busy time
_CAPPED = 0.5
_LOWER_CLOCK = 0.95  # of what others have: less is slower
_BUSY_PERCENT = 50
_FULL = 0.75  # of a link's capacity
_MOST_XIDS = 4
_XIDS = {
    13: "an error of the program", 31: "an error of the program", 43: "an error of the program",
    45: "the end of a program", 48: "an uncorrectable memory error",
    63: "a memory row was replaced", 64: "a memory row could not be replaced",
    74: "an NVLink error", 79: "it has fallen off the bus", 94: "a contained memory error",
    95: "an uncontained memory error",
    119: "its firmware does not answer", 120: "its firmware failed",
}  # fmt: skip


def find(samples: HardwareSamples) -> list[Finding]:
    """Findings about single GPUs, and about what most of them share."""
    clocks = [*_slowed(samples), *_capped(samples)]
    return [*clocks, *_full_pcie(samples), *_narrow_pcie(samples), *_errors(samples)]


# ---- clocks ----
@dataclass(frozen=True, slots=True)
class _Clocks:
    """How a GPU ran while it was busy."""

    samples: int
    slowed: float  # share of them
    capped: float
    reason: str
    clock_mhz: float | None


def _clocks(samples: HardwareSamples) -> dict[Place, _Clocks]:
    reasons, clocks = samples.series(GPU, "throttle_reasons"), samples.series(GPU, "sm_clock_mhz")
    busy = samples.series(GPU, "utilization_percent")
    clocks_of = {}
    for place, series in reasons.items():
        used = _at_samples_of(series, busy.get(place))
        keep = (series.value != NONE) & ((used == NONE) | (used >= _BUSY_PERCENT))
        bits = series.value[keep]
        if len(bits) < FEWEST:
            continue
        shares = {name: float(np.mean(bits & bit != 0)) for bit, name in SLOWDOWNS.items()}
        # HW slowdown comes with its own reason where there is one.
        special = {name: share for name, share in shares.items() if name != "HW slowdown"}
        most = max(special, key=lambda name: special[name])
        reason = most if special[most] > 0 else "HW slowdown"
        slowed = float(np.mean(bits & sum(SLOWDOWNS) != 0))
        clock = _at_samples_of(series, clocks.get(place))[keep]
        clock = clock[clock != NONE]
        clocks_of[place] = _Clocks(
            len(bits),
            slowed,
            float(np.mean(bits & POWER_CAP != 0)),
            reason,
            float(np.median(clock)) if len(clock) else None,
        )
    return clocks_of


def _at_samples_of(series: CounterSeries, other: CounterSeries | None) -> Ints:
    """The values of another counter at the same samples; NONE where it is not known."""
    values = np.full(len(series.time_ns), NONE, np.int64)
    if other is not None and len(other.time_ns):
        at = np.minimum(np.searchsorted(other.time_ns, series.time_ns), len(other.time_ns) - 1)
        same = other.time_ns[at] == series.time_ns
        values[same] = other.value[at[same]]
    return values


def _slower(own: _Clocks, theirs: float | None) -> tuple[bool | None, str]:
    """Whether a GPU's clock is lower than others', and in words; None where it is not known."""
    if own.clock_mhz is None or theirs is None:
        return None, ""
    words = f"; its clock was {own.clock_mhz:.0f} MHz, theirs {theirs:.0f}"
    return own.clock_mhz < _LOWER_CLOCK * theirs, words


def _slowed(samples: HardwareSamples) -> list[Finding]:
    clocks = _clocks(samples)
    slow = {place: own for place, own in clocks.items() if own.slowed >= _SLOWED}
    others = [own for place, own in clocks.items() if place not in slow]
    theirs = median_or_none(own.clock_mhz for own in others if own.clock_mhz is not None)
    peers_text = ""
    if others:
        shown = percent(median_or_none(own.slowed for own in others))
        peers_text = f", others {shown if shown != '0 %' else 'never'}"
    of_all = _usual_clocks(clocks)
    single: list[Finding] = []
    alike: dict[tuple[str, str], list[Finding]] = {}  # by reason and severity
    for place, own in sorted(slow.items(), key=lambda item: -item[1].slowed):
        slower, words = _slower(own, theirs)
        # Where all are slowed, one may still be slower than the rest.
        slowest, than_all = _slower(own, of_all.get(place))
        severity = INFO if slower is False else WARNING
        finding = Finding(
            FAMILY,
            severity,
            f"{samples.name(place)} was slowed down {percent(own.slowed)} of the time "
            f"({own.reason}){peers_text}{words or than_all}",
            _ADVICE[own.reason],
            kind="slowed GPU",
            ranks=samples.ranks_of.get(place, ()),
            hosts=(samples.host(place),),
            evidence=(
                Evidence(
                    f"in {own.samples} samples while it was busy",
                    {"slowed_share": round(own.slowed, 4), "clock_mhz": own.clock_mhz},
                    samples.command(place),
                ),
            ),
            confidence=0.95 if slower else 0.8,
        )
        (single if slowest else alike.setdefault((own.reason, severity), [])).append(finding)
    for (reason, _), some in alike.items():
        if is_shared(len(some), len(clocks)):
            shares = percent_range(f.evidence[0].facts["slowed_share"] for f in some)
            text = f"{len(some):,} of {len(clocks):,} GPUs were slowed down {shares} of the time"
            single.append(combine(some, len(clocks), f"{text} ({reason})"))
        else:
            single += some
    return single


def _usual_clocks(clocks: dict[Place, _Clocks]) -> dict[Place, float]:
    """By GPU the clock of the others."""
    known = {place: own.clock_mhz for place, own in clocks.items() if own.clock_mhz is not None}
    return medians_of_others(known)


_ADVICE = {
    "HW thermal slowdown": "it is too hot: look at fans, airflow, coolant and the GPU's heat sink",
    "SW thermal slowdown": "it is at its temperature limit: look at fans, airflow and coolant",
    "HW power brake": "the machine asks for less power: look at power supplies and rack limits",
    "HW slowdown": "hardware lowers its clocks: look at temperature, power cables and supplies",
}


def _capped(samples: HardwareSamples) -> list[Finding]:
    """A power cap is usual; one that others do not have, and that costs clock, is not."""
    clocks, limits = _clocks(samples), samples.series(GPU, "power_limit_mw")
    usually, clock_of = (
        medians_of_others({p: c.capped for p, c in clocks.items()}),
        _usual_clocks(clocks),
    )
    findings = []
    for place, own in clocks.items():
        theirs = usually.get(place)
        slower, words = _slower(own, clock_of.get(place))
        if theirs is None or own.capped < _CAPPED or own.capped < 2 * theirs or not slower:
            continue
        limit = known_values(limits.get(place))
        at = f" of {limit[-1] / 1e3:.0f} W" if len(limit) else ""
        findings.append(
            Finding(
                FAMILY,
                WARNING,
                f"{samples.name(place)} was at its power limit{at} {percent(own.capped)} of the "
                f"time, others {percent(theirs)}{words}",
                "compare its power limit with the others' (nvidia-smi -q -d POWER)",
                kind="power cap",
                ranks=samples.ranks_of.get(place, ()),
                hosts=(samples.host(place),),
                evidence=(
                    Evidence(
                        f"in {own.samples} samples while it was busy",
                        {"capped_share": round(own.capped, 4), "clock_mhz": own.clock_mhz},
                        samples.command(place),
                    ),
                ),
                confidence=0.8,
            )
        )
    return findings


# ---- PCIe ----
def pcie_use(samples: HardwareSamples) -> dict[Place, tuple[float, float]]:
    """By GPU how often its PCIe link was full, and the most bytes it moved in a second in one
    direction.
    """
    generations = samples.series(GPU, "pcie_generation")
    widths = samples.series(GPU, "pcie_width")
    use: dict[Place, tuple[float, float]] = {}
    for direction in ("tx", "rx"):
        totals = samples.series(GPU, f"pcie_{direction}_bytes")
        gauges = samples.series(GPU, f"pcie_{direction}_bytes_per_s")
        for place in {*totals, *gauges}:
            generation, width = (
                known_values(generations.get(place)),
                known_values(widths.get(place)),
            )
            if not len(generation) or not len(width):
                continue
            # Generations fall while a GPU is idle: the highest is the link's.
            capacity = pcie_capacity(int(generation.max()), int(width.max()))
            moved = rates_per_s(totals.get(place))
            if not len(moved):
                moved = known_values(gauges.get(place)).astype(np.float64)
            if capacity is None or len(moved) < FEWEST:
                continue
            full, most = float(np.mean(moved >= _FULL * capacity)), float(moved.max())
            before = use.get(place, (0.0, 0.0))
            use[place] = max(before[0], full), max(before[1], most)
    return use


def _full_pcie(samples: HardwareSamples) -> list[Finding]:
    use = pcie_use(samples)
    usually = medians_of_others({place: full for place, (full, _) in use.items()})
    single: list[Finding] = []
    shared: list[Finding] = []
    often = {place: numbers for place, numbers in use.items() if numbers[0] >= OFTEN_FULL}
    for place, (full, most) in sorted(often.items(), key=lambda item: -item[1][0]):
        theirs = usually.get(place)
        alone = theirs is not None and theirs < SELDOM_FULL
        peers_text = "" if theirs is None else f", others {percent(theirs)}"
        finding = Finding(
            FAMILY,
            WARNING if alone else INFO,
            f"the PCIe link of {samples.name(place)} was full {percent(full)} of the time"
            f"{peers_text}: up to {amount(round(most))} a second",
            "look at the link's width and generation, at what else shares its switch, and at "
            "whether traffic could go over NVLink or another NIC",
            kind="full PCIe link",
            ranks=samples.ranks_of.get(place, ()),
            hosts=(samples.host(place),),
            evidence=(
                Evidence(
                    f"at least {percent(_FULL)} of what the link could carry by its coding",
                    {"full_share": round(full, 4), "most_bytes_per_s": round(most)},
                    samples.command(place),
                ),
            ),
            confidence=0.8,
        )
        (single if alone else shared).append(finding)
    if is_shared(len(shared), len(use)):
        shares = percent_range(f.evidence[0].facts["full_share"] for f in shared)
        text = f"PCIe links of {len(shared):,} of {len(use):,} GPUs were full {shares} of the time"
        shared = [combine(shared, len(use), text)]
    return [*single, *shared]


def _narrow_pcie(samples: HardwareSamples) -> list[Finding]:
    """Fewer lanes than the GPU has, while others have more; how the board is made is no fault."""
    widest = {
        place: int(known_values(series).max())
        for place, series in samples.series(GPU, "pcie_width").items()
        if len(known_values(series)) >= FEWEST
    }
    usually = medians_of_others(widest)
    findings = []
    for place, lanes in widest.items():
        could = place[1].facts.get("pcie_width_most", 0)
        theirs = usually.get(place)
        if not isinstance(could, int) or theirs is None or not lanes < min(could, theirs):
            continue
        findings.append(
            Finding(
                FAMILY,
                WARNING,
                f"the PCIe link of {samples.name(place)} runs on {lanes} of {could} lanes, others "
                f"on {theirs:.0f}",
                "reseat the GPU, its riser or cable; the link was trained down",
                kind="narrow PCIe link",
                ranks=samples.ranks_of.get(place, ()),
                hosts=(samples.host(place),),
                evidence=(
                    Evidence(
                        "lanes in use, at most over the run",
                        {"lanes": lanes, "possible": could},
                        samples.command(place),
                    ),
                ),
                confidence=0.9,
            )
        )
    return findings


# ---- errors ----
def _errors(samples: HardwareSamples) -> list[Finding]:
    findings = []
    last = samples.series(GPU, "last_xid")
    for place, series in samples.series(GPU, "xid_errors").items():
        count = int(known_values(series).max(initial=0))  # since sampling began
        if count:
            sentence = f"the driver reported {_xids(last.get(place))} of {samples.name(place)}"
            advice = "look it up in NVIDIA's list of Xid errors; `dmesg` on the host has the line"
            findings.append(_error(samples, place, "Xid", sentence, advice, count))
    for place, series in samples.series(GPU, "ecc_uncorrected").items():
        if count := series.growth():
            sentence = f"memory of {samples.name(place)} had errors that could not be corrected"
            advice = "take the GPU out of service and run its diagnostics"
            findings.append(_error(samples, place, "ECC", sentence, advice, count))
    grown = {p: errors.growth() for p, errors in samples.series(GPU, "nvlink_errors").items()}
    usually = medians_of_others(grown)
    for place, count in grown.items():
        theirs = usually.get(place, 0.0)
        if count >= MANY_ERRORS and count > TIMES_USUAL * theirs:
            sentence = f"NVLinks of {samples.name(place)} had {count:,} errors, others {theirs:.0f}"
            advice = "look at `nvidia-smi nvlink -e`; reseat or replace what it points at"
            findings.append(_error(samples, place, "NVLink", sentence, advice, count))
    return findings


def _xids(last: CounterSeries | None) -> str:
    """Xid 43 (what it means), before it 79 (what it means): the last first."""
    numbers = list(
        dict.fromkeys(number for number in reversed(known_values(last).tolist()) if number)
    )
    texts = [f"{n} ({_XIDS[n]})" if n in _XIDS else str(n) for n in numbers[:_MOST_XIDS]]
    if not texts:
        return "an Xid"
    more = f" and {len(numbers) - _MOST_XIDS} more" if len(numbers) > _MOST_XIDS else ""
    return f"Xid {texts[0]}" + (f", before it {', '.join(texts[1:])}{more}," if texts[1:] else "")


def _error(
    samples: HardwareSamples, place: Place, kind: str, sentence: str, advice: str, count: int
) -> Finding:
    return Finding(
        FAMILY,
        WARNING,
        sentence,
        advice,
        kind=f"{kind} errors",
        ranks=samples.ranks_of.get(place, ()),
        hosts=(samples.host(place),),
        evidence=(Evidence(f"{count:,} of them", {"count": count}, samples.command(place)),),
        confidence=0.9,
    )
