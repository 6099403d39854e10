"""Runs all tests in three lanes at once.

Tests in real time watch jobs that run: a machine that is busy with other tests makes ranks late and
servers slow, and is then rightly reported. Those that measure run one after the other, at the usual
priority. Those that wait for what a job does run two at a time, and give way to them. All others
take only what these leave idle. Even so something else may hold the machine up, so a test in real
time may try three times; pytest reports each. These tries share the job that a fixture of the file
ran, and the busy machine. So a few tests of any lane that failed try once more, alone, with jobs of
their own: what passes only then is named. One of the others that does so watches time, and needs
its mark. The last lines name every test that failed.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tests.support.marks import MEASURING, WAITING

PYTEST = [sys.executable, "-m", "pytest"]
# Tests of a file share what its fixtures make: one worker runs them, in the order of conftest.py.
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
AGAIN = ["--reruns", "2", "-raR"]  # names those that it tried again
# More failures than these are no matter of a busy machine.
MOST_TRIED_AGAIN = 5
Lane = tuple["subprocess.Popen[bytes]", IO[str]]


def files_of(marks: Mapping[str, str]) -> list[str]:
    """Files and folders with tests of a list of marks."""
    return sorted({"tests/" + key.partition("::")[0] for key in marks})


def cache_of(lane: str) -> Path:
    """Folder in which pytest keeps which tests of a lane failed."""
    return Path("build", "pytest", lane)


def command_of(lane: str, *options: str) -> list[str]:
    """Command that runs a lane's tests."""
    return [*PYTEST, "-o", f"cache_dir={cache_of(lane)}", *options]


MEASURING_LANE = command_of(
    "measuring", "-p", "no:xdist", *AGAIN, "-m", "measuring", *files_of(MEASURING)
)
WAITING_LANE = command_of(
    "waiting", "-n", "2", *BY_FILE, *AGAIN, "-m", "waiting", *files_of(WAITING)
)
# Four, because many tests wait for processes that they start. One process compiles all test files
# before: four at once would each do it, 8 s of CPU in a fresh clone.
COLLECT = command_of("others", "-p", "no:xdist", "-q", "--collect-only")
OTHERS = command_of("others", "-n", "4", *BY_FILE, "-m", "not measuring and not waiting")
OTHERS_LANE = ["sh", "-c", f"{shlex.join(COLLECT)} >/dev/null; exec {shlex.join(OTHERS)}"]
LANES = ("measuring", "waiting", "others")


def give_way() -> None:
    """Lets tests that measure go first."""
    os.nice(5)


def run_when_idle() -> None:
    """Lets any other process go first, at once; one of low priority would end its slice before."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def failed_tests(lane: str) -> list[str]:
    """Tests of a lane that failed when they last ran."""
    path = cache_of(lane) / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def try_again() -> None:
    """Runs what failed again, on an idle machine, and names what passes now."""
    for lane in LANES:
        failed = failed_tests(lane)
        if not failed:
            continue
        subprocess.run(command_of(lane, "-p", "no:xdist", "--last-failed", *failed), check=False)
        for test in sorted({*failed} - {*failed_tests(lane)}):
            needs = ": tests/support/marks.py needs it" if lane == "others" else ""
            print(f"{test} failed beside other tests and passes alone{needs}")


def main() -> int:
    """0 if all tests of all lanes pass."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the packages that tests need are not compiled
    for lane in LANES:
        shutil.rmtree(cache_of(lane), ignore_errors=True)
    with ExitStack() as stack:

        def start(command: list[str], priority: Callable[[], None]) -> Lane:
            printed = stack.enter_context(tempfile.TemporaryFile("w+"))
            lane = subprocess.Popen(
                command, stdout=printed, stderr=subprocess.STDOUT, preexec_fn=priority
            )
            stack.callback(lane.kill)
            return lane, printed

        lanes = [start(OTHERS_LANE, run_when_idle), start(WAITING_LANE, give_way)]
        codes = [subprocess.run(MEASURING_LANE, check=False).returncode]
        for process, printed in reversed(lanes):
            codes.append(process.wait())
            printed.seek(0)
            print(printed.read(), flush=True)
    failed = [len(failed_tests(lane)) for lane in LANES]
    if 0 < sum(failed) <= MOST_TRIED_AGAIN:
        try_again()
        # A lane that failed without a test that did could not run: its code stays.
        codes = [
            len(failed_tests(lane)) if before else code
            for lane, before, code in zip(LANES, failed, codes, strict=True)
        ]
    for lane in LANES:
        for test in failed_tests(lane):
            print(f"failed: {test}", flush=True)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
