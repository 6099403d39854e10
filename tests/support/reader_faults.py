"""Verbs of which one call that writes fails. Run as a program with the library preloaded, it makes
calls fail in forks of itself, one in each.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ncclscope.cli.dashboards import FOLDER
from tests.support import foreign_samples
from tests.support.paths import ROOT
from tests.support.verb_runs import VerbLimits, VerbRun, import_modules, run_verbs

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
_LIMITS = VerbLimits(wall_s=180.0)
# OUT stands for the output's path without an ending, FOREIGN for another tool's file.
VERBS = {
    "report": ["report", "CAPTURE"],
    "report --html": ["report", "CAPTURE", "--html", "OUT.html"],
    "export csv": ["export", "CAPTURE", "-o", "OUT.csv"],
    "export jsonl": ["export", "CAPTURE", "-o", "OUT.jsonl"],
    "export parquet": ["export", "CAPTURE", "-o", "OUT.parquet"],
    "export perfetto": ["export", "CAPTURE", "-o", "OUT.pftrace"],
    "export chrome": ["export", "CAPTURE", "--to", "chrome", "-o", "OUT.json.gz"],
    "export inspector": ["export", "CAPTURE", "--to", "inspector", "-o", "OUT"],
    "export callbacks": ["export", "CAPTURE", "--to", "callbacks", "-o", "OUT"],
    "timeline --html": ["timeline", "CAPTURE", "--html", "OUT.html"],
    "pack": ["pack", "CAPTURE", "-o", "OUT.tar.gz"],
    "import": ["import", "FOREIGN", "-o", "OUT"],
    "dashboards": ["dashboards", "-o", "OUT"],
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """Calls of a verb that write, and how it ended where one of them failed."""

    calls: int
    ends: dict[str, str]  # `sentence`, `whole`, or what went wrong; by call and error


def build_library(directory: Path) -> Path:
    """The library that is preloaded."""
    source = ROOT / "tests/support/native/failing_writes.c"
    library = directory / "failing_writes.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


def sweep(
    library: Path, whole: Path, work: Path, verb: str, most: int, errors: tuple[int, ...] = ERRORS
) -> Sweep:
    """Makes calls of a verb fail with each error: all of them, or `most` spread over them, and the
    last but two: outputs come last, and two runs may differ by a call.
    """
    request = json.dumps([str(whole), str(work), verb, most, errors])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.reader_faults", request],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return Sweep(**json.loads(ran.stdout))


def _run(whole: Path, work: Path, words: list[str], variables: dict[str, str]) -> VerbRun:
    """Runs a verb on a fresh copy of the capture."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copytree(whole, work / "capture")
    (work / "1.csv").write_text(foreign_samples.NCCLSEE)
    places = {"CAPTURE": "capture", "OUT": "out", "FOREIGN": "1.csv"}
    filled = list(words)
    for name, place in places.items():
        filled = [word.replace(name, str(work / place)) for word in filled]
    variables = variables | {"FAIL_BELOW": str(work)}  # this process writes nothing there now
    os.environ.update(variables)
    try:
        return run_verbs([filled], _LIMITS)[0]
    finally:
        for name in variables:
            del os.environ[name]


def _end(run: VerbRun, work: Path, words: list[str]) -> str:
    """How a verb ended of which one call failed."""
    if run.problem in ("traceback", "mistake"):
        return f"{run.problem}: {run.errors.strip().splitlines()[-1]}"
    if run.problem:
        return run.problem
    outputs = [path.name for path in work.iterdir() if path.name not in ("capture", "1.csv")]
    wanted = int(any("OUT" in word for word in words))
    if words[0] == "dashboards":  # writes several files, each of them whole
        outputs = [path.name for path in (work / "out").glob("*") if not _is_dashboard(path)]
        wanted = 0
    if run.code == 0:
        return "whole" if len(outputs) == wanted else f"outputs {outputs}"
    if not run.errors.startswith("ncclscope: ") or outputs:
        return f"left {outputs}: {run.errors.strip()[-200:]}"
    return "sentence"


def _is_dashboard(path: Path) -> bool:
    whole = FOLDER / path.name
    return whole.exists() and whole.read_bytes() == path.read_bytes()


def _main(whole: Path, work: Path, verb: str, most: int, errors: list[int]) -> None:
    words, count = VERBS[verb], work.parent / f"{work.name}.count"
    import_modules()
    count.unlink(missing_ok=True)
    run = _run(whole, work, words, {"FAIL_COUNT": str(count)})
    assert run.code == 0, run.errors
    calls = int(count.read_text()) if count.exists() else 0
    step = max((calls - 1) / max(most - 1, 1), 1.0)
    numbers = sorted({round(1 + step * n) for n in range(min(most, calls))} | {max(calls - 2, 1)})
    ends = {}
    for number in numbers:
        for error in errors:
            variables = {"FAIL_AT": str(number), "FAIL_WITH": str(error)}
            run = _run(whole, work, words, variables)
            ends[f"{number} {errno.errorcode[error]}"] = _end(run, work, words)
    print(json.dumps({"calls": calls, "ends": ends}))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _main(Path(given[0]), Path(given[1]), *given[2:])
