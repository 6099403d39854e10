"""A history of 1,000 jobs on 64 hosts with a bad host: whether it is named, and what verbs cost.

    python -m benchmarks history

Sums of all jobs but some are made by chance and written by the history's own writer; the others
are those of synthetic captures, added by `history add`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.loads import scratch
from benchmarks.many_ranks import cost_of
from benchmarks.results import publish, table
from ncclscope.history.late_hosts import host_records
from ncclscope.history.reader import History
from ncclscope.history.trend import host_trend
from ncclscope.history.writer import write_job
from ncclscope.model.sql_views import open_connection
from ncclscope.simulation.scenario import Late, Scenario
from tests.support.history_jobs import fleet, made_job, write_capture_of_job

JOBS, CAPTURES, HOSTS, BAD, BAD_SHARE = 1000, 5, 64, "node017", 0.3
REACH, MODULES = 63, 80  # every host sends to every other one; layers of a large model
MOST_S = 1.0  # of wall time, also of whole commands
MOST_FIRST_S = 3.0  # while the files of all jobs are collected, once after `add`
TIMES = 5  # of which the median counts: other processes hold single ones up
_FIRST = "the first time"


def write_history(path: Path) -> float:
    """Adds all jobs; returns CPU s of the writer by job."""
    generator = np.random.default_rng(20)
    began = time.process_time()
    made_s = 0.0
    with open_connection() as connection:
        for number in range(JOBS):
            before = time.process_time()
            hosts = [str(host) for host in generator.permutation(fleet(HOSTS))]
            sums = made_job(number, hosts, generator, BAD, BAD_SHARE, reach=REACH, modules=MODULES)
            made_s += time.process_time() - before
            write_job(path, sums, connection)
    return (time.process_time() - began - made_s) / JOBS


def add_captures(path: Path, folder: Path) -> Path:
    """Adds small captures with a late rank, on hosts of their own. Returns an equal one that is not
    in the history, with a saved model.
    """
    for number in range(CAPTURES + 1):
        capture = folder / f"capture{number}"
        scenario = Scenario(ranks=8, steps=40, compute_ms=4, late=(Late(2, 6.0),), ranks_per_host=1)
        write_capture_of_job(capture, scenario, number, seed=number)
        words = ["history", "add", str(path)] if number < CAPTURES else ["report"]
        command = [sys.executable, "-m", "ncclscope", *words, str(capture)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return capture


def _of_query(query: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall s."""
    cpu, wall = time.process_time(), time.monotonic()
    query()
    return time.process_time() - cpu, time.monotonic() - wall


def _of_command(words: Sequence[str | Path]) -> tuple[float, float]:
    """CPU and wall s."""
    cost = cost_of(*words)
    return cost.cpu_s, cost.wall_s


def _medians(costs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*costs, strict=True)
    return median(cpu), median(wall)


def query_costs(path: Path, capture: Path) -> dict[str, tuple[float, float]]:
    """CPU and wall s of queries within a process, and of whole commands: medians, but for what can
    be measured once.
    """
    costs = {
        f"late hosts, all jobs, {_FIRST}": _of_query(lambda: host_records(History(path))),
        f"one host, all jobs, {_FIRST}": _of_query(lambda: host_trend(History(path), BAD)),
    }
    queries: dict[str, Callable[[], object]] = {
        "late hosts, all jobs": lambda: host_records(History(path)),
        "one host, all jobs": lambda: host_trend(History(path), BAD),
        "one host, last 100": lambda: host_trend(History(path, 100), BAD),
    }
    for name, query in queries.items():
        costs[name] = _medians([_of_query(query) for _ in range(TIMES)])
    other = fleet(HOSTS)[0]
    commands: dict[str, tuple[str | Path, ...]] = {
        "`history list`": ("history", "list", path),
        "`history trend`": ("history", "trend", path),
        "`history trend --host`": ("history", "trend", path, "--host", BAD),
        "`history trend --link`": ("history", "trend", path, "--link", BAD, other),
        "`history trend --comm`": ("history", "trend", path, "--comm", "dp"),
        "`history trend --module`": ("history", "trend", path, "--module", "layers.7"),
        "`history diff`": ("history", "diff", path, "--job", f"job{JOBS - 1}"),
        "`compare --history`": ("compare", "--history", path, capture),
        "`diagnose`, without a history": ("diagnose", capture),
        "`diagnose --history`": ("diagnose", "--history", path, capture),
    }
    for name, words in commands.items():
        costs[name] = _medians([_of_command(words) for _ in range(TIMES)])
    return costs


def main() -> None:
    """Measures, and publishes the table."""
    with scratch() as folder:
        path = folder / "history"
        write_s = write_history(path)
        capture = add_captures(path, folder)
        sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        costs = query_costs(path, capture)
        records = host_records(History(path))
        answer = json.dumps([record.host for record in records if record.is_late])
    late = [record for record in records if record.is_late]
    bad = records[0]
    rows: list[list[object]] = [
        [name, f"{cpu_s:.2f}", f"{wall_s:.2f}"] for name, (cpu_s, wall_s) in costs.items()
    ]
    text = (
        f"\n\n{JOBS:,} jobs of {HOSTS} hosts, made by chance, and {CAPTURES} of small synthetic "
        f"captures. {BAD} is 10 % slower in {BAD_SHARE:.0%} of jobs: an origin in "
        f"{bad.origin_in} of {bad.jobs:,}, where chance gives {bad.expected:.1f}. Named: "
        f"{', '.join(record.host for record in late)}; {len(records)} hosts were judged. A job "
        f"has {sum(sizes) / (JOBS + CAPTURES) / 1e3:.1f} KB ({HOSTS} hosts, 44 kinds of calls, "
        f"{HOSTS * REACH:,} links, {MODULES} modules) and is written in {1e3 * write_s:.0f} ms of "
        f"CPU. Medians of {TIMES}, but for the first times. Bar: {MOST_S:.0f} s of wall time, the "
        f"first time {MOST_FIRST_S:.0f} s."
    )
    publish("history", table(["", "CPU s", "wall s"], rows) + text)
    assert [record.host for record in late] == [BAD], answer
    slow = [
        name
        for name, (_, wall_s) in costs.items()
        if wall_s > (MOST_FIRST_S if _FIRST in name else MOST_S)
    ]
    assert not slow, (
        f"{', '.join(slow)}: took more than {MOST_S} s, the first time {MOST_FIRST_S} s"
    )
