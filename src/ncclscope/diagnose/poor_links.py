"""Interfaces and InfiniBand ports with errors, at low speed or down, beside their peers."""

from ncclscope.diagnose.beside import Beside, Place, known, links, usual
from ncclscope.diagnose.finding import WARNING, Evidence, Finding
from ncclscope.model.system import Track
from ncclscope.words import plural

FAMILY = "machine"
_ERRORS = {
    "rx_errors": ("damaged packet", "damaged packets"),
    "tx_errors": ("packet that could not be sent", "packets that could not be sent"),
    "symbol_errors": ("damaged symbol", "damaged symbols"),
    "link_recoveries": ("training anew", "trainings anew"),
    "retransmissions": ("retransmission", "retransmissions"),
    "tx_discards": ("discarded packet", "discarded packets"),
    "link_downed": ("loss of its link", "losses of its link"),
}
_MANY, _TIMES_USUAL = 10, 10
_IDLE = 0.01  # of the busiest link's bytes: less is not the job's


def find(beside: Beside) -> list[Finding]:
    """All of them."""
    used = _used(beside)
    return [*_errors(beside, used), *_speed(beside), *_down(beside)]


def _used(beside: Beside) -> set[Place]:
    """Links that move what the job moves."""
    moved: dict[Place, int] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, track in links(beside, counter).items():
            moved[place] = moved.get(place, 0) + track.growth()
    most = max(moved.values(), default=0)
    return {place for place, size in moved.items() if size > _IDLE * most}


def _finding(
    beside: Beside, place: Place, kind: str, sentence: str, advice: str, facts: dict[str, float]
) -> Finding:  # fmt: skip
    listed = ", ".join(f"{name} {value:,.0f}" for name, value in facts.items())
    return Finding(
        FAMILY, WARNING, sentence, advice, kind, (), (beside.host(place),),
        evidence=(Evidence(listed, dict(facts), beside.command(place)),),
        confidence=0.85,
    )  # fmt: skip


def _errors(beside: Beside, used: set[Place]) -> list[Finding]:
    by_place: dict[Place, dict[str, float]] = {}
    for counter in _ERRORS:
        grown = {p: t.growth() for p, t in links(beside, counter).items() if p in used}
        for place, count in grown.items():
            peers = [n for p, n in grown.items() if p != place and p[1].kind == place[1].kind]
            theirs = usual(peers) or 0.0
            least = 1 if counter == "link_downed" else _MANY
            if count >= least and count > _TIMES_USUAL * theirs:
                by_place.setdefault(place, {})[counter] = count
    found = []
    for place, facts in by_place.items():
        worst = max(facts, key=lambda name: (name == "link_downed", facts[name]))
        sentence = (
            f"{beside.named(place)} had {plural(int(facts[worst]), *_ERRORS[worst])} during the "
            "run, far more than its peers"
        )
        advice = "look at its cable, transceiver and switch port; then at congestion and buffers"
        made = _finding(beside, place, "network errors", sentence, advice, facts)
        found.append(made)
    return found


def _namesakes(tracks: dict[Place, Track], place: Place) -> list[int]:
    """Last values of the link of the same name on other hosts: the same slot of a like machine."""
    return [
        int(known(track)[-1])
        for other, track in tracks.items()
        if other[0] != place[0] and other[1] == place[1] and len(known(track))
    ]


def _speed(beside: Beside) -> list[Finding]:
    found = []
    speeds = links(beside, "speed_mbit_s")
    for place, track in speeds.items():
        mine, theirs = known(track), usual(_namesakes(speeds, place))
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


def _down(beside: Beside) -> list[Finding]:
    found = []
    states = links(beside, "up")
    for place, track in states.items():
        mine, theirs = known(track), usual(_namesakes(states, place))
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
