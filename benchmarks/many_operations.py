"""Millions of operations through `decode`, `report` and `diagnose`: CPU time and memory, with two
workers.

    python -m benchmarks many_operations             # 10^6, 10^7 and 3 x 10^7 operations
    OPERATIONS=1e7,1e8 python -m benchmarks many_operations

Logs are written and decoded node by node, so that all of them never lie on the disk at once. For
each operation the disk needs about 380 bytes. `python -m benchmarks.operations_in_parts` does the
same with more workers, and in several runs of some minutes.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from tests.support.writer import SyntheticSpec, synthetic

RANKS, RANKS_PER_NODE = int(os.environ.get("RANKS", 64)), 8
WORKERS = int(os.environ.get("WORKERS", 2))
OPERATIONS = [int(float(text)) for text in os.environ.get("OPERATIONS", "1e6,1e7,3e7").split(",")]
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Cost:
    """What a command took, of all processes that take part."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    private_mb: dict[str, float] = field(default_factory=dict)  # at most, of the largest process

    def add(self, other: "Cost") -> None:
        """Adds what another command took."""
        self.cpu_s += other.cpu_s
        self.wall_s += other.wall_s
        for name, size in other.private_mb.items():
            self.private_mb[name] = max(size, self.private_mb.get(name, 0.0))


def _cpu_s(pid: int) -> float:
    """CPU time of a running process, and of its children that have ended."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, values[11:15])) / _TICKS_A_SECOND


def _private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


@contextmanager
def workers(folder: Path, count: int = WORKERS) -> Iterator[tuple[str, list[int]]]:
    """The address of a Dask cluster, and the processes of its workers."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=":0", memory_limit=0,
            local_directory=str(folder),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        pids = list(client.run(os.getpid).values())
        yield cluster.scheduler_address, pids


class OutOfTimeError(Exception):
    """A command did not end in time; its cost until then."""


def cost_of(pids: list[int], *words: str | Path, within_s: float | None = None) -> Cost:
    """Runs a verb to its end. `pids`: of workers. `within_s`: it is stopped after this time."""
    before, began = sum(map(_cpu_s, pids)), time.monotonic()
    cost = Cost(private_mb={"command": 0.0, "worker": 0.0})
    command = [sys.executable, "-m", "ncclscope", *map(str, words)]
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ended = threading.Event()  # not `poll`, which would take the exit status from wait4
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=kept) as running:

        def watch() -> None:
            while not ended.wait(0.05):
                cost.add(Cost(private_mb={"command": _private_mb(running.pid)}))
                cost.add(Cost(private_mb={"worker": max(map(_private_mb, pids), default=0.0)}))

        watcher = threading.Thread(target=watch)
        watcher.start()
        stopper = threading.Timer(within_s or threading.TIMEOUT_MAX, running.kill)
        stopper.start()
        _, status, usage = os.wait4(running.pid, 0)
        stopper.cancel()
        ended.set()
        running.returncode = os.waitstatus_to_exitcode(status)
        watcher.join()
    cost.cpu_s = usage.ru_utime + usage.ru_stime + sum(map(_cpu_s, pids)) - before
    cost.wall_s = time.monotonic() - began
    print(*words, cost, flush=True)  # of a run that does not reach its end
    if within_s is not None and cost.wall_s >= within_s:
        raise OutOfTimeError(cost)
    assert running.returncode == 0, f"{words} failed"
    return cost


def size_of(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def spec_of(operations: int) -> SyntheticSpec:
    """Tensor-parallel groups of a node, data-parallel ones across nodes, and a world."""
    ranks = range(RANKS)
    groups = [tuple(ranks[first : first + RANKS_PER_NODE]) for first in ranks[::RANKS_PER_NODE]]
    groups += [tuple(ranks[first::RANKS_PER_NODE]) for first in range(RANKS_PER_NODE)]
    return SyntheticSpec(
        processes=RANKS,
        operations=operations // RANKS,
        ranks_per_node=RANKS_PER_NODE,
        communicators=(*groups, tuple(ranks)),
    )


def measure(folder: Path, operations: int) -> tuple[dict[str, Cost], dict[str, int]]:
    """What each verb costs with this number of operations, and the bytes on the disk."""
    capture, decoding = folder / "capture", Cost()
    sizes = {"log": 0}
    with workers(folder) as (address, pids):

        def decode(process: int) -> None:
            if process % RANKS_PER_NODE == RANKS_PER_NODE - 1:
                sizes["log"] += size_of(capture, "*/log.*")
                decoding.add(cost_of(pids, "decode", capture, "--remove-raw", "--on", address))

        synthetic(capture, spec_of(operations), decode)
        sizes["decoded"] = size_of(capture, "*/decoded.*")
        report = ("report", capture, "--json")
        costs = {
            "decode": decoding,
            "report, cold": cost_of(pids, *report, "--on", address),
            "report, from the saved model": cost_of(pids, *report),
            "diagnose, from the saved model": cost_of(pids, "diagnose", capture, "--json"),
        }
    sizes["model"] = size_of(capture, "model/*")
    return costs, sizes


def main() -> None:
    """Measures every amount of operations and publishes the table."""
    rows: list[list[object]] = []
    each: dict[int, float] = {}
    for operations in OPERATIONS:
        with scratch() as folder:
            costs, sizes = measure(folder, operations)
            shutil.rmtree(folder / "capture")
        for verb, cost in costs.items():
            memory: dict[str, Any] = cost.private_mb
            rows.append([
                f"{operations:,}", verb, f"{cost.cpu_s:.1f}",
                f"{cost.cpu_s / operations * 1e6:.2f}", f"{cost.wall_s:.0f}",
                f"{memory['command']:.0f}, {memory['worker']:.0f}",
            ])  # fmt: skip
        each[operations] = sum(cost.cpu_s for cost in costs.values()) / operations * 1e6
        print(operations, sizes, flush=True)
    header = ["operations", "verb", "CPU s", "µs an operation", "wall s", "MB: command, worker"]
    bytes_each = ", ".join(f"{name} {size / operations:.0f}" for name, size in sizes.items())
    text = (
        f"\n\n{RANKS} ranks on {RANKS // RANKS_PER_NODE} nodes, {WORKERS} workers on one host. "
        f"Bytes an operation: {bytes_each}. MB: private, of the command and of the larger worker. "
        f"Load average at the end: {os.getloadavg()[1]:.0f}."
    )
    publish("many-operations", table(header, rows) + text)
    assert each[OPERATIONS[-1]] < 1.5 * each[OPERATIONS[0]], "CPU time an operation grows"
