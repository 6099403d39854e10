"""Jobs with something planted, and whether a diagnosis names it: what tuning and tests share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ncclscope.diagnose.finding import Finding
from ncclscope.simulation.scenario import (
    BandwidthDrop,
    Call,
    Communicators,
    Dies,
    HostClock,
    Late,
    Never,
    Scenario,
    SlowLink,
    Wrong,
)

STEPS = 40
COMPUTE_MS = 4.0
Names = Callable[[Finding], bool]


@dataclass(frozen=True)
class Plant:
    """What was planted, and how a finding that names it looks."""

    kind: str
    scenario: Scenario
    names: tuple[Names, ...]  # one for each planted fault


def job(rng: np.random.Generator, ranks: int) -> Scenario:
    """A training job by chance: tensor-parallel groups in nodes, data-parallel ones across."""
    tp = int(rng.choice([4, 8]))
    sizes = [1 << int(rng.integers(18, 22)) for _ in range(4)]
    return Scenario(
        ranks=ranks,
        ranks_per_host=8,
        steps=STEPS,
        compute_ms=COMPUTE_MS,
        give_up_s=20,
        communicators=(Communicators("tp", tp), Communicators("dp", ranks // tp, tp)),
        calls=(
            Call("tp", "AllReduce", sizes[0], "bfloat16"),
            Call("tp", "AllGather", sizes[1], "bfloat16"),
            Call("dp", "ReduceScatter", sizes[2]),
            Call("dp", "AllReduce", sizes[3]),
        ),
    )


def _ranks(finding: Finding, family: str, ranks: set[int], kind: str = "") -> bool:
    return (
        finding.family == family
        and set(finding.ranks) == ranks
        and (not kind or finding.kind == kind)
    )


def _late(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    rank, ms = int(rng.integers(s.ranks)), float(rng.uniform(1.0, 2.0)) * COMPUTE_MS
    return replace(s, late=(*s.late, Late(rank, ms))), lambda f: _ranks(f, "straggler", {rank})


def _slow_host(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    host, ms = int(rng.integers(s.hosts)), float(rng.uniform(1.0, 2.0)) * COMPUTE_MS
    ranks = range(host * s.ranks_per_host, (host + 1) * s.ranks_per_host)
    return (
        replace(s, late=(*s.late, *(Late(rank, ms) for rank in ranks))),
        lambda f: _ranks(f, "straggler", set(ranks)) and f.hosts == (f"node{host}",),
    )


def _place(rng: np.random.Generator, calls: int = 4) -> tuple[int, int]:
    """Step and call of a fault, in the second half."""
    return int(rng.integers(STEPS // 2, STEPS - 2)), int(rng.integers(calls))


def _never(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    rank, (step, call) = int(rng.integers(s.ranks)), _place(rng)
    names = lambda f: _ranks(f, "hang", {rank}, "never_called")  # noqa: E731
    return replace(s, never=(Never(rank, step, call),)), names


def _dies(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    rank, (step, call) = int(rng.integers(s.ranks)), _place(rng)
    names = lambda f: _ranks(f, "hang", {rank}, "dead")  # noqa: E731
    return replace(s, dies=(Dies(rank, step, call),)), names


def _wrong(kind: str) -> Callable[[Scenario, np.random.Generator], tuple[Scenario, Names]]:
    def plant(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
        rank, (step, call) = int(rng.integers(s.ranks)), _place(rng)
        right = s.calls[call]
        other = next(c for c in s.calls if c.function != right.function)
        faults: dict[str, tuple[Wrong, ...]] = {
            "function": (Wrong(rank, step, call, function=other.function),),
            "size": (Wrong(rank, step, call, size=right.size // 2),),
            "datatype": (Wrong(rank, step, call, datatype={"float32": "int32", "bfloat16": "float16"}[right.datatype]),),
        }  # fmt: skip
        a, b = (0, 1) if call < 2 else (2, 3)
        faults["order"] = tuple(
            Wrong(rank, step, one, function=s.calls[two].function, size=s.calls[two].size)
            for one, two in ((a, b), (b, a))
        )
        return (
            replace(s, wrong=faults[kind]),
            lambda f: _ranks(f, "mismatch", {rank}, kind),
        )

    return plant


def _neighbours(s: Scenario, communicator: Communicators, rng: np.random.Generator) -> tuple[int, int, set[int]]:  # fmt: skip
    groups = communicator.groups(s.ranks)
    group = groups[int(rng.integers(len(groups)))]
    at = int(rng.integers(len(group)))
    return group[at], group[(at + 1) % len(group)], set(group)


def _slow_link(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    """Without proxy steps the group is named, not the link."""
    a, b, group = _neighbours(s, s.communicators[int(rng.integers(2))], rng)
    link = SlowLink(ranks=(a, b), factor=float(rng.uniform(4, 8)))
    names = lambda f: _ranks(f, "slow_link", group) or _ranks(f, "slow_link", {a, b})  # noqa: E731
    return replace(s, slow_links=(link,)), names


def _drop(s: Scenario, rng: np.random.Generator) -> tuple[Scenario, Names]:
    # With what real jobs vary by, a step takes about three times its compute.
    at_ms = float(rng.uniform(0.3, 0.5)) * STEPS * 3 * COMPUTE_MS
    factor = float(rng.uniform(3, 6))

    def names(f: Finding) -> bool:
        if f.family != "degradation":
            return False
        return (
            len(f.communicators) > 1
            and abs(f.evidence[0].facts["at_s"] - at_ms / 1e3) < 0.1 * at_ms / 1e3
        )

    return replace(s, bandwidth_drops=(BandwidthDrop(at_ms, factor),)), names


def _clocks(s: Scenario, rng: np.random.Generator) -> Scenario:
    """Offsets of up to a second and drifts of up to 100 ppm between hosts."""
    return replace(
        s,
        host_clocks=tuple(
            HostClock(host, float(rng.uniform(-1000, 1000)), float(rng.uniform(-100, 100)))
            for host in range(s.hosts)
        ),
    )


FAULTS = {
    "late rank": _late,
    "slow host": _slow_host,
    "never calls": _never,
    "dies": _dies,
    "wrong function": _wrong("function"),
    "wrong size": _wrong("size"),
    "wrong datatype": _wrong("datatype"),
    "wrong order": _wrong("order"),
    "slow link": _slow_link,
    "bandwidth drop": _drop,
}
# Two at once; a job that hangs shows what came before as well.
PAIRS = (
    ("late rank", "bandwidth drop"),
    ("late rank", "slow link"),
    ("slow host", "bandwidth drop"),
    ("late rank", "never calls"),
    ("slow link", "never calls"),
    ("bandwidth drop", "wrong function"),
    ("slow host", "dies"),
)


def planted(kinds: tuple[str, ...], seed: int, ranks: int) -> Plant:
    """A job with these faults; every other seed has clocks that are apart and drift."""
    rng = np.random.default_rng((seed, ranks))
    scenario = job(rng, ranks)
    if seed % 4 >= 2:
        scenario = _clocks(scenario, rng)
    names = []
    for kind in kinds:
        scenario, one = FAULTS[kind](scenario, rng)
        names.append(one)
    return Plant(" + ".join(kinds) or "healthy", scenario, tuple(names))


def judged(plant: Plant, findings: tuple[Finding, ...]) -> tuple[bool, bool, bool]:
    """Whether each fault was found by name, they come first, and nothing else is a problem."""
    problems = [finding for finding in findings if finding.severity != "info"]
    found = all(any(names(finding) for finding in findings) for names in plant.names)
    first = findings[: len(plant.names)]
    ahead = len(first) == len(plant.names) and all(
        any(names(finding) for finding in first) for names in plant.names
    )
    extra = [f for f in problems if not any(names(f) for names in plant.names)]
    return found, ahead, not extra
