"""One rank: a process that joins the others, makes its calls and hands in their times.

    python -m ncclscope.bench.worker '{"address": …}'

It goes when its starter or the coordinator goes, also out of a call that never returns.
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

from ncclscope.bench.cuda import Cuda
from ncclscope.bench.datatypes import DATATYPES, Array
from ncclscope.bench.measure import (
    REFERENCE_LAUNCHES,
    Batch,
    Call,
    Stopwatch,
    Undisturbed,
    Way,
)
from ncclscope.bench.messages import Connection, Message, MessageError
from ncclscope.bench.nccl import Nccl
from ncclscope.bench.operations import OPERATIONS, Shape, shape_of
from ncclscope.bench.plan import Case, Plan, cases, plan_of
from ncclscope.bench.test_data import PERIOD, expected_output, input_of, repeated, wrong_elements
from ncclscope.errors import NcclscopeError
from ncclscope.report.units import size

STOPPED = 75  # exit code of a rank that was told to go
_PIECE_BYTES = 8 << 20
_RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank is told at its start."""

    host: str
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
        """For messages."""
        return f"{socket.gethostname()}, process {os.getpid()}"


def watch(connection: socket.socket, leaving: threading.Event) -> None:
    """Ends this process when the coordinator or the starter is gone, whatever it is waiting for."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP | select.POLLHUP)
    poll.register(0, select.POLLHUP)  # a pipe that the starter holds open
    poll.poll()
    if not leaving.is_set():
        os._exit(STOPPED)


def connect(place: Place) -> Connection:
    """A connection to the coordinator, which may still have to start."""
    until = time.monotonic() + place.timeout_s
    while True:
        try:
            return Connection(socket.create_connection((place.host, place.port), place.timeout_s))
        except OSError as error:
            if time.monotonic() > until:
                address = f"{place.host}:{place.port}"
                raise NcclscopeError(
                    f"rank {place.rank} cannot reach rank 0 at {address}: "
                    f"{error.strerror or error}",
                    "Name an address of rank 0's host that others can reach with --address",
                ) from None
            time.sleep(_RETRY_S)


class Rank:
    """This process's part in the benchmark."""

    def __init__(self, place: Place, line: Connection, leaving: threading.Event) -> None:
        self.place, self._line, self._leaving = place, line, leaving
        said = {"rank": place.rank, "token": place.token, "who": place.who}
        self.plan: Plan = plan_of(self.meet("hello", "the start of CUDA and NCCL", said).said)

    def meet(
        self, point: str, doing: str = "", said: dict[str, Any] | None = None, data: bytes = b""
    ) -> Message:
        """Says something and waits until all have; `doing` is what comes next."""
        self._line.send(Message({"point": point, "doing": doing, **(said or {})}, data))
        return self._line.receive()

    def run(self) -> None:
        """Everything."""
        self._open()
        for world in self.plan.worlds or (self.place.ranks,):
            self._join(world)
            for case in cases(self.plan, world):
                self._measure(case)
            if self._member(world):
                self.nccl.leave()
        self._leaving.set()  # from here on, a closed connection is no surprise
        self.meet("good-bye")

    def _member(self, world: int) -> bool:
        """Whether this rank is one of the first so many."""
        return self.place.rank < world

    def _open(self) -> None:
        place, plan = self.place, self.plan
        self.cuda, self.nccl = Cuda(place.cudart), Nccl(place.nccl)
        self.nccl.check_offers(
            [OPERATIONS[name] for name in plan.operations],
            list(plan.datatypes),
            list(plan.reductions),
        )
        self.cuda.open_device(place.device)
        self._send, self._receive = (
            self.cuda.allocate(self._largest_bytes(), what)
            for what in ("data to send", "data received")
        )
        self.stopwatch = Stopwatch(self.cuda)
        self.cuda.clear(self._send, 4)
        reference = self.cuda.reference(self._send, REFERENCE_LAUNCHES)
        way = self._way(lambda: None)
        # All at once: ranks that share a GPU slow each other down, as they will in every call.
        self.meet("ready", "the measurement of a kernel of known time")
        beyond_ns, launch_ns = self.stopwatch.beyond(way, reference)
        said = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "device": place.device,
            "name": self.cuda.device_name(place.device),
            "bus_id": self.cuda.bus_id(place.device),
            "nccl": self.nccl.version(),
            "cuda": self.cuda.runtime_version(),
            "simulation": self.nccl.simulation(),
            "reference": reference.kind,
            "beyond_ns": beyond_ns,
            "launch_ns": launch_ns,
        }
        self.meet("open", "the start of a communicator", said)

    def _largest_bytes(self) -> int:
        """Of a buffer, over all cases."""
        largest = 0
        for world in self.plan.worlds or (self.place.ranks,):
            for case in cases(self.plan, world):
                shape = self._shape(case)
                element = DATATYPES[case.datatype].size_bytes
                largest = max(largest, max(shape.send, shape.receive) * element)
        return largest

    def _shape(self, case: Case) -> Shape:
        element = DATATYPES[case.datatype].size_bytes
        shape = shape_of(case.what, case.size_bytes, element, case.ranks)
        assert shape is not None
        return shape

    def _join(self, world: int) -> None:
        unique = self.nccl.new_id() if self.place.rank == 0 else b""
        doing = f"the start of a communicator of {world} ranks"
        unique = self.meet("id", doing, {}, unique).data
        if self._member(world):
            self.nccl.join(unique, self.place.rank, world)
        self.meet("joined", "the first case")

    def _buffers(self, case: Case, shape: Shape) -> tuple[int, int]:
        """Where this rank sends from and receives to."""
        if not case.in_place:
            return self._send, self._receive
        share = self.place.rank * shape.count * DATATYPES[case.datatype].size_bytes
        send = self._receive + (share if case.operation in ("allgather", "gather") else 0)
        receive = self._receive + (share if case.operation in ("reducescatter", "scatter") else 0)
        return send, receive

    def _measure(self, case: Case) -> None:
        """One case: warm-up, runs, checks, results."""
        words = f"{case.what.title} of {size(case.size_bytes)} bytes ({case.place})"
        if not self._member(case.ranks):
            self._sit_out(words)
            return
        shape = self._shape(case)
        buffers = self._buffers(case, shape)
        self._fill(case, shape, buffers)
        call = self.nccl.prepared(case, shape, *buffers, self.cuda.stream)
        if self.plan.grouped > 1:
            call = self.nccl.grouped([call] * self.plan.grouped)
        self.meet("warm-up", f"the warm-up of {words}")
        with Undisturbed():
            warm = self.stopwatch.back_to_back(call, max(self.plan.warm_up, 1))
            replay = self.cuda.captured(call) if self.plan.graph else None
            measured = replay.launch if replay else call
            batches = self._runs(measured, warm, words)
        wrong = self._check(case, shape, buffers, measured, words)
        if replay is not None:
            self.cuda.synchronize()
            replay.release()
        self._hand_in(batches, wrong)

    def _sit_out(self, words: str) -> None:
        """As many meetings as the others have, without a call."""
        self.meet("warm-up", f"the warm-up of {words}")
        for _ in range(self.plan.runs):
            while True:
                calls = int(self.meet("pace", words, {}).said["calls"])
                if not calls:
                    break
                for _ in range(calls if self.plan.blocking else 0):
                    self.meet("barrier", words)
        for _ in range(self.plan.checks):
            self.meet("check", f"the check of {words}")
        self.meet("case", "the next case", {"idle": True})

    def _runs(self, call: Call, warm: Batch, words: str) -> list[tuple[int, Batch]]:
        """The batches of all runs. When a run is over, is decided for all ranks at once."""
        call_ns = float(np.median(warm.gpu_ns))  # the first call connects, and is no measure
        found: list[tuple[int, Batch]] = []
        message = Message({"point": "barrier", "doing": words})

        def barrier() -> None:
            self._line.send(message)
            self._line.receive()

        measure = self._way(barrier)
        for run in range(self.plan.runs):
            done, spent_ns = 0, 0
            while True:
                said = {"done": done, "spent_ns": spent_ns, "call_ns": call_ns}
                count = int(self.meet("pace", words, said).said["calls"])
                if not count:
                    break
                batch = measure(call, count)
                found.append((run, batch))
                done, spent_ns = done + count, spent_ns + batch.loop_host_ns
                call_ns = batch.loop_host_ns / count
        return found

    def _way(self, barrier: Call) -> Way:
        """How calls are measured."""
        if self.plan.held:
            return self.stopwatch.held
        if self.plan.blocking:
            return partial(self.stopwatch.one_by_one, barrier=barrier)
        return self.stopwatch.back_to_back

    def _hand_in(self, batches: list[tuple[int, Batch]], wrong: int | None) -> None:
        said = {
            "wrong": wrong,
            "batches": [
                [run, len(b), b.loop_gpu_ns, b.loop_call_ns, b.loop_host_ns] for run, b in batches
            ],
        }
        columns = [
            np.concatenate([getattr(batch, name) for _, batch in batches])
            for name in ("gpu_ns", "call_ns", "host_ns")
        ]
        self.meet("case", "the next case", said, np.concatenate(columns).tobytes())

    def _fill(self, case: Case, shape: Shape, buffers: tuple[int, int]) -> None:
        """This rank's data, and something else where it receives."""
        datatype = DATATYPES[case.datatype]
        whole = max(shape.send, shape.receive) * datatype.size_bytes
        self.cuda.clear(self._receive, whole)
        rank, ranks = self.place.rank, case.ranks
        period = input_of(case.what, datatype, case.reduction, rank, ranks)
        unit = period.nbytes * max(_PIECE_BYTES // period.nbytes, 1)
        piece = np.resize(period, unit // datatype.size_bytes)
        left, address = shape.send * datatype.size_bytes, buffers[0]
        while left > 0:
            self.cuda.copy_in(address, piece, min(left, unit))
            address, left = address + unit, left - unit

    def _check(
        self, case: Case, shape: Shape, buffers: tuple[int, int], call: Call, words: str
    ) -> int | None:
        """Calls on fresh data, and what they brought element by element; None: not looked at."""
        # In place, the second call of a group would reduce what the first one left.
        unknown = self.plan.grouped > 1 and case.in_place and case.what.reduces
        wrong = None
        for _ in range(self.plan.checks):
            self._fill(case, shape, buffers)
            self.meet("check", f"the check of {words}")
            call()
            self.cuda.synchronize()
            if not unknown:
                wrong = (wrong or 0) + self._wrong(case, shape, buffers[1])
        return wrong

    def _wrong(self, case: Case, shape: Shape, address: int) -> int:
        datatype = DATATYPES[case.datatype]
        rank, ranks = self.place.rank, case.ranks
        step = max(_PIECE_BYTES // datatype.size_bytes // PERIOD, 1) * PERIOD
        wrong = 0
        for count, first, period in expected_output(
            case.what, datatype, case.reduction, case.root, rank, ranks, shape
        ):
            for done in range(0, count, step):
                n = min(step, count - done)
                found: Array = np.empty(n, datatype.storage)
                self.cuda.copy_out(found, address, found.nbytes)
                expected = repeated(period, first + done, n)
                wrong += wrong_elements(datatype, case.reduction, ranks, found, expected)
                address += found.nbytes
        return wrong


def main(text: str) -> int:
    """Runs one rank; what fails is told to the coordinator, who tells the user."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter hears it too, and ends its ranks
    place = Place(**json.loads(text))
    try:
        line = connect(place)
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return 1
    line.connection.settimeout(None)
    leaving = threading.Event()
    threading.Thread(target=watch, args=(line.connection, leaving), daemon=True).start()
    try:
        Rank(place, line, leaving).run()
    except MessageError:
        return STOPPED
    except NcclscopeError as error:
        _confess(line, place, str(error))
        return 1
    except Exception as error:
        _confess(line, place, f"{type(error).__name__}: {error}")
        raise
    return 0


def _confess(line: Connection, place: Place, text: str) -> None:
    said = {"rank": place.rank, "token": place.token, "who": place.who, "failed": text}
    try:
        line.send(Message(said))
        time.sleep(_RETRY_S)  # a closed connection would overtake it
    except MessageError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
