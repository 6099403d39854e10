"""Simulated jobs with planted faults, and whether a diagnosis names them: for tuning and tests."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope.diagnose.finding import Finding
from ncclscope.simulation.scenario import (
    BandwidthDrop,
    Call,
    Communicators,
    Dies,
    Heavy,
    HostClock,
    Late,
    Never,
    NeverJoins,
    Scenario,
    SlowLink,
    Stuck,
    Wrong,
)
from tests.support.writer.noise import noise_of_transcripts
from tests.support.writer.scenario import begins_ms, write_scenario
from tests.support.writer.synthetic import pid_of

STEPS = 40
COMPUTE_MS = 4.0
Names = Callable[[Finding], bool]


@dataclass(frozen=True)
class PlantedJob:
    """A job, and which findings name its faults."""

    kind: str
    scenario: Scenario
    names: tuple[Names, ...] = ()  # one for each planted fault
    dropped: tuple[tuple[int, tuple[int, int]], ...] = ()  # rank, steps that its recorder lost
    without: tuple[int, ...] = ()  # ranks whose files are taken away

    def write(self, capture: Path, seed: int) -> None:
        """Writes the capture; its times vary as real jobs' do."""
        write_scenario(capture, self.scenario, seed, noise_of_transcripts(), dict(self.dropped))
        for rank in self.without:
            shutil.rmtree(next(capture.glob(f"*.{pid_of(rank)}.*")))

    def plus(self, names: Names, **changes: Any) -> "PlantedJob":
        """The job with one more fault; `changes`: of the scenario."""
        scenario = replace(self.scenario, **changes)
        return replace(self, scenario=scenario, names=(*self.names, names))


Fault = Callable[[PlantedJob, np.random.Generator], PlantedJob]


def random_job(rng: np.random.Generator, ranks: int) -> Scenario:
    """A training job: tensor-parallel groups within nodes, data-parallel ones across."""
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


