"""Interfaces and InfiniBand ports with errors, at low speed or down, beside their peers."""

from dataclasses import replace

from ncclscope.diagnose.beside import FAMILY, FEWEST, Beside, Place, known, links, rates, usual
from ncclscope.diagnose.finding import INFO, WARNING, Evidence, Finding
from ncclscope.model.system import Track
from ncclscope.words import percent, plural

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


def find(beside: Beside) -> list[Finding]:
    """All of them."""
    return [*_errors(beside), *_speed(beside), *_down(beside), *_full(beside)]


def _moved(beside: Beside) -> dict[Place, int]:
    """Bytes by link, both ways."""
    moved: dict[Place, int] = {}
    for counter in ("rx_bytes", "tx_bytes"):
        for place, track in links(beside, counter).items():
            moved[place] = moved.get(place, 0) + track.growth()
    return moved


def _finding(
    beside: Beside, place: Place, kind: str, sentence: str, advice: str, facts: dict[str, float]
) -> Finding:  # fmt: skip
    listed = ", ".join(f"{name} {value:,.3g}" for name, value in facts.items())
    return Finding(
        FAMILY, WARNING, sentence, advice, kind, (), (beside.host(place),),
        evidence=(Evidence(listed, dict(facts), beside.command(place)),),
        confidence=0.85,
    )  # fmt: skip


def _usual_errors(grown: dict[Place, int], moved: dict[Place, int], place: Place) -> float | None:
    """As many errors as peers have, or would have had they moved as much; None without peers."""
    peers = [one for one in grown if one != place and one[1].kind == place[1].kind]
    each = usual(float(grown[one]) for one in peers)
    by_byte = usual(grown[one] / moved[one] for one in peers if moved.get(one))
    return None if each is None else max(each, (by_byte or 0.0) * moved.get(place, 0))


def _errors(beside: Beside) -> list[Finding]:
    moved = _moved(beside)
    most = max(moved.values(), default=0)
    by_place: dict[Place, dict[str, float]] = {}
    for counter in _ERRORS:
        grown = {place: track.growth() for place, track in links(beside, counter).items()}
        for place, count in grown.items():
            if moved.get(place, 0) <= _IDLE * most:
                continue
            theirs = _usual_errors(grown, moved, place)
            if theirs is None and counter in _USUAL:
                continue
            least = 1 if counter == "link_downed" else _MANY
            if count >= least and count > _TIMES_USUAL * (theirs or 0.0):
                by_place.setdefault(place, {})[counter] = count
    found = []
    for place, facts in by_place.items():
        worst = max(facts, key=lambda name: (name == "link_downed", facts[name]))
        sentence = (
            f"{beside.named(place)} had {plural(int(facts[worst]), *_ERRORS[worst])} during the "
            "run, far more than is usual here"
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


def _full(beside: Beside) -> list[Finding]:
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
    for place, share in full.items():
        peers = [n for p, n in full.items() if p != place and p[1].kind == place[1].kind]
        theirs = usual(peers)
        if share < _OFTEN_FULL:
            continue
        alone = theirs is not None and theirs < _SELDOM_FULL
        beside_them = "" if theirs is None else f", others {percent(theirs)}"
        sentence = f"{beside.named(place)} was full {percent(share)} of the time{beside_them}"
        advice = "look at what else uses it, and at whether NCCL uses all NICs (NCCL_IB_HCA)"
        made = _finding(beside, place, "full network link", sentence, advice, {"full_share": share})
        found.append(made if alone else replace(made, severity=INFO))
    return found
