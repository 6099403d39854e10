"""GPUs that were slowed down, whose PCIe link is full or narrow, or that have errors."""

from dataclasses import dataclass

import numpy as np

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import is_shared, spread, together, usual_of_others
from ncclscope.diagnose.hardware.samples import (
    FAMILY,
    FEWEST,
    HardwareSamples,
    Place,
    known,
    rates,
    usual,
)
from ncclscope.diagnose.rule_context import Ints
from ncclscope.humanize import amount, percent
from ncclscope.model.schema import NONE
from ncclscope.model.system_samples import Series
from ncclscope.system.counters import GPU, POWER_CAP, SLOWDOWNS, pcie_capacity

_SLOWED = 0.2  # of the busy time
_CAPPED = 0.5
_LOWER_CLOCK = 0.95  # of what others have: less is slower
_BUSY_PERCENT = 50
_FULL, _OFTEN_FULL, _SELDOM_FULL = 0.75, 0.2, 0.05  # of a link's capacity; of the time
_MANY_ERRORS, _TIMES_USUAL = 10, 10
_MOST_XIDS = 4
_XIDS = {
    13: "an error of the program", 31: "an error of the program", 43: "an error of the program",
    45: "the end of a program", 48: "an uncorrectable memory error",
    63: "a memory row was replaced", 64: "a memory row could not be replaced",
    74: "an NVLink error", 79: "it has fallen off the bus", 94: "a contained memory error",
    95: "an uncontained memory error",
    119: "its firmware does not answer", 120: "its firmware failed",
}  # fmt: skip


def find(beside: HardwareSamples) -> list[Finding]:
    """All of them."""
    found = [*_slowed(beside), *_capped(beside), *_full_pcie(beside), *_narrow_pcie(beside)]
    return [*found, *_errors(beside)]


# ---- clocks ----
@dataclass(frozen=True, slots=True)
class _Clocks:
    """How a GPU ran while it was busy."""

    samples: int
    slowed: float  # share of them
    capped: float
    reason: str
    clock_mhz: float | None


def _clocks(beside: HardwareSamples) -> dict[Place, _Clocks]:
    reasons, clocks = beside.tracks(GPU, "throttle_reasons"), beside.tracks(GPU, "sm_clock_mhz")
    busy = beside.tracks(GPU, "utilization_percent")
    found = {}
    for place, track in reasons.items():
        used = _beside(busy.get(place), track)
        keep = (track.value != NONE) & ((used == NONE) | (used >= _BUSY_PERCENT))
        bits = track.value[keep]
        if len(bits) < FEWEST:
            continue
        shares = {name: float(np.mean(bits & bit != 0)) for bit, name in SLOWDOWNS.items()}
        # HW slowdown comes with its own reason where there is one.
        special = {name: share for name, share in shares.items() if name != "HW slowdown"}
        most = max(special, key=lambda name: special[name])
        reason = most if special[most] > 0 else "HW slowdown"
        slowed = float(np.mean(bits & sum(SLOWDOWNS) != 0))
        clock = _beside(clocks.get(place), track)[keep]
        clock = clock[clock != NONE]
        found[place] = _Clocks(
            len(bits),
            slowed,
            float(np.mean(bits & POWER_CAP != 0)),
            reason,
            float(np.median(clock)) if len(clock) else None,
        )
    return found


def _beside(track: Series | None, of: Series) -> Ints:
    """Another counter of the same samples; NONE where it is not known."""
    out = np.full(len(of.time_ns), NONE, np.int64)
    if track is not None and len(track.time_ns):
        at = np.minimum(np.searchsorted(track.time_ns, of.time_ns), len(track.time_ns) - 1)
        same = track.time_ns[at] == of.time_ns
        out[same] = track.value[at[same]]
    return out


def _slower(mine: _Clocks, theirs: float | None) -> tuple[bool | None, str]:
    """Whether a GPU's clock is lower than others', and in words; None where nobody can say."""
    if mine.clock_mhz is None or theirs is None:
        return None, ""
    words = f"; its clock was {mine.clock_mhz:.0f} MHz, theirs {theirs:.0f}"
    return mine.clock_mhz < _LOWER_CLOCK * theirs, words


