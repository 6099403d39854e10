"""How often diagnose names what was planted, and how long status and diagnose take on 1,024 ranks.

Jobs are simulated and written directly (tests/support/planted_faults.py), with what real jobs vary
by; thresholds were chosen on even seeds, these are odd ones. Rows are kept in .bench until the code
changes, so a run that was stopped goes on where it was. A part of it:

    python -m benchmarks.diagnose_quality --only "late rank" 1024
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from ncclscope.capture.reader import resolve_capture
from ncclscope.simulation.job import run_job
from tests.support.diagnosis import diagnose_capture
from tests.support.planted_faults import FAULTS, PAIRS, judge_findings, plant_faults
from tests.support.player import recording
from tests.support.simulated_faults import JOBS
from tests.support.writer.live import write_hang
from tests.support.writer.noise import noise_of_transcripts

USUAL, LARGE = 64, 1024
SEEDS, PAIR_SEEDS, LARGE_SEEDS = 20, 10, 2
HEALTHY = 200
BAR = 0.95
STATUS_BAR_S, DIAGNOSE_BAR_S = 2.0, 30.0
LARGE_PAIRS = PAIRS[::3]
REPETITIONS = 2  # of jobs of real processes
KEPT = ROOT / ".bench" / "diagnose-quality.json"
Marks = tuple[bool, bool, bool]


@dataclass(frozen=True)
class Row:
    """Jobs of one kind; no kinds: healthy ones."""

    kinds: tuple[str, ...]
    ranks: int
    jobs: int
    clocks: bool | None = None  # apart and drifting; None: in every other job

    @property
    def shown(self) -> str:
        drift = ", clocks drift" if self.clocks else ""
        return (" + ".join(self.kinds) or "nothing") + drift

    @property
    def key(self) -> str:
        return f"{self.shown}, {self.ranks} ranks"


ROWS = (
    *(Row((kind,), USUAL, SEEDS) for kind in FAULTS),
    *(Row(kinds, USUAL, PAIR_SEEDS) for kinds in PAIRS),
    *(Row((kind,), LARGE, LARGE_SEEDS) for kind in FAULTS),
    *(Row(kinds, LARGE, 1) for kinds in LARGE_PAIRS),
    Row((), 16, 70),
    Row((), USUAL, 70, clocks=False),
    Row((), USUAL, 56, clocks=True),
    Row((), LARGE, 4),
)


def tried(row: Row, seed: int) -> Marks:
    """Whether the faults are named, come first, and nothing else is called a problem."""
    plant = plant_faults(row.kinds, seed, row.ranks, row.clocks)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as name:
        plant.write(Path(name) / "capture", seed)
        marks = judge_findings(plant, diagnose_capture(Path(name) / "capture").findings)
    if not all(marks):
        print(f"{row.key}, seed {seed}: {marks}", file=sys.stderr)
    return marks


def real_jobs() -> list[list[object]]:
    """Simulated jobs of real processes, one after the other: their times are the machine's."""
    rows: list[list[object]] = []
    for name, job in JOBS.items():
        marks = []
        for _ in range(REPETITIONS):
            with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
                capture = Path(directory) / "capture"
                run_job(job.scenario, recording(capture, "full"))
                marks.append(job.is_named(diagnose_capture(resolve_capture(str(capture))).findings))
        if not all(marks):
            print(f"{name}, {job.scenario.ranks} processes: {marks}", file=sys.stderr)
        rows.append([name, job.scenario.ranks, len(marks), sum(marks)])
    return rows


def code() -> str:
    """What the results depend on."""
    made = hashlib.sha256()
    writer = ROOT / "tests" / "support" / "writer"
    sources = [*(ROOT / "src").rglob("*.py"), *writer.glob("*.py")]
    for path in sorted(
        [*sources, ROOT / "tests" / "support" / "planted_faults.py", Path(__file__)]
    ):
        made.update(path.read_bytes())
    return made.hexdigest()


def kept() -> dict[str, list[int]]:
    """Rows that were measured with this code: jobs, named, first, others claimed."""
    try:
        found = json.loads(KEPT.read_text())
    except (OSError, ValueError):
        return {}
    return dict(found["rows"]) if found.get("code") == code() else {}


def measure(rows: list[Row]) -> dict[str, list[int]]:
    """All rows that are not there yet, on all cores."""
    done, made_by = kept(), code()
    noise_of_transcripts()  # once, before there are workers
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:
        missing = [row for row in rows if done.get(row.key, [0])[0] < row.jobs]
        asked = [
            (row, [pool.submit(tried, row, seed) for seed in range(1, 2 * row.jobs, 2)])
            for row in missing
        ]
        for row, answers in asked:
            marks = [answer.result() for answer in answers]
            named, first, alone = (sum(mark[place] for mark in marks) for place in range(3))
            done[row.key] = [len(marks), named, first, len(marks) - alone]
            KEPT.write_text(json.dumps({"code": made_by, "rows": done}))
            print(f"{row.key}: {done[row.key]}", file=sys.stderr, flush=True)
    return done


