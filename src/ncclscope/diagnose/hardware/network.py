"""Interfaces and InfiniBand ports with errors, at low speed, down or full, against their peers."""

from dataclasses import replace

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import (
    MANY_ERRORS,
    OFTEN_FULL,
    SELDOM_FULL,
    TIMES_USUAL,
    by_kind,
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
    rates_per_s,
)
from ncclscope.humanize import percent, plural
from ncclscope.model.system_samples import CounterSeries
from ncclscope.system.counters import PORT, Device

_ERRORS = {
    "rx_errors": ("damaged packet", "damaged packets"),
    "tx_errors": ("packet that could not be sent", "packets that could not be sent"),
    "symbol_errors": ("damaged symbol", "damaged symbols"),
    "link_recoveries": ("training anew", "trainings anew"),
    "retransmissions": ("retransmission", "retransmissions"),
    "tx_discards": ("discarded packet", "discarded packets"),
    "link_downed": ("loss of its link", "losses of its link"),
}
_USUAL = (
    "retransmissions",
    "tx_discards",
)  # some are normal: only a comparison with others says much
_FULL = 0.85  # of a link's speed
_BYTES_A_MBIT = 125_000
_IDLE = 0.01  # of the busiest link's bytes: less is not the job's


def find(samples: HardwareSamples) -> list[Finding]:
    """Findings about single links, and about what most of them share."""
    return [*_errors(samples), *_speed(samples), *_down(samples), *_full(samples)]


def _moved(samples: HardwareSamples) -> dict[Place, int]:
    """Bytes by link, both ways."""
    moved: dict[Place, int] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, series in samples.link_series(counter).items():
            moved[place] = moved.get(place, 0) + series.growth()
    return moved


def _finding(
    samples: HardwareSamples,
    place: Place,
    kind: str,
    sentence: str,
    advice: str,
    facts: dict[str, float],
) -> Finding:
    listed = ", ".join(f"{name} {value:,.3g}" for name, value in facts.items())
    return Finding(
        FAMILY, WARNING, sentence, advice, kind=kind, ranks=(), hosts=(samples.host(place),),
        evidence=(Evidence(listed, dict(facts), samples.command(place)),),
        confidence=0.85,
    )  # fmt: skip


def _usual_errors(grown: dict[Place, int], moved: dict[Place, int]) -> dict[Place, float]:
    """By link as many errors as its peers have, or would have if they had moved as much. Nothing
    without peers.
    """
    usual: dict[Place, float] = {}
    for alike in by_kind({place: float(count) for place, count in grown.items()}):
        by_byte = medians_of_others({p: n / moved[p] for p, n in alike.items() if moved.get(p)})
        for place, each in medians_of_others(alike).items():
            usual[place] = max(each, by_byte.get(place, 0.0) * moved.get(place, 0))
    return usual


def _errors(samples: HardwareSamples) -> list[Finding]:
    moved = _moved(samples)
    most = max(moved.values(), default=0)
    by_place: dict[Place, dict[str, float]] = {}
    for counter in _ERRORS:
        grown = {place: series.growth() for place, series in samples.link_series(counter).items()}
        usual = _usual_errors(grown, moved)
        for place, count in grown.items():
            if moved.get(place, 0) <= _IDLE * most:
                continue
            theirs = usual.get(place)
            if theirs is None and counter in _USUAL:
                continue
            least = 1 if counter == "link_downed" else MANY_ERRORS
            if count >= least and count > TIMES_USUAL * (theirs or 0.0):
                by_place.setdefault(place, {})[counter] = count
    findings = []
    for place, facts in sorted(by_place.items(), key=lambda item: -max(item[1].values())):
        worst = max(facts, key=lambda name: (name == "link_downed", facts[name]))
        sentence = (
            f"{samples.name(place)} had {plural(int(facts[worst]), *_ERRORS[worst])} during "
            "the run, far more than is usual here"
        )
        advice = "look at its cable, transceiver and switch port; then at congestion and buffers"
        findings.append(_finding(samples, place, "network errors", sentence, advice, facts))
    return findings


