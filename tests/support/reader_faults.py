"""Verbs of which one call that writes fails."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
_LIMIT_S = 180
# OUT stands for the output's path without an ending.
VERBS = {
    "report": ["report", "CAPTURE"],
    "report --html": ["report", "CAPTURE", "--html", "OUT.html"],
    "export csv": ["export", "CAPTURE", "-o", "OUT.csv"],
    "export parquet": ["export", "CAPTURE", "-o", "OUT.parquet"],
    "export perfetto": ["export", "CAPTURE", "-o", "OUT.pftrace"],
    "timeline --html": ["timeline", "CAPTURE", "--html", "OUT.html"],
    "pack": ["pack", "CAPTURE", "-o", "OUT.tar.gz"],
}


def build_library(directory: Path) -> Path:
    """The library that is preloaded."""
    source = ROOT / "tests/support/native/failing_writes.c"
    library = directory / "failing_writes.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


def _run(
    library: Path, whole: Path, work: Path, words: list[str], variables: dict[str, str]
) -> tuple[subprocess.CompletedProcess[str] | None, Path]:
    """Runs a verb on a fresh copy of the capture; None where it took too long."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copytree(whole, work / "capture")
    filled = [
        word.replace("CAPTURE", str(work / "capture")).replace("OUT", str(work / "out"))
        for word in words
    ]
    environment = os.environ | variables | {"LD_PRELOAD": str(library), "FAIL_BELOW": str(work)}
    command = [sys.executable, "-m", "ncclscope", *filled]
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, work
    return ran, work


def writes_of(library: Path, whole: Path, work: Path, words: list[str]) -> int:
    """How many calls of a verb write below its directory."""
    count = work.parent / "count"
    count.unlink(missing_ok=True)
    ran, _ = _run(library, whole, work, words, {"FAIL_COUNT": str(count)})
    assert ran is not None
    assert ran.returncode == 0, ran.stderr
    return max(int(line) for line in count.read_text().split())


def run_with_fault(
    library: Path, whole: Path, work: Path, words: list[str], number: int, error: int
) -> str:
    """How a verb ended of which one call failed: `sentence`, `whole`, or what went wrong."""
    variables = {"FAIL_AT": str(number), "FAIL_WITH": str(error)}
    ran, work = _run(library, whole, work, words, variables)
    if ran is None:
        return "hang"
    if "Traceback" in ran.stderr or "Exception ignored" in ran.stderr:
        return f"traceback: {ran.stderr.strip().splitlines()[-1]}"
    if ran.returncode < 0:
        return f"signal {-ran.returncode}"
    outputs = [path.name for path in work.iterdir() if path.name != "capture"]
    if ran.returncode == 0:
        wanted = any("OUT" in word for word in words)
        return "whole" if len(outputs) == wanted else f"outputs {outputs}"
    if not ran.stderr.startswith("ncclscope: ") or outputs:
        return f"left {outputs}: {ran.stderr.strip()[-200:]}"
    return "sentence"