def seconds(verb: str, capture: Path) -> tuple[float, float]:
    """Wall and CPU time of a verb in a process of its own."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ncclscope", verb, "--json", str(capture)],
        capture_output=True,
        check=False,
    )
    after = os.times()
    used = after.children_user + after.children_system
    return time.perf_counter() - began, used - before.children_user - before.children_system


def speed(directory: Path) -> tuple[list[list[object]], bool]:
    """Status from live pages, diagnose from the capture alone."""
    capture = directory / "hang"
    capture.mkdir()
    write_hang(capture, LARGE, frozenset({12, 13}), time.time_ns())
    status = min(seconds("status", capture) for _ in range(3))
    rows: list[list[object]] = []
    timed = [("status, a hang, live pages", status, STATUS_BAR_S)]
    for kind in ("late rank", "never calls"):
        plant_faults((kind,), 1, LARGE).write(directory / "job", 1)
        text = f"diagnose, {kind}, 164 k operations, without a saved model"
        timed.append((text, seconds("diagnose", directory / "job"), DIAGNOSE_BAR_S))
        shutil.rmtree(directory / "job")
    for what, (wall, cpu), bar in timed:
        verdict = "holds" if wall <= bar else "**does not hold**"
        rows.append([what, f"{wall:.2f} s", f"{cpu:.2f} s", f"≤ {bar:.0f} s", verdict])
    return rows, all(wall <= bar for _, (wall, _), bar in timed)


def note(done: dict[str, list[int]]) -> str:
    """What the table says."""
    faulty, healthy = [r for r in ROWS if r.kinds], [r for r in ROWS if not r.kinds]
    parts = []
    for ranks in (USUAL, LARGE):
        results = [done[row.key] for row in faulty if row.ranks == ranks]
        jobs, first = (sum(one[place] for one in results) for place in (0, 2))
        parts.append(f"{first} of {jobs} of {ranks:,} ranks ({100 * first / jobs:.1f} %)")
    alarms, jobs = (sum(done[row.key][place] for row in healthy) for place in (3, 0))
    return (
        f"What was planted comes first and is named exactly in {', '.join(parts)}: kind and ranks, "
        "of a bandwidth drop the time, of lost events their number, of a stalled communicator who "
        f"waits in it. {alarms} of {jobs} healthy jobs have a finding of severity warning or "
        "above. Simulated jobs, odd seeds; thresholds were chosen on even ones. Ranks and wires "
        "vary as in transcripts of real jobs; half of the jobs have host clocks up to a second "
        "apart that drift by up to 100 ppm. A slow link is named by its communicator: mode trace "
        "has no proxy steps. A job without the files of the rank to blame is `unknown`, with that "
        "rank. Other problems: findings of severity warning or above that nobody planted."
    )


def holds(done: dict[str, list[int]]) -> bool:
    """Whether the bars do, for jobs of 64 ranks and for those of 1,024 alike."""
    for ranks in (USUAL, LARGE):
        results = [done[row.key] for row in ROWS if row.kinds and row.ranks == ranks]
        if sum(one[2] for one in results) < BAR * sum(one[0] for one in results):
            return False
    return not any(done[row.key][3] for row in ROWS if not row.kinds)


def main() -> None:
    """Measures and publishes."""
    assert sum(row.jobs for row in ROWS if not row.kinds) == HEALTHY
    done = measure(list(ROWS))
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as name:
        speeds, quick = speed(Path(name))
    real = real_jobs()
    header = ["planted", "ranks", "jobs", "named exactly", "ranked first", "other problems claimed"]
    rows: list[list[object]] = [[row.shown, row.ranks, *done[row.key]] for row in ROWS]
    timed = table([f"{LARGE} ranks", "wall", "CPU", "bar", ""], speeds)
    lived = table(["planted, in jobs of real processes", "processes", "jobs", "ranked first"], real)
    remark = "Through the plugin, mode full, at the times of the machine that runs them."
    body = f"{table(header, rows)}\n\n{note(done)}\n\n{lived}\n\n{remark}\n\n{timed}"
    publish("diagnose-quality", body)
    jobs, first = (sum(int(str(row[place])) for row in real) for place in (2, 3))
    if not holds(done) or not quick or first < BAR * jobs:
        raise SystemExit("a bar does not hold")


def in_parts() -> None:
    """Some rows; the page is left alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnose_quality")
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[], help="rows with all words")
    parser.add_argument("--real", action="store_true", help="jobs of real processes instead")
    given = parser.parse_args()
    words = given.only
    (ROOT / ".bench").mkdir(exist_ok=True)
    if given.real:
        print(table(["planted", "processes", "jobs", "ranked first"], real_jobs()))
        return
    measure([row for row in ROWS if all(word in row.key for word in words)])


if __name__ == "__main__":
    in_parts()
