"""Calls made by the workload against calls on record, for each NCCL release, number of ranks and case."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.capture.dump_events import events_of
from ncclscope.capture.reader import open_capture, resolve_capture
from ncclscope.native import plugin_path
from tests.gpu.mps import mps
from tests.gpu.ranks import Job, run_job

CASES = ("colls", "many", "group", "p2p", "a2a", "graph", "split", "one", "straggler")
FATAL_CASES = ("hang", "mismatch")  # their ranks are killed
# NCCL before 2.27 reports millions of others a second while its ranks hang.
CALL_EVENTS = ("GroupApi", "CollApi", "P2pApi", "Coll", "P2p")
JOBS_AT_ONCE = 4
INVISIBLE = "AllReduce of one rank"  # NCCL reports nothing of communicators of one rank


@dataclass(frozen=True)
class Row:
    """One case of one job, all ranks together."""

    nccl: str
    ranks: int
    case: str
    made: int
    recorded: int
    invisible: int
    differences: tuple[str, ...]


def expected_events(calls: dict[str, int], ranks: int, api: bool) -> Counter[str]:
    """The events that NCCL reports for these calls: API events from v5 on, work below them."""
    expected: Counter[str] = Counter()
    for name, count in calls.items():
        if name == INVISIBLE:
            continue
        if name == "AlltoAll":  # a send and a receive for each rank, itself included
            expected["call Send"] += count * ranks
            expected["call Recv"] += count * ranks
        elif name == "captured AllReduce":
            expected["call AllReduce"] += count if api else 0
        elif name == "replayed AllReduce":
            expected["replay AllReduce"] += count
        else:
            expected[f"call {name}"] += count
    return +expected


def recorded_events(events: list[dict[str, Any]], api: bool) -> Counter[str]:
    """Calls and replays on record, by function."""
    calls: Counter[str] = Counter()
    captured = {e["id"] for e in events if e["event"] == "CollApi" and e["fields"]["graphCaptured"]}
    names = ("CollApi", "P2pApi") if api else ("Coll", "P2p")
    for event in events:
        function = event["fields"].get("func")
        if event["event"] in names:
            calls[f"call {function}"] += 1
        elif event["event"] == "Coll" and event["parent"] in captured:
            calls[f"replay {function}"] += 1
    return calls


def _without_api(expected: Counter[str]) -> Counter[str]:
    """Before v5 a replay looks like any other collective."""
    plain: Counter[str] = Counter()
    for name, count in expected.items():
        plain[name.replace("replay", "call")] += count
    return plain


def check_job(title: str, job: Job, mode: str = "full") -> list[Row]:
    """Runs a job under the plugin and compares, case by case."""
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "capture"
        variables = {
            "NCCL_PROFILER_PLUGIN": str(plugin_path()),
            "NCCLSCOPE_DIR": str(capture),
            "NCCLSCOPE_MODE": mode,
            "NCCLSCOPE_GPU_TIMING": "kernel",
        }
        answers = run_job(job, variables)
        capture_read = open_capture(resolve_capture(str(capture)))
        assert len(capture_read.processes) == job.ranks, capture_read.unreadable
        by_rank = {
            process.rank: list(events_of(process, names=CALL_EVENTS))
            for process in capture_read.processes
        }
        dropped = sum(process.dropped() for process in capture_read.processes)
    api = any(event["event"] == "GroupApi" for events in by_rank.values() for event in events)
    rows = []
    for case in job.cases:
        made = recorded = invisible = 0
        differences = [f"{dropped} dropped"] if dropped else []
        for answer in answers:
            about = answer["cases"][case]
            window = range(about["from_ns"], about["to_ns"])
            events = [e for e in by_rank[answer["rank"]] if e["start_ns"] in window]
            expected = expected_events(about["calls"], job.ranks, api)
            expected = expected if api else _without_api(expected)
            recorded_calls = recorded_events(events, api)
            made += sum(expected.values())
            recorded += sum((expected & recorded_calls).values())
            invisible += about["calls"].get(INVISIBLE, 0)
            if expected != recorded_calls:
                differences.append(
                    f"rank {answer['rank']}: {dict(expected - recorded_calls)} {dict(recorded_calls - expected)}"
                )
        rows.append(Row(title, job.ranks, case, made, recorded, invisible, tuple(differences)))
    return rows


def coverage(
    libraries: dict[str, Path | None],
    worlds: tuple[int, ...],
    cases: list[str],
    publish: Callable[[list[Row]], None],
) -> list[Row]:
    """All rows: every release, number of ranks and case; published as they come.

    Jobs run side by side, most of their time being start-up. What kills its ranks comes after the
    rest and without MPS: its server may take minutes over clients killed in the midst of a kernel.
    """
    rows: list[Row] = []
    worlds_of_all = [(title, ranks) for title in libraries for ranks in worlds]

    def run(title: str, ranks: int, cases: tuple[str, ...]) -> list[Row]:
        began = time.monotonic()
        job_rows = check_job(title, Job(cases, ranks, libraries[title]))
        print(f"{title}, {ranks} ranks, {cases[0]}…: {time.monotonic() - began:.0f} s", flush=True)
        return job_rows

    def run_all(kinds: tuple[tuple[str, ...], ...]) -> None:
        with ThreadPoolExecutor(max_workers=JOBS_AT_ONCE) as pool:
            jobs = [pool.submit(run, *world, cases) for cases in kinds for world in worlds_of_all]
            for job in as_completed(jobs):
                rows.extend(job.result())
                publish(rows)

    if together := tuple(case for case in CASES if case in cases):
        with mps():
            run_all((together,))
    for case in (case for case in FATAL_CASES if case in cases):
        for world in worlds_of_all:
            rows.extend(run(*world, (case,)))
            publish(rows)
    return rows
