"""A history of 1,000 jobs on 64 hosts with a bad host: whether it is named, and what verbs cost.

    python -m benchmarks history

Sums of all jobs but some are made by chance and written by the history's own writer; the others
are those of synthetic captures, added by `history add`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

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
MOST_S = 1.0


def write_history(path: Path) -> float:
    """Adds all jobs; returns CPU s of the writer by job."""
    generator = np.random.default_rng(20)
    began = time.process_time()
    made_s = 0.0
    with open_connection() as connection:
        for number in range(JOBS):
            before = time.process_time()
            hosts = [str(host) for host in generator.permutation(fleet(HOSTS))]
            sums = made_job(number, hosts, generator, BAD, BAD_SHARE)
            made_s += time.process_time() - before
            write_job(path, sums, connection)
    return (time.process_time() - began - made_s) / JOBS


def add_captures(path: Path, folder: Path) -> None:
    """Adds small captures with a late rank, on hosts of their own."""
    for number in range(CAPTURES):
        capture = folder / f"capture{number}"
        scenario = Scenario(ranks=8, steps=40, compute_ms=4, late=(Late(2, 6.0),), ranks_per_host=1)
        write_capture_of_job(capture, scenario, number, seed=number)
        words = [sys.executable, "-m", "ncclscope", "history", "add", str(path), str(capture)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def query_costs(path: Path) -> dict[str, tuple[float, float]]:
    """CPU and wall s of queries within a process, and of whole commands."""
    costs = {}
    queries = {
        "late hosts, all jobs, the first time": lambda: host_records(History(path)),
        "late hosts, all jobs": lambda: host_records(History(path)),
        "one host, all jobs, the first time": lambda: host_trend(History(path), BAD),
        "one host, all jobs": lambda: host_trend(History(path), BAD),
        "one host, last 100": lambda: host_trend(History(path, 100), BAD),
    }
    for name, query in queries.items():
        cpu, wall = time.process_time(), time.monotonic()
        query()
        costs[name] = time.process_time() - cpu, time.monotonic() - wall
    commands: dict[str, tuple[str, ...]] = {
        "`history list`": ("list",),
        "`history trend`": ("trend",),
        "`history trend --host`": ("trend", "--host", BAD),
        "`history diff`": ("diff", "--job", f"job{JOBS - 1}"),
    }
    for name, (action, *options) in commands.items():
        cost = cost_of("history", action, path, *options)
        costs[name] = cost.cpu_s, cost.wall_s
    return costs


def main() -> None:
    """Measures, and publishes the table."""
    with scratch() as folder:
        path = folder / "history"
        write_s = write_history(path)
        add_captures(path, folder)
        sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        costs = query_costs(path)
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
        f"has {sum(sizes) / (JOBS + CAPTURES) / 1e3:.1f} KB (64 hosts, 44 kinds of calls, 64 "
        f"links) and is written in {1e3 * write_s:.0f} ms of CPU."
    )
    publish("history", table(["", "CPU s", "wall s"], rows) + text)
    assert [record.host for record in late] == [BAD], answer
    queries = [name for name in costs if "first time" not in name and not name.startswith("`")]
    slow = [name for name in queries if costs[name][0] > MOST_S]
    assert not slow, f"{', '.join(slow)}: took more than {MOST_S} s of CPU"
