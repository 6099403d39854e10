"""One rank of a job of real processes on the simulated NCCL: `python -m … JOB` with RANK set.

A job is a function of a Rank; its name is the function's.
"""

import ctypes as c
import os
import signal
import sys
import time

from ncclscope.simulation.nccl import SimulatedNccl
from ncclscope.simulation.scenario import Call

ID_VARIABLE = "LABORATORY_ID"
KB = 1 << 10
_MEMORY_BYTES = 16 << 20
_INT8 = 0
_PR_SET_PDEATHSIG = 1


class Rank:
    """Calls of a rank, and what frameworks do around them."""

    def __init__(self, number: int, ranks: int, unique_id: bytes) -> None:
        self.number, self.ranks = number, ranks
        self._nccl = SimulatedNccl()
        world = self._nccl.communicator("world", unique_id, ranks, number)
        self._communicators = {"world": (world, tuple(range(ranks)))}
        self._stream = self._nccl.stream()
        self._buffers = self._nccl.memory(_MEMORY_BYTES), self._nccl.memory(_MEMORY_BYTES)

    def split(self, name: str, groups: list[tuple[int, ...]]) -> None:
        """A communicator for each group of ranks; groups cover all ranks."""
        color = next(n for n, group in enumerate(groups) if self.number in group)
        parent = self._communicators["world"][0]
        made = self._nccl.split(name, parent, color, self.number)
        self._communicators[name] = made, groups[color]

    def queue(self, name: str = "world", size: int = 256 * KB, function: str = "AllReduce") -> None:
        """Calls a collective."""
        communicator, members = self._communicators[name]
        call = Call(name, function, size, "float32")
        own = members.index(self.number)
        self._nccl.call(call, communicator, len(members), own, self._buffers, self._stream, (1, 1))

    def wait(self, give_up_s: float = 0.0) -> None:
        """Waits for everything queued; with `give_up_s`, exits with code 1 after this time, as a
        framework does on a timeout: without destroying communicators.
        """
        if not give_up_s:
            self._nccl.wait(self._stream)
            return
        limit = time.monotonic() + give_up_s
        while self._nccl._library.cudaStreamQuery(self._stream):
            if time.monotonic() > limit:
                raise SystemExit(1)
            time.sleep(0.005)

    def reduce(self, name: str = "world", size: int = 256 * KB, give_up_s: float = 0.0) -> None:
        """An AllReduce, and its end."""
        self.queue(name, size)
        self.wait(give_up_s)

    def exchange(
        self, name: str, sends: list[tuple[int, int]], receives: list[tuple[int, int]]
    ) -> None:
        """Sends and receives, (peer in the communicator, bytes) each, in one group."""
        communicator, _ = self._communicators[name]
        self._nccl._do("ncclGroupStart")
        for function, wanted, buffer in (
            ("ncclSend", sends, self._buffers[0]),
            ("ncclRecv", receives, self._buffers[1]),
        ):
            for peer, size in wanted:
                self._nccl._do(
                    function, buffer, c.c_size_t(size), _INT8, peer, communicator, self._stream
                )
        self._nccl._do("ncclGroupEnd")

    def close(self) -> None:
        """Destroys all communicators, the last one first."""
        self._nccl.destroy([made for made, _ in reversed(self._communicators.values())])


def _compute(ms: float) -> None:
    time.sleep(ms / 1e3)


# ---- jobs; docs say what is true of them ----
def healthy(rank: Rank) -> None:
    """Thirty AllReduces; nothing is wrong."""
    for _ in range(30):
        _compute(5)
        rank.reduce()


def short(rank: Rank) -> None:
    """Three AllReduces."""
    for _ in range(3):
        rank.reduce()


def late(rank: Rank) -> None:
    """Rank 2 is 20 ms late in each step."""
    for _ in range(40):
        _compute(25 if rank.number == 2 else 5)
        rank.reduce()


def timeout(rank: Rank) -> None:
    """Rank 2 does not come to AllReduce #21; the others give up after 4 s."""
    for step in range(30):
        _compute(5)
        if rank.number == 2 and step == 20:
            time.sleep(7)
            raise SystemExit(1)
        rank.reduce(give_up_s=4)


def timeout_exit_zero(rank: Rank) -> None:
    """The same, and all exit with code 0."""
    for step in range(30):
        _compute(5)
        if rank.number == 2 and step == 20:
            time.sleep(7)
            raise SystemExit(0)
        try:
            rank.reduce(give_up_s=4)
        except SystemExit:
            raise SystemExit(0) from None


def timeout_mismatch(rank: Rank) -> None:
    """Rank 2 calls another size; all give up after 4 s."""
    for step in range(30):
        _compute(5)
        size = 512 if rank.number == 2 and step == 20 else 256
        rank.reduce(size=size * KB, give_up_s=4)


