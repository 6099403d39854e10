"""Processes and nodes of a whole capture, as rows that operations refer to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ncclscope import launchers
from ncclscope.arrays.types import Ints
from ncclscope.capture.header import number_in
from ncclscope.capture.process import Process
from ncclscope.capture.recording_windows import Windows, windows_of
from ncclscope.model.match.attempts import ProcessSpan, attempts_of
from ncclscope.model.match.global_ranks import lowest_known
from ncclscope.model.process.launch_times import EventExcess
from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import NONE, WINDOWS, Columns, columns_from
from ncclscope.nccl.releases import release_of_code, text_of

ToReference = Callable[[int, Ints], Ints]  # (node, times on its clock) -> times on the one clock
_LARGEST_PID = (1 << 31) - 1
_LATEST_NS = 1 << 62  # since 1970
_MOST_TIMING_CHANGES = 16  # that are kept with their times
_MOST_CALLS = 1 << 48  # of one process: more is damage


class ProcessTable:
    """Rows of `processes`, `gpus` and `windows`, and the nodes. Grows process by process; row
    numbers never change once they are given.
    """

    def __init__(self) -> None:
        self.rows: list[ProcessRow] = []
        self.gpus: list[GpuRow] = []
        self.nodes: list[str] = []  # host names
        self.heard_ns: list[int] = []  # by process: when it last said anything
        self._world_sizes: list[int] = []  # by process: ranks of its job as launchers say, 0
        self._windows: list[tuple[int, int, int]] = []  # process, from, to
        self._node_rows: dict[tuple[str, str], int] = {}

    def add(
        self,
        process: Process,
        ranks: dict[int, int],
        gpu_clock_error_ns: int,
        calls: int,
        calls_counted: int,
        events: EventExcess,
    ) -> ProcessRow:
        """The process's new row. `ranks`: global ranks by communicator number."""
        identity, comms, number = process.identity, process.communicators, len(self.rows)
        windows = windows_of(process)
        row = ProcessRow(
            folder=process.folder,
            host=process.host,
            node=self._node(process),
            pid=process.header.pid if process.header.pid <= _LARGEST_PID else NONE,
            global_rank=lowest_known(ranks.values(), identity),
            mode=identity.get("mode", ""),
            nccl_version=_nccl_release(identity),
            interface=max((comm.version for comm in comms), default=0),
            gpu=next((c.gpu_bus_id or c.gpu_uuid for c in comms if c.gpu_uuid), ""),
            attempt=launchers.restarts(identity, launchers.RECORDED),
            started_ns=min(process.header.start_realtime_ns, _LATEST_NS),
            ended=process.ended,
            gpu_clock_error_ns=gpu_clock_error_ns,
            calls=calls,
            calls_counted=min(calls_counted, _MOST_CALLS),
            lived_ns=windows.lived_ns,
            recorded_ns=windows.recorded_ns,
            fullest_mode=windows.fullest_mode,
            gpu_timing=identity.get("gpu_timing.in_force", ""),
            gpu_timing_asked=identity.get("gpu_timing.asked", ""),
            gpu_timing_reason=identity.get("gpu_timing.reason", ""),
            event_excess_ns=events.excess_ns,
            event_error_ns=events.error_ns,
            gpu_timing_off_ns=sum(end - begin for begin, end in windows.timing_off),
            gpu_timing_changes=_timing_changes(windows),
        )
        used = {(c.gpu_uuid, c.gpu_bus_id): ranks[c.number] for c in comms if c.gpu_uuid}
        self.gpus += [GpuRow(number, rank, *names) for names, rank in used.items()]
        if row.paused:
            self._windows += [(number, begin, end) for begin, end in windows.recorded]
        self.heard_ns.append(windows.ended_ns)
        self._world_sizes.append(launchers.world_size(identity, launchers.RECORDED))
        self.rows.append(row)
        return row

    def _node(self, process: Process) -> int:
        """The row of the process's node: what shares a boot and a time namespace shares a clock."""
        identity = process.identity
        key = (identity.get("boot_id") or process.host, identity.get("time_namespace", ""))
        if key not in self._node_rows:
            self._node_rows[key] = len(self.nodes)
            self.nodes.append(process.host)
        return self._node_rows[key]

    def assign_attempts(self, ids_by_process: Sequence[frozenset[int]]) -> None:
        """Sets each process's attempt once all are there, by the communicators they share."""
        attempts = attempts_of(
            [
                ProcessSpan(
                    rank=row.global_rank,
                    restarts=row.attempt,
                    communicators=ids,
                    began_ns=row.started_ns,
                    ended_ns=row.started_ns + row.lived_ns,
                )
                for row, ids in zip(self.rows, ids_by_process, strict=True)
            ]
        )
        self.rows = [
            replace(row, attempt=attempt) for row, attempt in zip(self.rows, attempts, strict=True)
        ]

    @property
    def attempts(self) -> list[int]:
        """Attempts of the job that left processes here, in order."""
        return sorted({row.attempt for row in self.rows})

    @property
    def last_attempt(self) -> int:
        """The newest attempt."""
        return max((row.attempt for row in self.rows), default=0)

    def count_in_last_attempt(self) -> int:
        """Processes of the last attempt."""
        last = self.last_attempt
        return sum(row.attempt == last for row in self.rows)

    def world_size(self, attempt: int) -> int:
        """Ranks of an attempt as launchers say, 0 where none does."""
        sizes = zip(self.rows, self._world_sizes, strict=True)
        return max((world for row, world in sizes if row.attempt == attempt), default=0)

    def move_times(self, to_reference: ToReference) -> None:
        """Moves times from their nodes' clocks to the one clock."""
        for process, heard in enumerate(self.heard_ns):
            local = np.array([heard], np.int64)
            self.heard_ns[process] = int(to_reference(self.rows[process].node, local)[0])
        for place, (process, *edges) in enumerate(self._windows):
            local = np.array(edges, np.int64)
            begin, end = to_reference(self.rows[process].node, local).tolist()
            self._windows[place] = process, begin, end

    def set_gpu_clock_errors(self, error_ns: Mapping[int, int]) -> None:
        """Sets how far GPU times of some processes may be off on their hosts' clocks."""
        for process, error in error_ns.items():
            self.rows[process] = replace(self.rows[process], gpu_clock_error_ns=error)

    def windows(self) -> Columns:
        """When processes that paused recorded single calls."""
        process, start, end = zip(*self._windows, strict=True) if self._windows else ((), (), ())
        return columns_from(WINDOWS, {"process": process, "start_ns": start, "end_ns": end})


def _timing_changes(windows: Windows) -> str:
    """The first changes of the GPU timing, as text."""
    changes = windows.timings[:_MOST_TIMING_CHANGES]
    return ", ".join(f"{name} {(when - windows.began_ns) / 1e9:.1f}" for when, name in changes)


def _nccl_release(identity: dict[str, str]) -> str:
    """NCCL's release as people write it, "" where it is not known."""
    code = number_in(identity, "nccl_version")
    return "" if code is None else text_of(release_of_code(code))
