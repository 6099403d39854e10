"""Jobs with something wrong on real NCCL: what `status` says live, and `status` and `diagnose` say
afterwards. Needs numpy alone.

What was printed, and the captures, go to $OUT where that is set, so that they can be read elsewhere:
`python -m tests.gpu.planted_faults DIR` diagnoses captures that came back.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.native import plugin_path
from tests.gpu.ranks import Job, run_job

PATIENCE_S = 26.0  # of a rank that hangs: longer than status waits
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Row:
    """One verb's answer about one job."""

    case: str
    ranks: int
    moment: str
    verb: str
    expected: str
    answer: str

    @property
    def holds(self) -> bool:
        """Whether the answer is the expected one."""
        return self.expected == self.answer


def ask(verb: str, capture: Path, log: Path) -> dict[str, Any]:
    """A verb's JSON; its text goes to the log."""
    command = [sys.executable, "-m", "ncclscope", verb, str(capture)]
    text = subprocess.run(command, capture_output=True, text=True, check=False)
    with log.open("a") as file:
        file.write(f"$ ncclscope {verb} {capture.name}\n{text.stdout}{text.stderr}")
        file.write(f"exit code {text.returncode}\n\n")
    printed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if not printed.stdout:
        raise RuntimeError(printed.stderr[-2000:])
    return dict(json.loads(printed.stdout))


def verdict(answer: dict[str, Any]) -> str:
    """The first communicator's verdict and culprits."""
    worst = answer["communicators"][0]
    return f"{worst['verdict']} {worst['culprits']}"


def first_finding(answer: dict[str, Any]) -> str:
    """Family, kind and ranks of the first finding."""
    if not answer["findings"]:
        return "nothing"
    finding = answer["findings"][0]
    return f"{finding['family']} {finding['kind']} {finding['ranks']}"


def _wait_for(capture: Path, ranks: int, verdicts: tuple[str, ...], job: Future[Any]) -> None:
    """Waits until status says one of these."""
    deadline = time.monotonic() + DEADLINE_S
    command = [sys.executable, "-m", "ncclscope", "status", "--json", str(capture)]
    while time.monotonic() < deadline and not job.done():
        if len(list(capture.glob("*/live"))) == ranks:
            printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            communicators = json.loads(printed)["communicators"] if printed else []
            if communicators and communicators[0]["verdict"] in verdicts:
                return
        time.sleep(0.5)


def _live(case: str, ranks: int, capture: Path, log: Path, job: Future[Any]) -> list[Row]:
    """What status says while the job runs."""
    last = ranks - 1
    if case == "hang":
        _wait_for(capture, ranks, ("waiting",), job)
        rows = [Row(case, ranks, "live, early", "status", f"waiting [{last}]", verdict(ask("status", capture, log)))]  # fmt: skip
        _wait_for(capture, ranks, ("never_called",), job)
        answer = verdict(ask("status", capture, log))
        return [*rows, Row(case, ranks, "live", "status", f"never_called [{last}]", answer)]
    _wait_for(capture, ranks, ("mismatch",), job)
    answer = verdict(ask("status", capture, log))
    return [Row(case, ranks, "live", "status", f"mismatch [{last}]", answer)]


_AFTERWARDS = {
    "hang": ("never_called [{}]", "hang never_called [{}]"),
    "mismatch": ("mismatch [{}]", "mismatch function [{}]"),
    "straggler": ("ok []", "straggler compute [{}]"),
}


def _afterwards(case: str, ranks: int, capture: Path, log: Path) -> list[Row]:
    status, finding = (text.format(ranks - 1) for text in _AFTERWARDS[case])
    return [
        Row(case, ranks, "afterwards", "status", status, verdict(ask("status", capture, log))),
        Row(case, ranks, "afterwards", "diagnose", finding, first_finding(ask("diagnose", capture, log))),
    ]  # fmt: skip


def run_case(case: str, ranks: int, library: Path | None, directory: Path) -> list[Row]:
    """One job, asked about while it runs and afterwards."""
    capture, log = directory / f"{case}-{ranks}", directory / f"{case}-{ranks}.txt"
    variables = {
        "NCCL_PROFILER_PLUGIN": str(plugin_path()),
        "NCCLSCOPE_DIR": str(capture),
        "NCCLSCOPE_MODE": "full",
        "PATIENCE_S": str(PATIENCE_S if case == "hang" else 8.0),
        "ITERATIONS": "10",
    }
    rows: list[Row] = []
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(run_job, Job((case,), ranks, library), variables, 180.0)
        if case != "straggler":
            rows += _live(case, ranks, capture, log, job)
        job.result()
    return rows + _afterwards(case, ranks, capture, log)


def _keep(directory: Path) -> None:
    out = os.environ.get("OUT")
    if not out:
        return
    for log in directory.glob("*.txt"):
        shutil.copy(log, out)
    for capture in directory.iterdir():
        if capture.is_dir():
            shutil.rmtree(capture / "model", ignore_errors=True)
            shutil.make_archive(f"{out}/{capture.name}", "gztar", directory, capture.name)


def diagnose_planted_faults(library: Path | None = None) -> list[Row]:
    """All cases, side by side."""
    cases = (("straggler", 4), ("hang", 3), ("mismatch", 3))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(len(cases)) as pool:
        directory = Path(name)
        jobs = [pool.submit(run_case, case, ranks, library, directory) for case, ranks in cases]
        rows: list[Row] = []
        for job, (case, ranks) in zip(jobs, cases, strict=True):
            try:
                rows += job.result()
            except Exception as error:  # the other cases are still worth having
                rows.append(
                    Row(case, ranks, "", "", "an answer", f"{type(error).__name__}: {error}"[:300])
                )
        for log in sorted(directory.glob("*.txt")):
            print(f"---- {log.stem}\n{log.read_text()}")
        _keep(directory)
    return rows


if __name__ == "__main__":
    for packed in sorted(Path(sys.argv[1]).glob("*.tar.gz")):
        with tempfile.TemporaryDirectory() as scratch:
            shutil.unpack_archive(packed, scratch, filter="data")
            capture = Path(scratch) / packed.name.removesuffix(".tar.gz")
            case, _, ranks = capture.name.partition("-")
            for row in _afterwards(case, int(ranks), capture, Path(scratch) / "log"):
                print("holds" if row.holds else "DIFFERENT", row)
            print((Path(scratch) / "log").read_text())
