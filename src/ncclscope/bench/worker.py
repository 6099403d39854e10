"""One rank of a benchmark: a process that joins the others, makes calls and reports their times.

    python -m ncclscope.bench.worker '{"host": …}'

It ends when its starter or the coordinator ends, even out of a call that never returns.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ncclscope.bench.coordinator import LAST_POINT
from ncclscope.bench.cuda import Cuda
from ncclscope.bench.datatypes import DATATYPES, Array, storage
from ncclscope.bench.measure import (
    REFERENCE_LAUNCHES,
    Batch,
    Call,
    MeasureCalls,
    Stopwatch,
    no_garbage_collection,
)
from ncclscope.bench.messages import Message, MessageError, RankConnection
from ncclscope.bench.nccl import Nccl
from ncclscope.bench.operations import OPERATIONS
from ncclscope.bench.plan import Case, Plan, cases, plan_from_json
from ncclscope.bench.test_data import PERIOD, expected_output, input_of, repeat, wrong_elements
from ncclscope.errors import NcclscopeError
from ncclscope.report.units import size

STOPPED = 75  # exit code of a rank that ended because the benchmark was stopped
_CHUNK_BYTES = 8 << 20  # of copies between host and device
_RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class RankConfig:
    """What a rank needs to start."""

    host: str  # this and the next: where the coordinator listens
    port: int
    rank: int
    ranks: int
    device: int
    nccl: str
    cudart: str
    token: str
    timeout_s: float

    @property
    def who(self) -> str:
        """The rank's host and process, for error messages."""
        return f"{socket.gethostname()}, process {os.getpid()}"