def _slowed(beside: HardwareSamples) -> list[Finding]:
    clocks = _clocks(beside)
    slow = {place: one for place, one in clocks.items() if one.slowed >= _SLOWED}
    others = [one for place, one in clocks.items() if place not in slow]
    theirs = usual(one.clock_mhz for one in others if one.clock_mhz is not None)
    beside_them = ""
    if others:
        shown = percent(usual(one.slowed for one in others))
        beside_them = f", others {shown if shown != '0 %' else 'never'}"
    of_all = _usual_clocks(clocks)
    found: list[Finding] = []
    alike: dict[tuple[str, str], list[Finding]] = {}  # by reason and severity
    for place, mine in sorted(slow.items(), key=lambda one: -one[1].slowed):
        slower, words = _slower(mine, theirs)
        # Where all are slowed, one may still be slower than the rest.
        slowest, than_all = _slower(mine, of_all.get(place))
        severity = INFO if slower is False else WARNING
        made = Finding(
            FAMILY,
            severity,
            f"{beside.named(place)} was slowed down {percent(mine.slowed)} of the time "
            f"({mine.reason}){beside_them}{words or than_all}",
            _ADVICE[mine.reason],
            "slowed GPU",
            beside.ranks_of.get(place, ()),
            (beside.host(place),),
            evidence=(
                Evidence(
                    f"in {mine.samples} samples while it was busy",
                    {"slowed_share": round(mine.slowed, 4), "clock_mhz": mine.clock_mhz},
                    beside.command(place),
                ),
            ),
            confidence=0.95 if slower else 0.8,
        )
        (found if slowest else alike.setdefault((mine.reason, severity), [])).append(made)
    for (reason, _), some in alike.items():
        if is_shared(len(some), len(clocks)):
            shares = spread(one.evidence[0].facts["slowed_share"] for one in some)
            told = f"{len(some):,} of {len(clocks):,} GPUs were slowed down {shares} of the time"
            found.append(together(some, len(clocks), f"{told} ({reason})"))
        else:
            found += some
    return found


def _usual_clocks(clocks: dict[Place, _Clocks]) -> dict[Place, float]:
    """By GPU the clock of the others."""
    known_of = {place: one.clock_mhz for place, one in clocks.items() if one.clock_mhz is not None}
    return usual_of_others(known_of)


_ADVICE = {
    "HW thermal slowdown": "it is too hot: look at fans, airflow, coolant and the GPU's heat sink",
    "SW thermal slowdown": "it is at its temperature limit: look at fans, airflow and coolant",
    "HW power brake": "the machine asks for less power: look at power supplies and rack limits",
    "HW slowdown": "hardware lowers its clocks: look at temperature, power cables and supplies",
}


def _capped(beside: HardwareSamples) -> list[Finding]:
    """A power cap is usual; one that others do not have, and that costs clock, is not."""
    clocks, limits = _clocks(beside), beside.tracks(GPU, "power_limit_mw")
    usually, clock_of = (
        usual_of_others({p: c.capped for p, c in clocks.items()}),
        _usual_clocks(clocks),
    )
    found = []
    for place, mine in clocks.items():
        theirs = usually.get(place)
        slower, words = _slower(mine, clock_of.get(place))
        if theirs is None or mine.capped < _CAPPED or mine.capped < 2 * theirs or not slower:
            continue
        limit = known(limits.get(place))
        at = f" of {limit[-1] / 1e3:.0f} W" if len(limit) else ""
        found.append(
            Finding(
                FAMILY,
                WARNING,
                f"{beside.named(place)} was at its power limit{at} {percent(mine.capped)} of the "
                f"time, others {percent(theirs)}{words}",
                "compare its power limit with the others' (nvidia-smi -q -d POWER)",
                "power cap",
                beside.ranks_of.get(place, ()),
                (beside.host(place),),
                evidence=(
                    Evidence(
                        f"in {mine.samples} samples while it was busy",
                        {"capped_share": round(mine.capped, 4), "clock_mhz": mine.clock_mhz},
                        beside.command(place),
                    ),
                ),
                confidence=0.8,
            )
        )
    return found


# ---- PCIe ----
def pcie_use(beside: HardwareSamples) -> dict[Place, tuple[float, float]]:
    """By GPU how often its PCIe link was full, and the most it moved in a second in a direction."""
    generations = beside.tracks(GPU, "pcie_generation")
    widths = beside.tracks(GPU, "pcie_width")
    found: dict[Place, tuple[float, float]] = {}
    for direction in ("tx", "rx"):
        totals = beside.tracks(GPU, f"pcie_{direction}_bytes")
        gauges = beside.tracks(GPU, f"pcie_{direction}_bytes_per_s")
        for place in {*totals, *gauges}:
            generation, width = known(generations.get(place)), known(widths.get(place))
            if not len(generation) or not len(width):
                continue
            # Generations fall while a GPU is idle: the highest is the link's.
            capacity = pcie_capacity(int(generation.max()), int(width.max()))
            moved = rates(totals.get(place))
            if not len(moved):
                moved = known(gauges.get(place)).astype(np.float64)
            if capacity is None or len(moved) < FEWEST:
                continue
            full, most = float(np.mean(moved >= _FULL * capacity)), float(moved.max())
            before = found.get(place, (0.0, 0.0))
            found[place] = max(before[0], full), max(before[1], most)
    return found


