"""What two jobs are compared by: times of their calls by kind, rounds, waiting and run time.

A kind is a communicator, function, size and datatype. One call on all ranks is one sample; its time
is the shortest over its ranks, so that waiting is not in it.

A round is the time from one call of a kind that returns all the time to its next call. It is a
step of the job, or a whole part of one, and it needs no knowledge of steps. Rounds are taken in
blocks of neighbouring calls, and the median block counts: start-up and single pauses are not in it.

    calls at 0, 10, 20, 130, 140, 150 ms, two a block  ->  blocks of 10, 60, 10 ms a call  ->  10 ms

The run is all of its time after the start-up: with single long rounds, other phases, and what comes
after the last round. It is cut into parts at calls, so that parts of equal runs have equal work.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ncclscope.analysis.distinct import distinct_rows, rows_by_place
from ncclscope.analysis.measures import EXACT_SOURCES, began_ns
from ncclscope.analysis.run import Run
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.model import Model
from ncclscope.model.schema import COLLECTIVE, NONE, RECV, SOURCES

Key = tuple[str, str, int, str]  # communicator, function, bytes, datatype
_MOST = 4000  # samples of a kind; beyond, one of every few
_BLOCKS = 32  # of a run's rounds; its parts
LEAST_ROUNDS = 16
_SETTLED = 0.1  # of a run's rounds, or calls, are its start-up
_EXACT = np.array([*(name in EXACT_SOURCES for name in SOURCES), False])  # by code; -1: none


@dataclass(frozen=True, slots=True)
class KindSamples:
    """Calls of one kind, in the order of their starts."""

    times_ns: Floats  # the shortest over their ranks
    waits_ns: Floats  # what the longest rank took beyond it
    starts_ns: Ints  # the first rank's; of all calls
    calls: int
    exact: bool  # times come from the GPU and are no lower bounds


@dataclass(frozen=True, slots=True)
class Rounds:
    """How fast a job went round, by blocks of calls."""

    kind: Key
    block_ns: Floats  # mean time from call to call, by block
    wait_ns: Floats  # waiting of one rank a round, by block
    mean_ns: float  # over all calls after the start-up
    settled: int  # their number
    to_end_ns: float  # from the first of them to the run's end, by round

    @property
    def settled_block_ns(self) -> Floats:
        """Blocks after the start-up."""
        return self.block_ns[int(_SETTLED * len(self.block_ns)) :]


@dataclass(frozen=True, slots=True)
class Parts:
    """The run from its first tenth of calls to its end, in parts with as many calls each."""

    ns: Floats
    calls: int  # of the whole run, by rank


def base_name(name: str) -> str:
    """A communicator's name without the number that tells equal ones apart."""
    return re.sub(r"#\d+$", "", name)