def watch(connection: socket.socket, leaving: threading.Event) -> None:
    """Ends this process when the coordinator or the starter is gone, whatever it is waiting for."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP | select.POLLHUP)
    poll.register(0, select.POLLHUP)  # a pipe that the starter holds open
    poll.poll()
    if not leaving.is_set():
        os._exit(STOPPED)


def connect(config: RankConfig) -> RankConnection:
    """A connection to the coordinator, which may not have started yet."""
    until = time.monotonic() + config.timeout_s
    address = (config.host, config.port)
    while True:
        try:
            return RankConnection(socket.create_connection(address, config.timeout_s))
        except OSError as error:
            if time.monotonic() > until:
                raise NcclscopeError(
                    f"rank {config.rank} cannot reach rank 0 at {config.host}:{config.port}: "
                    f"{error.strerror or error}",
                    "Name an address of rank 0's host that others can reach with --address",
                ) from None
            time.sleep(_RETRY_S)


class BenchRank:
    """This process's rank."""

    def __init__(
        self, config: RankConfig, connection: RankConnection, leaving: threading.Event
    ) -> None:
        self._config, self._connection, self._leaving = config, connection, leaving
        fields = {"rank": config.rank, "token": config.token, "who": config.who}
        reply = self.exchange("start", "the start of CUDA and NCCL", fields)
        self.plan: Plan = plan_from_json(reply.fields)

    def exchange(
        self, point: str, doing: str = "", fields: dict[str, Any] | None = None, data: bytes = b""
    ) -> Message:
        """Sends a message, and returns the reply, which comes when all ranks have sent theirs.

        `doing` describes what the rank does next, for error messages.
        """
        self._connection.send(Message({"point": point, "doing": doing, **(fields or {})}, data))
        return self._connection.receive()

    def run(self) -> None:
        """Measures all cases."""
        self._open()
        for world in self.plan.worlds or (self._config.ranks,):
            self._create_communicator(world)
            for case in cases(self.plan, world):
                self._measure(case)
            if self.plan.killed:
                self._kill_self()
            if self._takes_part(world):
                self.nccl.destroy_communicator()
        self._leaving.set()  # from here on the connection may be closed
        self.exchange(LAST_POINT)

    def _kill_self(self) -> None:
        """Ends this process as a crash or an OOM killer would, when all ranks have come this far:
        every call has ended on the GPU, and no communicator has been destroyed.
        """
        self.cuda.synchronize()
        self._leaving.set()
        self.exchange("kill", "SIGKILL")
        os.kill(os.getpid(), signal.SIGKILL)

    def _takes_part(self, world: int) -> bool:
        """Whether this rank is one of the first `world` ranks."""
        return self._config.rank < world

    def _open(self) -> None:
        config, plan = self._config, self.plan
        self.cuda, self.nccl = Cuda(config.cudart), Nccl(config.nccl)
        self.nccl.check_support(
            [OPERATIONS[name] for name in plan.operations],
            list(plan.datatypes),
            list(plan.reductions),
        )
        self.cuda.open_device(config.device)
        self._send, self._receive = (
            self.cuda.allocate(self._largest_bytes(), what)
            for what in ("data to send", "data received")
        )
        self.stopwatch = Stopwatch(self.cuda)
        self.cuda.clear(self._send, 4)
        reference = self.cuda.reference_work(self._send, REFERENCE_LAUNCHES)
        measure = self._measure_calls(lambda: None)
        # All ranks at once: ranks that share a GPU slow each other down, as in every call.
        self.exchange("ready", "the measurement of a kernel of known time")
        beyond_ns, launch_ns = self.stopwatch.event_overhead_ns(measure, reference)
        fields = {
            "host": socket.gethostname(),
            "posed_host": os.environ.get("NCCL_HOSTID", ""),
            "pid": os.getpid(),
            "device": config.device,
            "name": self.cuda.device_name(config.device),
            "bus_id": self.cuda.bus_id(config.device),
            "nccl": self.nccl.version(),
            "cuda": self.cuda.runtime_version(),
            "simulation": self.nccl.simulation(),
            "reference": reference.kind,
            "beyond_ns": beyond_ns,
            "launch_ns": launch_ns,
        }
        self.exchange("open", "the start of a communicator", fields)

    def _largest_bytes(self) -> int:
        """The size of the largest buffer of all cases."""
        largest = 0
        for world in self.plan.worlds or (self._config.ranks,):
            for case in cases(self.plan, world):
                shape = case.shape
                largest = max(largest, max(shape.send, shape.receive) * case.element_bytes)
        return largest

    def _create_communicator(self, world: int) -> None:
        unique_id = self.nccl.new_id() if self._config.rank == 0 else b""
        doing = f"the start of a communicator of {world} ranks"
        unique_id = self.exchange("id", doing, {}, unique_id).data
        if self._takes_part(world):
            self.nccl.create_communicator(unique_id, self._config.rank, world)
        self.exchange("joined", "the first case")

    def _buffers(self, case: Case) -> tuple[int, int]:
        """The addresses that this rank sends from and receives to."""
        if not case.in_place:
            return self._send, self._receive
        share = self._config.rank * case.shape.count * case.element_bytes
        send = self._receive + (share if case.spec.sends_share else 0)
        receive = self._receive + (share if case.spec.receives_share else 0)
        return send, receive

    def _measure(self, case: Case) -> None:
        """Measures one case: warm-up, runs, checks, results."""
        title = f"{case.spec.title} of {size(case.size_bytes)} bytes ({case.place})"
        if not self._takes_part(case.ranks):
            self._sit_out(title)
            return
        buffers = self._buffers(case)
        self._fill(case, buffers)
        call = self.nccl.prepare(case, case.shape, *buffers, self.cuda.stream)
        if self.plan.grouped > 1:
            call = self.nccl.group([call] * self.plan.grouped)
        self.exchange("warm-up", f"the warm-up of {title}")
        with no_garbage_collection():
            warm = self.stopwatch.back_to_back(call, max(self.plan.warm_up, 1))
            replay = self.cuda.capture_graph(call) if self.plan.graph else None
            measured = replay.launch if replay else call
            batches = self._runs(measured, warm, title)
        wrong = self._check(case, buffers, measured, title)
        if replay is not None:
            self.cuda.synchronize()
            replay.release()
        self._report(batches, wrong)

    def _sit_out(self, title: str) -> None:
        """Makes the same exchanges as the ranks that measure, without a call."""
        self.exchange("warm-up", f"the warm-up of {title}")
        for _ in range(self.plan.runs):
            while True:
                calls = int(self.exchange("pace", title, {}).fields["calls"])
                if not calls:
                    break
                for _ in range(calls if self.plan.blocking else 0):
                    self.exchange("barrier", title)
        for _ in range(self.plan.checks):
            self.exchange("check", f"the check of {title}")
        self.exchange("case", "the next case", {"idle": True})

    def _runs(self, call: Call, warm: Batch, title: str) -> list[tuple[int, Batch]]:
        """The batches of all runs. The coordinator decides for all ranks when a run is over."""
        call_ns = float(np.median(warm.gpu_ns))  # not the mean: the first call connects ranks
        batches: list[tuple[int, Batch]] = []
        message = Message({"point": "barrier", "doing": title})

        def barrier() -> None:
            self._connection.send(message)
            self._connection.receive()

        measure = self._measure_calls(barrier)
        for run in range(self.plan.runs):
            done, spent_ns = 0, 0
            while True:
                fields = {"done": done, "spent_ns": spent_ns, "call_ns": call_ns}
                count = int(self.exchange("pace", title, fields).fields["calls"])
                if not count:
                    break
                batch = measure(call, count)
                batches.append((run, batch))
                done, spent_ns = done + count, spent_ns + batch.loop_host_ns
                call_ns = batch.loop_host_ns / count
        return batches

    def _measure_calls(self, barrier: Call) -> MeasureCalls:
        """The function that measures calls as the plan says."""
        if self.plan.held:
            return self.stopwatch.held
        if self.plan.blocking:
            return partial(self.stopwatch.one_by_one, barrier=barrier)
        return self.stopwatch.back_to_back

    def _report(self, batches: list[tuple[int, Batch]], wrong: int | None) -> None:
        fields = {
            "wrong": wrong,
            "batches": [
                [run, len(b), b.loop_gpu_ns, b.loop_call_ns, b.loop_host_ns, b.loop_cpu_ns]
                for run, b in batches
            ],
        }
        columns = [
            np.concatenate([getattr(batch, name) for _, batch in batches])
            for name in ("gpu_ns", "call_ns", "host_ns")
        ]
        self.exchange("case", "the next case", fields, np.concatenate(columns).tobytes())

    def _fill(self, case: Case, buffers: tuple[int, int]) -> None:
        """Fills the send buffer with test data, and the receive buffer with something else."""
        datatype, shape = DATATYPES[case.datatype], case.shape
        whole = max(shape.send, shape.receive) * case.element_bytes
        self.cuda.clear(self._receive, whole)
        period = input_of(case.spec, datatype, case.reduction, self._config.rank, case.ranks)
        chunk_bytes = period.nbytes * max(_CHUNK_BYTES // period.nbytes, 1)
        chunk = np.resize(period, chunk_bytes // case.element_bytes)
        remaining, address = shape.send * case.element_bytes, buffers[0]
        while remaining > 0:
            self.cuda.copy_in(address, chunk, min(remaining, chunk_bytes))
            address, remaining = address + chunk_bytes, remaining - chunk_bytes

    def _check(self, case: Case, buffers: tuple[int, int], call: Call, title: str) -> int | None:
        """Calls on fresh data; returns the number of wrong elements, None if they are not known."""
        # In place, the second call of a group would reduce what the first one left.
        unknown = self.plan.grouped > 1 and case.in_place and case.spec.reduces
        wrong = None
        for _ in range(self.plan.checks):
            self._fill(case, buffers)
            self.exchange("check", f"the check of {title}")
            call()
            self.cuda.synchronize()
            if not unknown:
                wrong = (wrong or 0) + self._wrong(case, buffers[1])
        return wrong

    def _wrong(self, case: Case, address: int) -> int:
        """The number of wrong elements at an address."""
        datatype = DATATYPES[case.datatype]
        rank, ranks = self._config.rank, case.ranks
        step = max(_CHUNK_BYTES // case.element_bytes // PERIOD, 1) * PERIOD
        wrong = 0
        for count, first, period in expected_output(
            case.spec, datatype, case.reduction, case.root, rank, ranks, case.shape
        ):
            for done in range(0, count, step):
                n = min(step, count - done)
                received: Array = np.empty(n, storage(datatype))
                self.cuda.copy_out(received, address, received.nbytes)
                expected = repeat(period, first + done, n)
                wrong += wrong_elements(datatype, case.reduction, ranks, received, expected)
                address += received.nbytes
        return wrong


def main(text: str) -> int:
    """Runs one rank. The coordinator gets to know what failed, and tells the user."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter gets it too, and ends its ranks
    config = RankConfig(**json.loads(text))
    try:
        connection = connect(config)
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return 1
    connection.connection.settimeout(None)
    leaving = threading.Event()
    threading.Thread(target=watch, args=(connection.connection, leaving), daemon=True).start()
    try:
        BenchRank(config, connection, leaving).run()
    except MessageError:
        return STOPPED
    except NcclscopeError as error:
        _report_failure(connection, config, str(error))
        return 1
    except Exception as error:
        _report_failure(connection, config, f"{type(error).__name__}: {error}")
        raise
    return 0


def _report_failure(connection: RankConnection, config: RankConfig, text: str) -> None:
    fields = {"rank": config.rank, "token": config.token, "who": config.who, "failed": text}
    try:
        connection.send(Message(fields))
        time.sleep(_RETRY_S)  # or the end of the connection would overtake the message
    except MessageError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
