"""What verbs cost by the number of ranks: CPU time and private memory, 256 to 10,240 ranks.

    python -m benchmarks many_ranks

takes 6 GB of disk and, for 10,240 ranks, some minutes on two cores.
"""

import math
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from benchmarks.loads import scratch
from benchmarks.results import publish, table
from tests.support.writer import Straggler, SyntheticSpec, synthetic
from tests.support.writer.live import write_hang

RANKS, OPERATIONS, RANKS_PER_NODE = (256, 1024, 4096, 10_240), 600, 8
BARS_S = {
    "report, cold": 300.0, "report": 30.0, "diagnose": 30.0, "compare": 30.0, "status": 10.0,
    "status of a hang": 10.0,
}  # fmt: skip
_HUNG_EXIT = 4  # of `status`


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took."""

    cpu_s: float  # of it and its workers
    wall_s: float
    private_mb: float  # of the command, at most


def write_capture(path: Path, ranks: int) -> None:
    """Tensor-parallel groups of a node, data-parallel ones across nodes, and a world; a rank of
    the first node is late in three of ten operations.
    """
    each = RANKS_PER_NODE
    groups = [tuple(range(first, first + each)) for first in range(0, ranks, each)]
    groups += [tuple(range(first, ranks, each)) for first in range(each)]
    spec = SyntheticSpec(
        processes=ranks,
        operations=OPERATIONS,
        ranks_per_node=each,
        communicators=(*groups, tuple(range(ranks))),
        straggler=Straggler(3, 5_000_000, 0.3),
    )
    synthetic(path, spec)


def cost_of(*words: str | Path, exit_code: int = 0) -> Cost:
    """Runs a verb to its end."""
    before, began, most_kb = getrusage(RUSAGE_CHILDREN), time.monotonic(), 0
    command = [sys.executable, "-m", "ncclscope", *map(str, words)]
    # Byte code is kept, as it is where the package is installed.
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=kept) as running:
        status = Path(f"/proc/{running.pid}/status")
        while running.poll() is None:
            private = re.search(r"RssAnon:\s+(\d+)", status.read_text())
            most_kb = max(most_kb, int(private[1]) if private else 0)
            time.sleep(0.02)
    assert running.returncode == exit_code, f"{words} failed"
    after = getrusage(RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = Cost(cpu_s, time.monotonic() - began, most_kb / 1e3)
    print(*words, cost, flush=True)  # of a run that does not reach its end
    return cost


def measure(capture: Path, hung: Path) -> dict[str, Cost]:
    """All verbs over one capture; the first report makes the model. `hung`: a capture of live
    pages, as a running job has them.
    """
    return {
        "report, cold": cost_of("report", capture, "--json"),
        "report": cost_of("report", capture, "--json"),
        "diagnose": cost_of("diagnose", capture),
        "compare": cost_of("compare", capture, capture),
        "status": cost_of("status", capture),
        "status of a hang": cost_of("status", hung, exit_code=_HUNG_EXIT),
    }


def cells_of(costs: dict[int, dict[str, Cost]], verb: str) -> list[object]:
    """A row of the table: what the verb costs by ranks, and how that grows."""
    of_verb = [costs[ranks][verb] for ranks in RANKS]
    cells = [f"{cost.cpu_s:.1f} / {cost.wall_s:.0f} / {cost.private_mb:.0f}" for cost in of_verb]
    ratio = RANKS[-1] / RANKS[-2]
    cpu = math.log(of_verb[-1].cpu_s / of_verb[-2].cpu_s, ratio)
    memory = math.log(of_verb[-1].private_mb / of_verb[-2].private_mb, ratio)
    return [verb, *cells, f"{cpu:.2f}, {memory:.2f}", f"{BARS_S[verb]:.0f}"]


def main() -> None:
    """Measures every number of ranks and publishes the table."""
    costs: dict[int, dict[str, Cost]] = {}
    for ranks in RANKS:
        with scratch() as folder:
            write_capture(folder / "capture", ranks)
            write_hang(folder / "hung", ranks, frozenset({12, 13}), time.time_ns())
            costs[ranks] = measure(folder / "capture", folder / "hung")
            shutil.rmtree(folder / "capture")
    rows = [cells_of(costs, verb) for verb in BARS_S]
    columns = [f"{ranks:,} ranks" for ranks in RANKS]
    header = ["CPU s / wall s / private MB", *columns, "exponents", "bar, s"]
    text = (
        f"\n\n{OPERATIONS} operations on each rank, 8 ranks on a node, synthetic; without live "
        "pages but for the last row. Private: of the command. Exponents: of CPU time and of "
        "memory in ranks, between the last two sizes. "
        f"Load average at the end: {os.getloadavg()[1]:.0f}."
    )
    publish("many-ranks", table(header, rows) + text)
    late = [verb for verb, bar_s in BARS_S.items() if costs[RANKS[-1]][verb].wall_s > bar_s]
    assert not late, f"{', '.join(late)}: the bar does not hold"