class JobSamples:
    """The samples of one capture's last attempt."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.run = Run(model)
        self.span_ns = self.run.span_ns if len(self.run.operations["call_ns"]) else 0

    @cached_property
    def _names(self) -> tuple[list[str], Ints]:
        """Base names of communicators, and by row the place of its own."""
        names = [base_name(name) for name in self.model.communicator_names]
        distinct = sorted(set(names))
        place = {name: number for number, name in enumerate(distinct)}
        return distinct, np.array([place[name] for name in names], np.int64)

    @cached_property
    def kinds(self) -> dict[Key, KindSamples]:
        """Calls with a time, by kind."""
        run = self.run
        operations = run.operations
        timed = run.current & (operations["duration_ns"] > 0) & (operations["instance"] != NONE)
        rows = np.flatnonzero(timed & (operations["form"] != RECV))
        if not len(rows):
            return {}
        rows = rows[np.argsort(run.column("instance", rows), kind="stable")]
        _, first = np.unique(run.column("instance", rows), return_index=True)
        duration = run.column("duration_ns", rows).astype(np.float64)
        shortest = np.minimum.reduceat(duration, first)
        wait = np.maximum.reduceat(duration, first) - shortest
        exact = np.minimum.reduceat(_EXACT[operations["source"][rows]], first)
        start = np.minimum.reduceat(began_ns(operations, rows), first)
        kinds, kind = self._kinds_of(rows[first])
        samples = {}
        for key, own in zip(kinds, rows_by_place(kind, len(kinds)), strict=True):
            own = own[np.argsort(start[own], kind="stable")]
            some = own[:: max(len(own) // _MOST, 1)]
            samples[key] = KindSamples(
                shortest[some], wait[some], start[own], len(own), bool(exact[own].all())
            )
        return samples

    def _kinds_of(self, rows: Ints) -> tuple[list[Key], Ints]:
        """The kinds of some operations, and by operation the place of its own."""
        distinct, number = self._names
        columns = [
            number[self.run.column("communicator", rows)],
            *(self.run.column(name, rows) for name in ("function", "size_bytes", "datatype")),
        ]
        kinds, kind = distinct_rows(columns)
        word = self.run.word
        keys = [
            (distinct[comm], word("function", function), size, word("datatype", datatype))
            for comm, function, size, datatype in kinds.tolist()
        ]
        return keys, kind

    @cached_property
    def counted(self) -> dict[Key, int]:
        """Calls by kind that were counted, also in mode profile; by call on one rank."""
        counters = self.model.tables["counters"]
        level = np.asarray(counters["level"])
        calls: dict[Key, int] = {}
        distinct, number = self._names
        words = self.model.words
        for row in np.flatnonzero(level == _level(level)).tolist():
            comm = int(counters["communicator"][row])
            function, datatype = int(counters["function"][row]), int(counters["datatype"][row])
            if comm < 0 or function < 0 or words["function"][function] == "Recv":
                continue  # a pair counts once, as its send
            key = (
                distinct[int(number[comm])],
                words["function"][function],
                int(counters["size_bytes"][row]),
                words["datatype"][datatype] if datatype >= 0 else "",
            )
            calls[key] = calls.get(key, 0) + int(counters["calls"][row])
        return calls

    # ---- rounds ----
    def rounds(self, kind: Key) -> Rounds:
        """Rounds from call to call of a kind that has at least LEAST_ROUNDS calls."""
        starts = self.kinds[kind].starts_ns
        gaps = len(starts) - 1
        places = np.linspace(0, gaps, min(_BLOCKS, gaps) + 1).round().astype(np.int64)
        edges, calls = starts[places], np.diff(places)
        settled = starts[int(_SETTLED * gaps) :]
        count = max(len(settled) - 1, 1)
        return Rounds(
            kind,
            np.diff(edges) / calls,
            self._waits_between(edges) / calls,
            float(settled[-1] - settled[0]) / count,
            count,
            float(max(self.run.extent[1], settled[-1]) - settled[0]) / count,
        )

    @cached_property
    def parts(self) -> Parts:
        """The run by parts; whoever calls, and whatever for."""
        began = began_ns(self.run.operations, np.flatnonzero(self.run.current))
        began = began[began != NONE]
        last = len(began) - 1
        places = np.linspace(int(_SETTLED * last), last, _BLOCKS + 1).round().astype(np.int64)
        edges = np.partition(began, places)[places]
        edges[-1] = max(edges[-1], self.run.extent[1])
        return Parts(np.diff(edges).astype(np.float64), len(began))

    def _waits_between(self, edges: Ints) -> Floats:
        """Waiting of a rank in the mean, between these times."""
        rows = np.flatnonzero(self._with_wait)
        block = np.searchsorted(edges, began_ns(self.run.operations, rows), side="right") - 1
        inside = (block >= 0) & (block < len(edges) - 1)
        wait = self.run.column("wait_ns", rows[inside]).astype(np.float64)
        sums = np.bincount(block[inside], wait, len(edges) - 1)
        return sums / max(len(self.run.process_of), 1)

    @cached_property
    def _with_wait(self) -> Bools:
        """Collectives whose waiting is known."""
        operations = self.run.operations
        waited = (operations["wait_ns"] != NONE) & (operations["form"] == COLLECTIVE)
        return np.asarray(self.run.current & waited)


def _level(levels: Ints) -> int:
    """The level that counts calls: the first that a capture has."""
    return int(levels.min(initial=0))


def rhythm_of(jobs: list[JobSamples]) -> Key | None:
    """The kind whose calls mark rounds in all these jobs: of those that span most of the jobs, the
    one with the fewest calls. None where there is none. The order of jobs does not matter.
    """
    common = [
        key
        for key in jobs[0].kinds
        if all(key in job.kinds and job.kinds[key].calls > LEAST_ROUNDS for job in jobs)
    ]
    span, calls = dict.fromkeys(common, 0), dict.fromkeys(common, 0)
    for key in common:
        for job in jobs:
            starts = job.kinds[key].starts_ns
            span[key] += int(starts[-1] - starts[0])
            calls[key] += len(starts)
    longest = max(span.values(), default=0)
    wide = [key for key in common if span[key] >= longest / 2]
    return min(wide, key=lambda key: (calls[key], key), default=None)
