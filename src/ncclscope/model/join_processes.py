"""Joins decoded processes: one clock, and operations matched across ranks.

Whatever looks at operations is a stage (stages.py) that an engine carries out. Here is what lies
between stages: results that are joined, and clocks that are solved. It needs little of each
process, and grows with the number of communicators, nodes and mismatching calls.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclscope.arrays.types import Ints
from ncclscope.model.align.bounds import bounds_of_steps, join_steps
from ncclscope.model.align.event_clocks import RankClock, align_event_clocks, ranks_by_node
from ncclscope.model.align.host_clocks import HostClocks, solve
from ncclscope.model.engine import Engine, ProcessOperations, Result
from ncclscope.model.event_clock_stages import FindEventTimes, MoveEventTimes
from ncclscope.model.job import Job
from ncclscope.model.match.inferred_rooted import CHANGED, complete_rooted, may_be_rooted
from ncclscope.model.match.instances import merge_instances
from ncclscope.model.match.missing_operations import count_behind, missing_by_instance
from ncclscope.model.match.recent_numbers import CHANGED as NUMBERED
from ncclscope.model.match.recent_numbers import number_by_times
from ncclscope.model.match.votes import majority
from ncclscope.model.operation_files import OperationFiles
from ncclscope.model.schema import NONE, TIME_COLUMNS, Columns
from ncclscope.model.stages import (
    GPUS,
    Block,
    CastBallots,
    CommunicatorsOf,
    CompleteSizes,
    CountModules,
    CountStreams,
    FindBounds,
    FirstTimesOf,
    GatherStates,
    MoveTimes,
    NumberBySequence,
    Plan,
    SeeInstances,
    SetWaits,
    WriteBlock,
    count_state,
    reserve_states,
    write_missing,
)
from ncclscope.model.store.saved_model import Writer
from ncclscope.model.streams import Rules, StreamCounter, rules_of
from ncclscope.nccl.functions import COUNTS_ONE_RANK


@dataclass(frozen=True, slots=True)
class JoinProcesses:
    """The stages after decoding: tasks over bundles of processes, and what joins their results."""

    operations: OperationFiles
    job: Job
    engine: Engine
    bundles: list[list[ProcessOperations]]

    def _map(self, stage: Callable[[list[ProcessOperations]], Result]) -> list[Result]:
        return self.engine.map(stage, self.bundles)

    @property
    def _common(self) -> tuple[OperationFiles, int]:
        return self.operations, self.engine.threads

    @property
    def _rules(self) -> Rules:
        words = self.job.words.lists
        return rules_of(words["function"], words["algorithm"])

    def number(self) -> Ints:
        """Completes what needs to know all processes: sizes, and numbers where calls are missing;
        returns the communicators of these.
        """
        self._complete_sizes()
        incomplete = self._incomplete_communicators()
        if len(incomplete):
            self._map(NumberBySequence(*self._common, incomplete))
            self.operations.adopt("call_order")
        if self.job.recent:
            columns = self.operations.editable(NUMBERED)
            nodes = range(len(self.job.registry.processes.nodes))
            number_by_times(columns, [self.job.wall_ns[node] for node in nodes])
            self.operations.save(columns, NUMBERED)
        if self._complete_rooted() or len(incomplete):
            self.job.streams = StreamCounter()
            for ranges in itertools.chain(*self._map(CountStreams(*self._common))):
                self.job.streams.join(ranges)
        return incomplete

    def _complete_sizes(self) -> None:
        communicators = self.job.registry.communicators
        ranks, are_known = communicators.ranks(), communicators.ranks_are_known()
        if not are_known.all():
            functions = self.job.words.occurring_codes("function", COUNTS_ONE_RANK)
            self._map(CompleteSizes(*self._common, ranks, are_known, functions))
            self.operations.adopt("size_bytes")

    def _incomplete_communicators(self) -> Ints:
        """Communicators of processes that lost calls, or did not record all of them."""
        processes = frozenset(self.job.counts.incomplete)
        parts = self._map(CommunicatorsOf(*self._common, processes)) if processes else []
        comms: Ints = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
        return np.asarray(comms[comms != NONE])

    def _complete_rooted(self) -> bool:
        """The command does this: it needs whole communicators, and is rare."""
        if not may_be_rooted(self.job.words):
            return False
        columns = self.operations.editable(CHANGED)
        changed = complete_rooted(columns, self.job.words)
        if changed:
            self.operations.save(columns, CHANGED)
        return changed

    def align_events(self) -> None:
        """Puts times by CUDA events of each node's ranks on one clock."""
        job = self.job
        rows = enumerate(job.process_rows)
        excess_ns = {number: row.event_excess_ns for number, row in rows if row.event_error_ns}
        if not excess_ns:
            return
        stage = FindEventTimes(*self._common, job.streams.streams(), self._rules, excess_ns)
        times = list(itertools.chain(*self._map(stage)))
        nodes = [row.node for row in job.process_rows]
        aligned = self.engine.map(align_event_clocks, ranks_by_node(times, nodes))
        clocks = {(own.process, own.rank): own for own in itertools.chain(*aligned)}
        if not clocks:
            return
        self._map(MoveEventTimes(*self._common, clocks))
        self.operations.adopt("start_ns", "end_ns")
        ranks_of: dict[int, list[RankClock | None]] = {}
        for own in times:
            ranks_of.setdefault(own.process, []).append(clocks.get((own.process, own.rank)))
        on_host_ns = dict[int, int]()
        for process, ranks in ranks_of.items():
            known = [rank for rank in ranks if rank is not None]
            if len(known) == len(ranks):
                job.among_ns[process] = max(rank.among_ns for rank in known)
                on_host_ns[process] = max(rank.on_host_ns for rank in known)
        job.registry.processes.set_gpu_clock_errors(on_host_ns)
        self.bundles[:] = self.engine.bundles(job.processes())

    def align(self) -> HostClocks:
        """Aligns the nodes' clocks and moves all times to the first one's."""
        job = self.job
        wall_ns = [job.wall_ns[node] for node in range(len(job.registry.processes.nodes))]
        if len(wall_ns) < 2:
            return solve(wall_ns or [0])
        streams = job.streams
        stage = FindBounds(*self._common, streams.streams(), streams.nodes(), self._rules)
        if self.engine.repeats:
            collectives = stage.empty()
            for cells in self._map(stage):
                collectives.join(*cells)
        else:
            collectives = stage.bounds(self.bundles[0])
        steps = bounds_of_steps(join_steps(job.sends), join_steps(job.receives))
        clocks = solve(wall_ns, steps, collectives)
        self._map(MoveTimes(*self._common, clocks))
        self.operations.adopt(*TIME_COLUMNS)
        job.registry.move_times(clocks.to_reference)
        return clocks

    def match(self, clocks: HostClocks, writer: Writer, sequenced: bool) -> Columns:
        """Matches operations across ranks, sets what depends on it, and returns the instances."""
        streams = self.job.streams.streams()
        whole = (slice(0, len(streams.code)),)
        blocks = whole if len(self.bundles) == 1 else tuple(streams.by_communicator())
        plan = Plan(streams, self._rules, blocks)
        states = self.engine.reduce(
            GatherStates(*self._common, plan), self.bundles, merge_instances
        )
        self._write_instances(plan, states, clocks, writer)
        self._map(SetWaits(*self._common, plan, sequenced))
        if sequenced:
            self.operations.adopt("call_order")
        instances = writer.columns("instances")
        self._count_missing(instances)
        return instances

    def _write_instances(
        self, plan: Plan, states: dict[int, Any], clocks: HostClocks, writer: Writer
    ) -> None:
        keys = sorted(states)
        counted = self.engine.map(count_state, [states[key] for key in keys])
        gpus = counted[0][2] if keys else {}  # of GPUS, else of the only block
        agreed = self._agreed(plan, {k: c[1] for k, c in zip(keys, counted, strict=True)})
        blocks = []
        for key, (count, mismatches, _) in zip(keys, counted, strict=True):
            if key != GPUS:
                first = writer.reserve("instances", count)
                own_rows = mismatches if key in agreed else mismatches[:0]
                blocks.append(Block(key, states[key], first, own_rows, agreed.get(key, {})))
        reserve_states(self.operations.folder, plan.streams.rows)
        nodes, ranks = self.job.streams.nodes(), self.job.registry.communicators.ranks()
        folder = self.operations.folder
        self.engine.map(WriteBlock(folder, plan, clocks, nodes, ranks, gpus), blocks)

    def _agreed(self, plan: Plan, mismatches: dict[int, Ints]) -> dict[int, Columns]:
        """By block the majority's values in its mismatching instances, where these were counted
        apart.
        """
        rows = {k: plan.first_row(k) + own for k, own in mismatches.items() if len(own)}
        if len(self.bundles) == 1 or not rows:
            return {}
        chosen = np.sort(np.concatenate(list(rows.values())))
        cast = list(itertools.chain(*self._map(CastBallots(*self._common, plan, chosen))))
        agreed = majority(cast, chosen, plan.rules.send)
        return {
            key: {name: values[np.searchsorted(chosen, own)] for name, values in agreed.items()}
            for key, own in rows.items()
        }

    def _count_missing(self, instances: Columns) -> None:
        job, folder = self.job, self.operations.folder
        communicators = job.registry.communicators
        partly = job.counts.partly_recorded(job.process_rows)
        seen = itertools.chain(*self._map(SeeInstances(*self._common, partly)))
        missing = missing_by_instance(instances, communicators, partly, seen)
        behind = 0
        if missing.any():
            write_missing(folder, missing)
            times = itertools.chain(*self._map(FirstTimesOf(*self._common, len(missing))))
            heard_ns = job.registry.processes.heard_ns
            behind = count_behind(instances, communicators, heard_ns, missing, times)
        job.counts.totals["behind"] = behind
        job.counts.totals["missing"] = int(missing.sum()) - behind

    def count_modules(self, modules: int) -> Ints:
        """Operations by module."""
        counts = self._map(CountModules(*self._common, modules))
        total: Ints = np.sum([np.zeros(modules, np.int64), *counts], axis=0, dtype=np.int64)
        return total