def _usual_of_namesakes(by_place: dict[Place, CounterSeries]) -> dict[Place, float]:
    """By link the last value of links of its name on other hosts: the same slot of a machine like
    its own.
    """
    by_name: dict[Device, dict[Place, float]] = {}
    for place, series in by_place.items():
        if len(values := known_values(series)):
            by_name.setdefault(place[1], {})[place] = float(values[-1])
    return {p: n for alike in by_name.values() for p, n in medians_of_others(alike).items()}


def _speed(samples: HardwareSamples) -> list[Finding]:
    findings = []
    speeds = samples.link_series("speed_mbit_s")
    usual = _usual_of_namesakes(speeds)
    for place, series in speeds.items():
        speed, theirs = known_values(series), usual.get(place)
        if not len(speed) or theirs is None or not 0 < speed.max() < theirs:
            continue
        sentence = (
            f"{samples.name(place)} runs at {speed.max() / 1e3:g} Gb/s, the same link of other "
            f"hosts at {theirs / 1e3:g} Gb/s"
        )
        advice = "look at its cable, transceiver and switch port: it was negotiated down"
        facts = {"speed_mbit_s": float(speed.max()), "others_mbit_s": theirs}
        findings.append(_finding(samples, place, "slow network link", sentence, advice, facts))
    return findings


def _down(samples: HardwareSamples) -> list[Finding]:
    findings = []
    states = samples.link_series("up")
    usual = _usual_of_namesakes(states)
    for place, series in states.items():
        state, theirs = known_values(series), usual.get(place)
        if len(state) and theirs is not None and theirs == 1 and (state == 0).any():
            share = float((state == 0).mean())
            sentence = (
                f"{samples.name(place)} was down in {100 * share:.0f} % of the samples, the same "
                "link of other hosts is up"
            )
            advice = "look at its cable, transceiver and switch port"
            facts = {"down_share": share}
            findings.append(_finding(samples, place, "network link down", sentence, advice, facts))
    return findings


def _full(samples: HardwareSamples) -> list[Finding]:
    """Links that moved all they can, in a direction; a warning where others do not."""
    speeds = samples.link_series("speed_mbit_s")
    full: dict[Place, float] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, series in samples.link_series(counter).items():
            speed, moved = known_values(speeds.get(place)), rates_per_s(series)
            if len(speed) and speed.max() > 0 and len(moved) >= FEWEST:
                share = float((moved >= _FULL * speed.max() * _BYTES_A_MBIT).mean())
                full[place] = max(share, full.get(place, 0.0))
    findings = []
    for alike in by_kind(full):
        findings += _full_of_a_kind(samples, alike)
    return findings


def _full_of_a_kind(samples: HardwareSamples, full: dict[Place, float]) -> list[Finding]:
    usual = medians_of_others(full)
    alone, shared = [], []
    often = {place: share for place, share in full.items() if share >= OFTEN_FULL}
    for place, share in sorted(often.items(), key=lambda item: -item[1]):
        theirs = usual.get(place)
        peers_text = "" if theirs is None else f", others {percent(theirs)}"
        sentence = f"{samples.name(place)} was full {percent(share)} of the time{peers_text}"
        advice = "look at what else uses it, and at whether NCCL uses all NICs (NCCL_IB_HCA)"
        finding = _finding(
            samples, place, "full network link", sentence, advice, {"full_share": share}
        )
        if theirs is not None and theirs < SELDOM_FULL:
            alone.append(finding)
        else:
            shared.append(replace(finding, severity=INFO))
    if is_shared(len(shared), len(full)):
        what = "ports" if next(iter(full))[1].kind == PORT else "interfaces"
        sentence = (
            f"{len(shared):,} of {len(full):,} network {what} were full "
            f"{percent_range(f.evidence[0].facts['full_share'] for f in shared)} of the time"
        )
        shared = [combine(shared, len(full), sentence)]
    return [*alone, *shared]
