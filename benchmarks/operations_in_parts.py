"""A job of 10^8 operations or more through `decode` and `report`, in runs of some minutes.

    python -m benchmarks.operations_in_parts FOLDER --operations 1e8 --workers 16 --minutes 9

The job has 64 ranks, or as many as the variable RANKS says. A run goes on where the one before
ended: each step that ended is a line of FOLDER/costs.jsonl, and is not done again. Steps are the
processes, 8 or as many as there are workers at a time (written, decoded, their logs removed), the
first report, and one from the saved model. A step that does not end in time is stopped. At the end
the table of all steps is printed; it is published by hand in docs/measurements/scale.md.

For each operation the disk needs 60 bytes for decoded files, 232 for the model and at most 80
while it is made; a log has 513 bytes, and a step has 8 of 64 logs, or as many as workers; of many
ranks a tenth. So 10^8 operations of 64 ranks with 16 workers take 50 GB at most, and with 8 workers
43 GB.
"""

import argparse
import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.many_operations import (
    RANKS,
    RANKS_PER_NODE,
    Cost,
    OutOfTimeError,
    cost_of,
    size_of,
    spec_of,
    workers,
)
from benchmarks.results import machine, table
from tests.support.writer.synthetic import Place, simulated, write_process
from tests.support.writer.truth import Truth

_LEAST_S = 5.0  # a step is not begun with less left


@dataclass(frozen=True, slots=True)
class Job:
    """What is measured, and until when."""

    folder: Path
    operations: int
    workers: int
    until: float  # by time.monotonic

    @property
    def capture(self) -> Path:
        """Where the job's capture is."""
        return self.folder / "capture"

    @property
    def _costs(self) -> Path:
        return self.folder / "costs.jsonl"

    def left_s(self) -> float:
        """How much time is left; OutOfTimeError with too little."""
        left_s = self.until - time.monotonic()
        if left_s < _LEAST_S:
            raise OutOfTimeError("no time is left")
        return left_s

    def done(self) -> list[dict[str, Any]]:
        """The steps that ended."""
        if not self._costs.exists():
            return []
        return [json.loads(line) for line in self._costs.read_text().splitlines()]

    def note(self, step: str, cost: Cost, **more: object) -> None:
        """Writes down that a step ended."""
        free_gb = shutil.disk_usage(self.folder).free / 1e9
        line = {"step": step, **asdict(cost), **more, "disk_free_gb": round(free_gb, 1)}
        with self._costs.open("a") as file:
            file.write(json.dumps(line) + "\n")


# ---- processes ----
# A fork of this process has it without a copy: times of 10^8 operations are 2.4 GB.
_simulated: list[tuple[Truth, int]] = []


def _write(capture: Path, process: int) -> float:
    """Writes one process's folder anew; returns the CPU seconds."""
    before = time.process_time()
    truth, begin_ns = _simulated[0]
    write_process(capture, Place(truth, process, 0), begin_ns, ended=True)
    return time.process_time() - before


@contextmanager
def _writers(job: Job) -> Iterator[Any]:
    """Processes that write the job's. They are forked before Dask starts threads."""
    if not _simulated:
        _simulated.append(simulated(spec_of(job.operations)))
    with multiprocessing.get_context("fork").Pool(job.workers) as pool:
        yield pool


def _parts(job: Job) -> list[list[int]]:
    """Processes that are not decoded yet, those of a step together."""
    done = {process for line in job.done() for process in line.get("processes", ())}
    left = [process for process in range(RANKS) if process not in done]
    at_once = max(job.workers, RANKS_PER_NODE, RANKS // 10)
    return [left[first : first + at_once] for first in range(0, len(left), at_once)]


def _decode_all(job: Job) -> None:
    """Writes and decodes the processes that are missing."""
    parts = _parts(job)
    if not parts:
        return
    with _writers(job) as pool, workers(job.folder, job.workers) as (address, pids):
        for part in parts:
            for path in job.capture.glob("*/log.*"):  # of a step that was stopped
                shutil.rmtree(path.parent, ignore_errors=True)
            began = time.monotonic()
            writing = pool.starmap_async(
                _write, [(job.capture, process) for process in part], chunksize=1
            )
            try:
                written_s = sum(writing.get(job.left_s()))
            except multiprocessing.TimeoutError:
                raise OutOfTimeError("processes were being written") from None
            print(f"wrote {part} in {time.monotonic() - began:.0f} s, CPU {written_s:.0f} s")
            log_bytes = size_of(job.capture, "*/log.*")
            words = ("decode", job.capture, "--remove-raw", "--on", address)
            cost = cost_of(pids, *words, within_s=job.left_s())
            job.note("decode", cost, processes=part, log_bytes=log_bytes)


# ---- reports ----
def _report(job: Job) -> None:
    """Both reports, unless they were made."""
    done = {line["step"] for line in job.done()}
    words = ("report", job.capture, "--json")
    with workers(job.folder, job.workers) as (address, pids):
        if "report, cold" not in done:
            cost = cost_of(pids, *words, "--on", address, within_s=job.left_s())
            sizes = {name: size_of(job.capture, name) for name in ("*/decoded.*", "model/*")}
            job.note("report, cold", cost, bytes=sizes)
        if "report, from the saved model" not in done:
            job.note("report, from the saved model", cost_of([], *words, within_s=job.left_s()))


# ---- the table ----
def _rows(job: Job) -> list[list[object]]:
    by_step: dict[str, Cost] = {}
    share: dict[str, float] = {}
    for line in job.done():
        cost = Cost(line["cpu_s"], line["wall_s"], line["private_mb"])
        by_step.setdefault(line["step"], Cost()).add(cost)
        share[line["step"]] = share.get(line["step"], 0.0) + len(line.get("processes", ())) / RANKS
    rows: list[list[object]] = []
    for step, cost in by_step.items():
        part = share[step] or 1.0
        name = step if part == 1.0 else f"{step}, {part:.0%} of the processes"
        each_us = cost.cpu_s / (job.operations * part) * 1e6
        memory = ", ".join(f"{cost.private_mb[name]:.0f}" for name in ("command", "worker"))
        rows.append([
            f"{job.operations:,}", name, f"{cost.cpu_s:.1f}", f"{each_us:.2f}",
            f"{cost.wall_s:.0f}", memory,
        ])  # fmt: skip
    return rows


def main() -> int:
    """Does what is left of a job, as far as the time allows; exit code 3 if steps are left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations_in_parts")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operations", type=float, default=1e8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=9.0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * given.minutes
    job = Job(given.folder, int(given.operations), given.workers, until)
    left = ""
    try:
        _decode_all(job)
        _report(job)
    except OutOfTimeError as error:
        left = f"steps are left ({error}): run it again"
    header = ["operations", "verb", "CPU s", "µs an operation", "wall s", "MB: command, worker"]
    print(table(header, _rows(job)), f"{job.workers} workers, {machine()}", left, sep="\n\n")
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
