"""Runs all tests in three lanes at once.

Tests in real time watch jobs that run: a machine that is busy with other tests makes ranks late and
servers slow, and is then rightly reported. Those that measure run one after the other, at the usual
priority. Those that wait for what a job does run two at a time, and give way to them. All others
take only what these leave idle. Even so something else may hold the machine up, so a test in real
time may try three times; pytest reports each. Of the others, a few that failed try once more on the
idle machine: one that passes then watches time, and is named so that it gets its mark. The last
lines name every test that failed.
"""

import json
import os
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
AGAIN = ["--reruns", "2"]
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
OTHERS_LANE = command_of("others", "-n", "3", *BY_FILE, "-m", "not measuring and not waiting")
FAILED_OTHERS_LANE = command_of("others", "-p", "no:xdist", "--last-failed")


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


def try_others_again(code: int) -> int:
    """Runs the others that failed again, on an idle machine, and names those that pass now."""
    failed = failed_tests("others")
    if not 0 < len(failed) <= MOST_TRIED_AGAIN:
        return code
    code = subprocess.run(FAILED_OTHERS_LANE, check=False).returncode
    for test in sorted({*failed} - {*failed_tests("others")}):
        print(f"{test} failed beside other tests and passes alone: tests/support/marks.py needs it")
    return code


def main() -> int:
    """0 if all tests of all lanes pass."""
    for lane in ("measuring", "waiting", "others"):
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
    codes[-1] = try_others_again(codes[-1])
    for lane in ("measuring", "waiting", "others"):
        for test in failed_tests(lane):
            print(f"failed: {test}", flush=True)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