def timeout_in_groups(rank: Rank) -> None:
    """Rank 3 does not come to its tensor parallel group; the others give up after 4 s."""
    rank.split("tp", [(0, 1), (2, 3)])
    rank.split("dp", [(0, 2), (1, 3)])
    for step in range(20):
        _compute(5)
        if rank.number == 3 and step == 12:
            time.sleep(7)
            raise SystemExit(1)
        rank.reduce("tp", give_up_s=4)
        rank.reduce("dp", give_up_s=4)


def exits_early(rank: Rank) -> None:
    """Rank 2 exits with code 1 within its first second, after 20 calls; the others wait."""
    for step in range(30):
        _compute(5)
        if rank.number == 2 and step == 20:
            os._exit(1)
        rank.reduce()


def killed(rank: Rank) -> None:
    """Rank 1 is killed; the others wait."""
    for step in range(60):
        _compute(50)
        if rank.number == 1 and step == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        rank.reduce()


def circle(rank: Rank) -> None:
    """Rank 0 calls A, then B; rank 1 calls B, then A: each waits for the other."""
    rank.split("A", [(0, 1), (2, 3)])
    rank.split("B", [(0, 1), (2, 3)])
    for _ in range(20):
        _compute(5)
        rank.reduce("A")
        rank.reduce("B")
    for name in ("B", "A") if rank.number == 1 else ("A", "B"):
        rank.reduce(name)
    rank.reduce()


def circle_of_three(rank: Rank) -> None:
    """Ranks 0, 1 and 2 each wait for the next in another communicator."""
    rank.split("A", [(0, 1), (2,)])
    rank.split("B", [(0,), (1, 2)])
    rank.split("C", [(0, 2), (1,)])
    first = {0: "A", 1: "B", 2: "C"}[rank.number]
    second = {0: "C", 1: "A", 2: "B"}[rank.number]
    for _ in range(20):
        _compute(5)
        rank.reduce()
    rank.reduce(first)
    rank.reduce(second)


def one_call_too_many(rank: Rank) -> None:
    """Rank 3 makes an AllReduce that nobody else makes; ranks 0 and 2 end well."""
    rank.split("dp", [(0, 2), (1, 3)])
    for _ in range(30):
        _compute(5)
        rank.reduce()
    if rank.number == 3:
        rank.reduce()
    rank.reduce("dp")


def one_call_left_out(rank: Rank) -> None:
    """Rank 1 leaves an AllReduce out; its next call is of another size."""
    for step in range(20):
        _compute(5)
        if not (rank.number == 1 and step == 15):
            rank.reduce(size=256 * KB)
        rank.reduce(size=64 * KB)


def pipeline_hang(rank: Rank) -> None:
    """Stage 2 does not send the third micro-batch of step 5."""
    for step in range(8):
        for micro in range(4):
            if rank.number > 0:
                rank.exchange("world", [], [(rank.number - 1, 64 * KB)])
            rank.wait()
            _compute(4)
            if (rank.number, step, micro) == (2, 5, 2):
                time.sleep(600)
            if rank.number < rank.ranks - 1:
                rank.exchange("world", [(rank.number + 1, 64 * KB)], [])
            rank.wait()
        rank.reduce(size=64 * KB)


def long_pause(rank: Rank) -> None:
    """Rank 0 pauses for 6 s while the others wait in NCCL; then everything goes on."""
    for step in range(20):
        _compute(5)
        if rank.number == 0 and step == 10:
            time.sleep(6)
        rank.reduce()


def late_in_exchanges(rank: Rank) -> None:
    """Nothing but all-to-all; rank 3 is 20 ms late in each step."""
    others = [(peer, 64 * KB) for peer in range(rank.ranks) if peer != rank.number]
    for _ in range(30):
        _compute(26 if rank.number == 3 else 6)
        rank.exchange("world", others, others)
        rank.wait()


JOBS = (
    healthy, short, late, timeout, timeout_exit_zero, timeout_mismatch, timeout_in_groups,
    exits_early, killed, circle, circle_of_three, one_call_too_many, one_call_left_out,
    pipeline_hang, long_pause, late_in_exchanges,
)  # fmt: skip


def main() -> None:
    """Runs the job that is named on the command line, as one of its ranks."""
    c.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job = next(one for one in JOBS if one.__name__ == sys.argv[1])
    unique_id = bytes.fromhex(os.environ[ID_VARIABLE])
    if len(sys.argv) > 2 and sys.argv[2] == "fork":
        _fork(job, unique_id)
        return
    rank = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), unique_id)
    job(rank)
    rank.close()


def _fork(job: object, unique_id: bytes) -> None:
    """Ranks as children of multiprocessing, which end by os._exit with code 0."""
    import multiprocessing

    ranks = int(os.environ["WORLD_SIZE"])

    def child(number: int) -> None:
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
        rank = Rank(number, ranks, unique_id)
        job(rank)  # type: ignore[operator]
        rank.close()

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child, args=(number,)) for number in range(ranks)]
    for process in children:
        process.start()
    for process in children:
        process.join()


if __name__ == "__main__":
    main()
