"""Jobs of real processes with a fault, and what diagnose must say about them first.

Times are those of a busy machine, so faults are large. No process dies: its launcher would end the
others a second later, and which one was first would not be on record.
"""

from dataclasses import dataclass, replace

from ncclscope.diagnose.finding import Finding
from ncclscope.simulation.scenario import (
    BandwidthDrop,
    Call,
    Communicators,
    Heavy,
    HostClock,
    Late,
    Never,
    Scenario,
    SlowLink,
    Stuck,
    Wrong,
)

Expected = tuple[str, str, tuple[int, ...]]  # family, kind, ranks
STEP = 30
FOUR = Scenario(
    ranks=4, ranks_per_host=1, steps=40, compute_ms=5, give_up_s=6,
    calls=(Call("world", "AllReduce", 1 << 20),),
)  # fmt: skip
TWO_CALLS = replace(FOUR, calls=(*FOUR.calls, Call("world", "AllGather", 1 << 20)))
EIGHT = replace(
    FOUR, ranks=8, ranks_per_host=4, steps=STEP,
    communicators=(Communicators("tp", 4), Communicators("dp", 2, 4)),
    calls=(Call("tp", "AllReduce", 1 << 18), Call("dp", "AllReduce", 1 << 18)),
)  # fmt: skip
CLOCKS = tuple(HostClock(host, 700.0 * host, 60.0 - 40 * host) for host in range(4))
LATE: Expected = ("straggler", "compute", (2,))
SLOW: Expected = ("slow_link", "inter-node", (1, 2))
DROP: Expected = ("degradation", "slower", ())


@dataclass(frozen=True)
class FaultyJob:
    """A job, and the findings that must come first, in any order."""

    scenario: Scenario
    expected: tuple[Expected, ...]

    def is_named(self, findings: tuple[Finding, ...]) -> bool:
        """Whether the first findings are the expected ones."""
        first = {(f.family, f.kind, f.ranks) for f in findings[: len(self.expected)]}
        return first == set(self.expected)


def _one(scenario: Scenario, family: str, kind: str, *ranks: int) -> FaultyJob:
    return FaultyJob(scenario, ((family, kind, ranks),))


def _stuck(rank: int, at: str, kind: str, *ranks: int) -> FaultyJob:
    return _one(replace(FOUR, stuck=(Stuck(rank, STEP, at=at),)), "hang", kind, *ranks)


def _wrong(kind: str, scenario: Scenario, *wrong: Wrong) -> FaultyJob:
    return _one(replace(scenario, wrong=wrong), "mismatch", kind, 3)


_DROPPING = replace(FOUR, steps=60, bandwidth_drops=(BandwidthDrop(300, 15),))
JOBS = {
    "late rank": FaultyJob(replace(FOUR, late=(Late(2, 60),)), (LATE,)),
    "late rank of eight": _one(replace(EIGHT, late=(Late(5, 30),)), "straggler", "compute", 5),
    "late rank, clocks drift": FaultyJob(
        replace(FOUR, late=(Late(2, 20),), host_clocks=CLOCKS), (LATE,)
    ),
    "slow host of eight": _one(
        replace(EIGHT, late=tuple(Late(rank, 100) for rank in range(4, 8))),
        "straggler", "host compute", 4, 5, 6, 7,
    ),
    "slow link": FaultyJob(replace(FOUR, slow_links=(SlowLink(ranks=(1, 2), factor=20),)), (SLOW,)),
    "bandwidth drop": FaultyJob(_DROPPING, (DROP,)),
    "imbalance": _one(
        # Transfers of 20 ms: what a busy machine adds to one of them makes no link slow.
        replace(
            FOUR, calls=(Call("world", "SendRecv", 1 << 20),), heavy=(Heavy(1, 6),), bandwidth_gb_s=0.05
        ),
        "imbalance", "bytes", 1, 2,
    ),
    "never calls": _one(replace(FOUR, never=(Never(1, STEP),)), "hang", "never_called", 1),
    "never calls of eight": _one(
        replace(EIGHT, never=(Never(5, 20, 1),)), "hang", "never_called", 5
    ),
    "not launched": _stuck(2, "launch", "not_launched", 2),
    "not started": _stuck(1, "start", "not_started", 1),
    "not finished": _stuck(3, "finish", "not_finished", 3),
    "stalled": _stuck(2, "network", "stalled", 2, 3),
    "wrong function": _wrong("function", FOUR, Wrong(3, STEP, function="AllGather")),
    "wrong size": _wrong("size", FOUR, Wrong(3, STEP, size=1 << 19)),
    "wrong datatype": _wrong("datatype", FOUR, Wrong(3, STEP, datatype="int32")),
    "wrong root": _wrong(
        "root", replace(FOUR, calls=(Call("world", "Reduce", 1 << 20),)), Wrong(3, STEP, root=3)
    ),
    "wrong order": _wrong(
        "order", TWO_CALLS, Wrong(3, STEP, 0, function="AllGather"),
        Wrong(3, STEP, 1, function="AllReduce"),
    ),
    "late rank + never calls": FaultyJob(
        replace(FOUR, late=(Late(2, 20),), never=(Never(1, STEP),)),
        (LATE, ("hang", "never_called", (1,))),
    ),
    "late rank + bandwidth drop": FaultyJob(
        replace(_DROPPING, late=(Late(2, 20),), bandwidth_drops=(BandwidthDrop(800, 15),)),
        (LATE, DROP),
    ),
    "slow link + wrong function": FaultyJob(
        replace(
            FOUR, slow_links=(SlowLink(ranks=(1, 2), factor=20),),
            wrong=(Wrong(3, STEP, function="AllGather"),),
        ),
        (SLOW, ("mismatch", "function", (3,))),
    ),
}  # fmt: skip