def _full_pcie(beside: HardwareSamples) -> list[Finding]:
    use = pcie_use(beside)
    usually = usual_of_others({place: full for place, (full, _) in use.items()})
    found: list[Finding] = []
    shared: list[Finding] = []
    often = {place: one for place, one in use.items() if one[0] >= _OFTEN_FULL}
    for place, (full, most) in sorted(often.items(), key=lambda one: -one[1][0]):
        theirs = usually.get(place)
        alone = theirs is not None and theirs < _SELDOM_FULL
        beside_them = "" if theirs is None else f", others {percent(theirs)}"
        made = Finding(
            FAMILY,
            WARNING if alone else INFO,
            f"the PCIe link of {beside.named(place)} was full {percent(full)} of the time"
            f"{beside_them}: up to {amount(round(most))} a second",
            "look at the link's width and generation, at what else shares its switch, and at "
            "whether traffic could go over NVLink or another NIC",
            "full PCIe link",
            beside.ranks_of.get(place, ()),
            (beside.host(place),),
            evidence=(
                Evidence(
                    f"at least {percent(_FULL)} of what the link could carry by its coding",
                    {"full_share": round(full, 4), "most_bytes_per_s": round(most)},
                    beside.command(place),
                ),
            ),
            confidence=0.8,
        )
        (found if alone else shared).append(made)
    if is_shared(len(shared), len(use)):
        shares = spread(one.evidence[0].facts["full_share"] for one in shared)
        told = f"PCIe links of {len(shared):,} of {len(use):,} GPUs were full {shares} of the time"
        shared = [together(shared, len(use), told)]
    return [*found, *shared]


def _narrow_pcie(beside: HardwareSamples) -> list[Finding]:
    """Fewer lanes than the GPU has, while others have more; how the board is made is no fault."""
    widest = {
        place: int(known(track).max())
        for place, track in beside.tracks(GPU, "pcie_width").items()
        if len(known(track)) >= FEWEST
    }
    usually = usual_of_others(widest)
    found = []
    for place, lanes in widest.items():
        could = place[1].facts.get("pcie_width_most", 0)
        theirs = usually.get(place)
        if not isinstance(could, int) or theirs is None or not lanes < min(could, theirs):
            continue
        found.append(
            Finding(
                FAMILY,
                WARNING,
                f"the PCIe link of {beside.named(place)} runs on {lanes} of {could} lanes, others "
                f"on {theirs:.0f}",
                "reseat the GPU, its riser or cable; the link was trained down",
                "narrow PCIe link",
                beside.ranks_of.get(place, ()),
                (beside.host(place),),
                evidence=(
                    Evidence(
                        "lanes in use, at most over the run",
                        {"lanes": lanes, "possible": could},
                        beside.command(place),
                    ),
                ),
                confidence=0.9,
            )
        )
    return found


# ---- errors ----
def _errors(beside: HardwareSamples) -> list[Finding]:
    found = []
    last = beside.tracks(GPU, "last_xid")
    for place, track in beside.tracks(GPU, "xid_errors").items():
        count = int(known(track).max(initial=0))  # since sampling began
        if count:
            sentence = f"the driver reported {_xids(last.get(place))} of {beside.named(place)}"
            advice = "look it up in NVIDIA's list of Xid errors; `dmesg` on the host has the line"
            found.append(_error(beside, place, "Xid", sentence, advice, count))
    for place, track in beside.tracks(GPU, "ecc_uncorrected").items():
        if count := track.growth():
            sentence = f"memory of {beside.named(place)} had errors that could not be corrected"
            advice = "take the GPU out of service and run its diagnostics"
            found.append(_error(beside, place, "ECC", sentence, advice, count))
    grown = {p: t.growth() for p, t in beside.tracks(GPU, "nvlink_errors").items()}
    usually = usual_of_others(grown)
    for place, count in grown.items():
        theirs = usually.get(place, 0.0)
        if count >= _MANY_ERRORS and count > _TIMES_USUAL * theirs:
            sentence = f"NVLinks of {beside.named(place)} had {count:,} errors, others {theirs:.0f}"
            advice = "look at `nvidia-smi nvlink -e`; reseat or replace what it points at"
            found.append(_error(beside, place, "NVLink", sentence, advice, count))
    return found


def _xids(last: Series | None) -> str:
    """Xid 43 (what it means), before it 79 (what it means): the last first."""
    numbers = list(dict.fromkeys(number for number in reversed(known(last).tolist()) if number))
    told = [f"{n} ({_XIDS[n]})" if n in _XIDS else str(n) for n in numbers[:_MOST_XIDS]]
    if not told:
        return "an Xid"
    more = f" and {len(numbers) - _MOST_XIDS} more" if len(numbers) > _MOST_XIDS else ""
    return f"Xid {told[0]}" + (f", before it {', '.join(told[1:])}{more}," if told[1:] else "")


def _error(
    beside: HardwareSamples, place: Place, kind: str, sentence: str, advice: str, count: int
) -> Finding:
    return Finding(
        FAMILY,
        WARNING,
        sentence,
        advice,
        f"{kind} errors",
        beside.ranks_of.get(place, ()),
        (beside.host(place),),
        evidence=(Evidence(f"{count:,} of them", {"count": count}, beside.command(place)),),
        confidence=0.9,
    )
