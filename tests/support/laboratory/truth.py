"""What is true of a job of the laboratory, and jobs as kinds that can be made again by a seed."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.laboratory.capture import write_capture
from tests.support.laboratory.engine import Job, Program
from tests.support.laboratory.events import Machine, Planted
from tests.support.laboratory.faults import USUAL, Fault, Noise
from tests.support.laboratory.recording import Recording

MUST_NAME = 0.04  # of the run lost: from here on silence is a miss
MAY_NAME = 0.005  # below this nobody needs to hear of it, and naming it is still right


@dataclass(frozen=True, slots=True)
class Origin:
    """A planted fault, and what it did."""

    kind: str  # see Fault
    ranks: tuple[int, ...]  # mostly one; of a transfer, what all of its links have: ends, or a host
    communicators: tuple[tuple[int, ...], ...]  # of a transfer: members of those that use the link
    delay_ns: float  # planted, in sum
    times: int
    run_without_ns: float  # run time of the same seed without this fault
    lost_share: float  # of the run
    must: bool  # it has to be named
    exchanges: bool = False  # of a transfer: it slows sends and receives
    links: tuple[tuple[int, ...], ...] = ()  # of a transfer


@dataclass(frozen=True, slots=True)
class Status:
    """What `status` has to say.

    Verdicts are those of docs/verbs/status.md; two more are expected of it: `circle`, where ranks
    wait for each other in several communicators, and `extra_call`, where some ranks call what the
    others never will. Culprits are those of all communicators that hang by themselves.
    """

    verdicts: tuple[str, ...] = ("ok",)  # any of these
    culprits: tuple[int, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything that verdicts are held against."""

    kind: str
    seed: int
    ranks: int
    origins: tuple[Origin, ...]
    run_ns: float
    healthy_run_ns: float  # of the twin: same seed, no fault
    waiting_ns: float  # in collectives, over all ranks
    healthy_waiting_ns: float
    exchange_waiting_ns: float = 0.0  # in sends and receives, which can be seen in part only
    may_ranks: tuple[int, ...] = ()  # naming them is right as well: they are late by design
    may_families: tuple[str, ...] = ()  # findings that are true of this record
    uneven: bool = False  # so is a finding that work is uneven and that names no rank
    status: Status = field(default_factory=Status)
    never_said: tuple[str, ...] = ()  # words that no answer may have

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job: how it is made, recorded, and what is wrong with it."""

    name: str
    ranks: int
    program: Callable[[Job], Program]
    faults: tuple[Fault, ...] = ()
    machine: Machine = field(default_factory=Machine)
    noise: Noise = USUAL
    recording: Recording = field(default_factory=Recording)
    restarts: int = 0  # attempts before, which were killed
    may_ranks: tuple[int, ...] = ()
    may_families: tuple[str, ...] = ()
    uneven: bool = False  # another rank is late each time, by design: that may be said
    blind: bool = False  # the record cannot show who is late: silence is right as well

    def job(self, seed: int, faults: tuple[Fault, ...] | None = None) -> Job:
        """The job, run to its end; `faults`: others than its own."""
        given = self.faults if faults is None else faults
        made = Job(self.ranks, self.machine, given, self.noise, seed)
        return made.run(self.program(made))

    def write(self, capture: Path, seed: int) -> Truth:
        """Writes the capture and returns what is true of it."""
        job = self.job(seed)
        healthy = self.job(seed, ()) if self.faults else job
        earlier = tuple(self.job(seed + 10_000 * n, ()) for n in range(1, self.restarts + 1))
        write_capture(capture, job, self.recording, earlier)
        return Truth(
            self.name, seed, self.ranks, self._origins(job, healthy, seed), job.run_ns,
            healthy.run_ns, job.waiting_ns(), healthy.waiting_ns(),
            job.exchange_waiting_ns(), self.may_ranks,
            self.may_families, self.uneven,
        )  # fmt: skip

    def _origins(self, job: Job, healthy: Job, seed: int) -> tuple[Origin, ...]:
        groups: dict[str, list[Planted]] = {}
        for place, planted in enumerate(job.planted):
            groups.setdefault(planted.fault.group or f"fault {place}", []).append(planted)
        return tuple(self._origin(job, healthy, seed, group) for group in groups.values())

    def _origin(self, job: Job, healthy: Job, seed: int, group: list[Planted]) -> Origin:
        own = tuple(planted.fault for planted in group)
        others = tuple(fault for fault in self.faults if fault not in own)
        without_ns = (self.job(seed, others) if others else healthy).run_ns
        alone_ns = (self.job(seed, own) if others else job).run_ns
        lost = 1 - without_ns / job.run_ns
        lost_alone = 1 - healthy.run_ns / alone_ns
        used = sorted({name for planted in group for name in planted.communicators})
        transfer = own[0].kind == "transfer"
        ends = self._common_ends(tuple(fault.link for fault in own)) if transfer else set()
        return Origin(
            kind=own[0].kind,
            ranks=tuple(sorted(ends or {fault.rank for fault in own})),
            communicators=tuple(job.communicators[name].members for name in used),
            delay_ns=sum(planted.delay_ns for planted in group),
            times=sum(planted.times for planted in group),
            run_without_ns=without_ns,
            lost_share=lost,
            # Start-up is a part of its own in the account of waiting, and nobody's fault.
            must=own[0].kind != "start-up"
            and not self.blind
            and max(lost, 0 if own[0].masked else lost_alone) >= MUST_NAME,
            exchanges=any(planted.exchanges for planted in group),
            links=tuple(fault.link for fault in own) if transfer else (),
        )

    def _common_ends(self, links: tuple[tuple[int, int], ...]) -> set[int]:
        """Ranks that all links have; else all ranks of the host that all links have an end on."""
        ends = set.intersection(*(set(link) for link in links))
        per_host = self.machine.ranks_per_host
        hosts = set.intersection(*({rank // per_host for rank in link} for link in links))
        if ends or len(hosts) != 1:
            return ends
        first = hosts.pop() * per_host
        return set(range(first, min(first + per_host, self.ranks)))