def _late(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    s = plant.scenario
    rank, ms = int(rng.integers(s.ranks)), float(rng.uniform(1.0, 2.0)) * COMPUTE_MS
    return plant.plus(lambda f: _ranks(f, "straggler", {rank}), late=(*s.late, Late(rank, ms)))


def _slow_host(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    s = plant.scenario
    host, ms = int(rng.integers(s.hosts)), float(rng.uniform(1.0, 2.0)) * COMPUTE_MS
    ranks = range(host * s.ranks_per_host, (host + 1) * s.ranks_per_host)
    return plant.plus(
        lambda f: _ranks(f, "straggler", set(ranks)) and f.hosts == (f"node{host}",),
        late=(*s.late, *(Late(rank, ms) for rank in ranks)),
    )


def _place(rng: np.random.Generator, calls: int = 4) -> tuple[int, int]:
    """Step and call of a fault, in the second half."""
    return int(rng.integers(STEPS // 2, STEPS - 2)), int(rng.integers(calls))


# ---- hangs ----
def _never(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    rank, (step, call) = int(rng.integers(plant.scenario.ranks)), _place(rng)
    names = lambda f: _ranks(f, "hang", {rank}, "never_called")  # noqa: E731
    return plant.plus(names, never=(Never(rank, step, call),))


def _dies(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    rank, (step, call) = int(rng.integers(plant.scenario.ranks)), _place(rng)
    return plant.plus(lambda f: _ranks(f, "hang", {rank}, "dead"), dies=(Dies(rank, step, call),))


def _never_joins(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    s = plant.scenario
    rank, name = int(rng.integers(s.ranks)), s.communicators[int(rng.integers(2))].name
    names = lambda f: _ranks(f, "hang", {rank}, "never_joined")  # noqa: E731
    return plant.plus(names, never_joins=(NeverJoins(rank, name),))


def _stuck(at: str, verdict: str) -> Fault:
    def plant_it(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
        rank, (step, call) = int(rng.integers(plant.scenario.ranks)), _place(rng)
        return plant.plus(
            lambda f: _ranks(f, "hang", {rank}, verdict), stuck=(Stuck(rank, step, call, at),)
        )

    return plant_it


def _stalled(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """Without proxy steps nobody is to blame; the communicator is known by who waits in it."""
    s = plant.scenario
    rank, (step, call) = int(rng.integers(s.ranks)), _place(rng)
    (used,) = (comm for comm in s.communicators if comm.name == s.calls[call].communicator)
    (group,) = (set(ranks) for ranks in used.groups(s.ranks) if rank in ranks)

    def names(f: Finding) -> bool:
        return _ranks(f, "hang", set(), "stalled") and set(f.evidence[0].facts["waiting"]) == group

    return plant.plus(names, stuck=(Stuck(rank, step, call, "network"),))


def _without_files(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """A rank never calls and its files are gone: who and in what, but not why."""
    rank, (step, call) = int(rng.integers(plant.scenario.ranks)), _place(rng)

    def names(f: Finding) -> bool:
        return _ranks(f, "hang", {rank}, "unknown") and f.evidence[0].facts["order"] > 0

    hung = plant.plus(names, never=(Never(rank, step, call),))
    return replace(hung, without=(rank,))


# ---- mismatches ----
def _wrong(kind: str) -> Fault:
    def plant_it(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
        s = plant.scenario
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
            Wrong(rank, step, right, function=s.calls[wrong].function, size=s.calls[wrong].size)
            for right, wrong in ((a, b), (b, a))
        )
        return plant.plus(lambda f: _ranks(f, "mismatch", {rank}, kind), wrong=faults[kind])

    return plant_it


def _wrong_root(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """One of the calls becomes a Broadcast."""
    s = plant.scenario
    rank, (step, call) = int(rng.integers(s.ranks)), _place(rng)
    calls = list(s.calls)
    calls[call] = replace(calls[call], function="Broadcast")
    return plant.plus(
        lambda f: _ranks(f, "mismatch", {rank}, "root"),
        calls=tuple(calls),
        wrong=(Wrong(rank, step, call, root=1 + int(rng.integers(3))),),
    )


# ---- slow, uneven, lost ----
def _neighbours(s: Scenario, communicator: Communicators, rng: np.random.Generator) -> tuple[int, int, set[int]]:  # fmt: skip
    groups = communicator.groups(s.ranks)
    group = groups[int(rng.integers(len(groups)))]
    at = int(rng.integers(len(group)))
    return group[at], group[(at + 1) % len(group)], set(group)


def _slow_link(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """Without proxy steps the group is named, not the link."""
    s = plant.scenario
    a, b, group = _neighbours(s, s.communicators[int(rng.integers(2))], rng)
    link = SlowLink(ranks=(a, b), factor=float(rng.uniform(4, 8)))
    return plant.plus(
        lambda f: _ranks(f, "slow_link", group) or _ranks(f, "slow_link", {a, b}),
        slow_links=(link,),
    )


def _drop(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    step = int(rng.integers(3 * STEPS // 10, STEPS // 2))
    at_ms = begins_ms(plant.scenario, step, noise_of_transcripts())
    factor = float(rng.uniform(3, 6))

    def names(f: Finding) -> bool:
        if f.family != "degradation":
            return False
        return (
            len(f.communicators) > 1
            and abs(f.evidence[0].facts["at_s"] - at_ms / 1e3) < 0.1 * at_ms / 1e3
        )

    return plant.plus(names, bandwidth_drops=(BandwidthDrop(at_ms, factor),))


def _imbalance(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """A rank sends more to its neighbour than others do."""
    s = plant.scenario
    sender, receiver, _ = _neighbours(s, s.communicators[1], rng)
    factor = int(rng.integers(4, 9))
    exchanged = Call("dp", "SendRecv", 1 << 20)
    return plant.plus(
        lambda f: _ranks(f, "imbalance", {sender, receiver}, "bytes"),
        calls=(*s.calls, exchanged),
        heavy=(Heavy(sender, factor, len(s.calls)),),
    )


def _lost_events(plant: PlantedJob, rng: np.random.Generator) -> PlantedJob:
    """A rank's recorder loses some steps; the finding has the exact number of events."""
    s = plant.scenario
    rank, first = int(rng.integers(s.ranks)), int(rng.integers(5, STEPS - 10))
    steps = int(rng.integers(1, 6))
    count = steps * len(s.calls) * (5 + s.channels)

    def names(f: Finding) -> bool:
        return f.kind == "dropped" and sum(f.evidence[0].facts.values()) == count

    lost = plant.plus(names)
    return replace(lost, dropped=((rank, (first, first + steps)),))


def _clocks(s: Scenario, rng: np.random.Generator) -> Scenario:
    """Offsets of up to a second and drifts of up to 100 ppm between hosts."""
    return replace(
        s,
        host_clocks=tuple(
            HostClock(host, float(rng.uniform(-1000, 1000)), float(rng.uniform(-100, 100)))
            for host in range(s.hosts)
        ),
    )


FAULTS: dict[str, Fault] = {
    "late rank": _late,
    "slow host": _slow_host,
    "slow link": _slow_link,
    "bandwidth drop": _drop,
    "imbalance": _imbalance,
    "lost events": _lost_events,
    "never joins": _never_joins,
    "never calls": _never,
    "not launched": _stuck("launch", "not_launched"),
    "not started": _stuck("start", "not_started"),
    "not finished": _stuck("finish", "not_finished"),
    "stalled": _stalled,
    "dies": _dies,
    "without files": _without_files,
    "wrong function": _wrong("function"),
    "wrong size": _wrong("size"),
    "wrong datatype": _wrong("datatype"),
    "wrong root": _wrong_root,
    "wrong order": _wrong("order"),
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
    ("imbalance", "late rank"),
    ("imbalance", "bandwidth drop"),
    ("late rank", "lost events"),
    ("slow host", "not launched"),
    ("late rank", "not started"),
    ("slow link", "not finished"),
    ("bandwidth drop", "stalled"),
)


def plant_faults(
    kinds: tuple[str, ...], seed: int, ranks: int, clocks: bool | None = None
) -> PlantedJob:
    """A job with these faults. `clocks`: whether host clocks are apart and drift; by default half
    of the seeds have that.
    """
    rng = np.random.default_rng((seed, ranks))
    scenario = random_job(rng, ranks)
    if seed % 4 >= 2 if clocks is None else clocks:
        scenario = _clocks(scenario, rng)
    plant = PlantedJob(" + ".join(kinds) or "healthy", scenario)
    for kind in kinds:
        plant = FAULTS[kind](plant, rng)
    return plant


def judge_findings(plant: PlantedJob, findings: tuple[Finding, ...]) -> tuple[bool, bool, bool]:
    """Whether all faults are named, they come first, and nothing else is reported as a problem."""
    problems = [finding for finding in findings if finding.severity != "info"]
    named = all(any(names(finding) for finding in findings) for names in plant.names)
    first = findings[: len(plant.names)]
    ahead = len(first) == len(plant.names) and all(
        any(names(finding) for finding in first) for names in plant.names
    )
    extra = [f for f in problems if not any(names(f) for names in plant.names)]
    return named, ahead, not extra
