"""Healthy jobs of the laboratory, and what `diagnose` warns of in them: nothing.

Every healthy kind of up to 16 ranks, six seeds each: no other script uses these seeds. Some jobs
are uneven by design, and saying so is no false warning (`may_be_said`).

    python -m benchmarks.false_warnings
"""

import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import ncclscope
from benchmarks.results import ROOT, publish, table
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.laboratory.kinds import all_kinds
from tests.support.laboratory.score import may_be_said

SEEDS = range(101, 107)
LARGEST = 16  # ranks
PROBLEMS = ("warning", "critical")


def warnings_of(name: str, seed: int) -> list[str]:
    """The false warnings of one job."""
    scratch = ROOT / ".bench"
    scratch.mkdir(exist_ok=True)
    capture = Path(tempfile.mkdtemp(dir=scratch))
    try:
        truth = all_kinds()[name].write(capture / "c", seed)
        model = ncclscope.open(str(capture / "c")).model
        findings = diagnose(model, unfinished_snapshots(model)).findings
    finally:
        shutil.rmtree(capture)
    return [
        f"{name}, seed {seed}: {finding.sentence}"
        for finding in findings
        if finding.severity in PROBLEMS and not may_be_said(finding.family, finding.ranks, truth)
    ]


def jobs() -> list[tuple[str, int]]:
    """Names and seeds of all jobs."""
    names = [n for n, kind in all_kinds().items() if not kind.faults and kind.ranks <= LARGEST]
    return [(name, seed) for name in names for seed in SEEDS]


def main() -> None:
    """Diagnoses all jobs and publishes what was said."""
    said: list[str] = []
    listed = jobs()
    with ProcessPoolExecutor(os.cpu_count() or 1, get_context("fork")) as pool:
        for sentences in pool.map(warnings_of, *zip(*listed, strict=True)):
            for sentence in sentences:
                print(sentence, file=sys.stderr, flush=True)
            said += sentences
    kinds = len({name for name, _ in listed})
    rows = [[kinds, len(listed), len(said)]]
    lines = "".join(f"\n- {sentence}" for sentence in said)
    header = ["healthy kinds", "jobs", "false warnings"]
    publish("false-warnings", table(header, rows) + (f"\n{lines}" if lines else ""))
    if said:
        raise SystemExit("a healthy job was warned of")


if __name__ == "__main__":
    main()
