"""Interfaces and InfiniBand ports with errors, at low speed or down, beside their peers."""

from dataclasses import replace

from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.diagnose.hardware.peers import by_kind, is_shared, spread, together, usual_of_others
from ncclscope.diagnose.hardware.samples import (
    FAMILY,
    FEWEST,
    HardwareSamples,
    Place,
    known,
    links,
    rates,
)
from ncclscope.humanize import percent, plural
from ncclscope.model.system_samples import Series
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
_USUAL = ("retransmissions", "tx_discards")  # some of them are: only beside others they say much
_MANY, _TIMES_USUAL = 10, 10
_FULL, _OFTEN_FULL, _SELDOM_FULL = 0.85, 0.2, 0.05  # of a link's speed; of the time
_BYTES_A_MBIT = 125_000
_IDLE = 0.01  # of the busiest link's bytes: less is not the job's


def find(beside: HardwareSamples) -> list[Finding]:
    """All of them."""
    return [*_errors(beside), *_speed(beside), *_down(beside), *_full(beside)]


def _moved(beside: HardwareSamples) -> dict[Place, int]:
    """Bytes by link, both ways."""
    moved: dict[Place, int] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, track in links(beside, counter).items():
            moved[place] = moved.get(place, 0) + track.growth()
    return moved


def _finding(
    beside: HardwareSamples, place: Place, kind: str, sentence: str, advice: str, facts: dict[str, float]
) -> Finding:  # fmt: skip
    listed = ", ".join(f"{name} {value:,.3g}" for name, value in facts.items())
    return Finding(
        FAMILY, WARNING, sentence, advice, kind, (), (beside.host(place),),
        evidence=(Evidence(listed, dict(facts), beside.command(place)),),
        confidence=0.85,
    )  # fmt: skip


def _usual_errors(grown: dict[Place, int], moved: dict[Place, int]) -> dict[Place, float]:
    """As many errors as peers have, or would have had they moved as much; without peers nothing."""
    found: dict[Place, float] = {}
    for alike in by_kind({place: float(count) for place, count in grown.items()}):
        by_byte = usual_of_others({p: n / moved[p] for p, n in alike.items() if moved.get(p)})
        for place, each in usual_of_others(alike).items():
            found[place] = max(each, by_byte.get(place, 0.0) * moved.get(place, 0))
    return found


def _errors(beside: HardwareSamples) -> list[Finding]:
    moved = _moved(beside)
    most = max(moved.values(), default=0)
    by_place: dict[Place, dict[str, float]] = {}
    for counter in _ERRORS:
        grown = {place: track.growth() for place, track in links(beside, counter).items()}
        usual = _usual_errors(grown, moved)
        for place, count in grown.items():
            if moved.get(place, 0) <= _IDLE * most:
                continue
            theirs = usual.get(place)
            if theirs is None and counter in _USUAL:
                continue
            least = 1 if counter == "link_downed" else _MANY
            if count >= least and count > _TIMES_USUAL * (theirs or 0.0):
                by_place.setdefault(place, {})[counter] = count
    found = []
    for place, facts in sorted(by_place.items(), key=lambda one: -max(one[1].values())):
        worst = max(facts, key=lambda name: (name == "link_downed", facts[name]))
        sentence = (
            f"{beside.named(place)} had {plural(int(facts[worst]), *_ERRORS[worst])} during the "
            "run, far more than is usual here"
        )
        advice = "look at its cable, transceiver and switch port; then at congestion and buffers"
        made = _finding(beside, place, "network errors", sentence, advice, facts)
        found.append(made)
    return found


def _usual_of_namesakes(tracks: dict[Place, Series]) -> dict[Place, float]:
    """By link what links of its name on other hosts have last: the same slot of a like machine."""
    by_name: dict[Device, dict[Place, float]] = {}
    for place, track in tracks.items():
        if len(values := known(track)):
            by_name.setdefault(place[1], {})[place] = float(values[-1])
    return {p: n for alike in by_name.values() for p, n in usual_of_others(alike).items()}


def _speed(beside: HardwareSamples) -> list[Finding]:
    found = []
    speeds = links(beside, "speed_mbit_s")
    usual = _usual_of_namesakes(speeds)
    for place, track in speeds.items():
        mine, theirs = known(track), usual.get(place)
        if not len(mine) or theirs is None or not 0 < mine.max() < theirs:
            continue
        sentence = (
            f"{beside.named(place)} runs at {mine.max() / 1e3:g} Gb/s, the same link of other "
            f"hosts at {theirs / 1e3:g} Gb/s"
        )
        advice = "look at its cable, transceiver and switch port: it was negotiated down"
        facts = {"speed_mbit_s": float(mine.max()), "others_mbit_s": theirs}
        made = _finding(beside, place, "slow network link", sentence, advice, facts)
        found.append(made)
    return found


def _down(beside: HardwareSamples) -> list[Finding]:
    found = []
    states = links(beside, "up")
    usual = _usual_of_namesakes(states)
    for place, track in states.items():
        mine, theirs = known(track), usual.get(place)
        if len(mine) and theirs is not None and theirs == 1 and (mine == 0).any():
            share = float((mine == 0).mean())
            sentence = (
                f"{beside.named(place)} was down in {100 * share:.0f} % of the samples, the same "
                "link of other hosts is up"
            )
            advice = "look at its cable, transceiver and switch port"
            facts = {"down_share": share}
            made = _finding(beside, place, "network link down", sentence, advice, facts)
            found.append(made)
    return found


def _full(beside: HardwareSamples) -> list[Finding]:
    """Links that moved all they can, in a direction; a warning where others do not."""
    speeds = links(beside, "speed_mbit_s")
    full: dict[Place, float] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, track in links(beside, counter).items():
            speed, moved = known(speeds.get(place)), rates(track)
            if len(speed) and speed.max() > 0 and len(moved) >= FEWEST:
                share = float((moved >= _FULL * speed.max() * _BYTES_A_MBIT).mean())
                full[place] = max(share, full.get(place, 0.0))
    found = []
    for alike in by_kind(full):
        found += _full_of_a_kind(beside, alike)
    return found


def _full_of_a_kind(beside: HardwareSamples, full: dict[Place, float]) -> list[Finding]:
    usual = usual_of_others(full)
    alone, shared = [], []
    often = {place: share for place, share in full.items() if share >= _OFTEN_FULL}
    for place, share in sorted(often.items(), key=lambda one: -one[1]):
        theirs = usual.get(place)
        beside_them = "" if theirs is None else f", others {percent(theirs)}"
        sentence = f"{beside.named(place)} was full {percent(share)} of the time{beside_them}"
        advice = "look at what else uses it, and at whether NCCL uses all NICs (NCCL_IB_HCA)"
        made = _finding(beside, place, "full network link", sentence, advice, {"full_share": share})
        if theirs is not None and theirs < _SELDOM_FULL:
            alone.append(made)
        else:
            shared.append(replace(made, severity=INFO))
    if is_shared(len(shared), len(full)):
        what = "ports" if next(iter(full))[1].kind == PORT else "interfaces"
        sentence = (
            f"{len(shared):,} of {len(full):,} network {what} were full "
            f"{spread(one.evidence[0].facts['full_share'] for one in shared)} of the time"
        )
        shared = [together(shared, len(full), sentence)]
    return [*alone, *shared]
