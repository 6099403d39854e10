"""Runs all tests in three lanes at once.

Tests in real time watch jobs that run: a machine that is busy with other tests makes ranks late and
servers slow, and is then rightly reported. Those that measure run one after the other, at the usual
priority. Those that wait for what a job does run two at a time, and give way to them. All others
take only what these leave idle. Even so something else may hold the machine up, so a test in real
time may try three times; pytest reports each.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import IO

from tests.support.marks import MEASURING, WAITING

PYTEST = [sys.executable, "-m", "pytest"]
# Tests of a file share what its fixtures make: one worker runs them, in the order of conftest.py.
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
AGAIN = ["--reruns", "2"]
Lane = tuple["subprocess.Popen[bytes]", IO[str]]


def files_of(marks: Mapping[str, str]) -> list[str]:
    """Files and folders with tests of a list of marks."""
    return sorted({"tests/" + key.partition("::")[0] for key in marks})


MEASURING_LANE = [*PYTEST, "-p", "no:xdist", *AGAIN, "-m", "measuring", *files_of(MEASURING)]
WAITING_LANE = [*PYTEST, "-n", "2", *BY_FILE, *AGAIN, "-m", "waiting", *files_of(WAITING)]
OTHERS_LANE = [*PYTEST, "-n", "3", *BY_FILE, "-m", "not measuring and not waiting"]


def give_way() -> None:
    """Lets tests that measure go first."""
    os.nice(5)


def run_when_idle() -> None:
    """Lets any other process go first, at once; one of low priority would end its slice before."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> int:
    """0 if all tests of all lanes pass."""
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
        for lane, printed in reversed(lanes):
            codes.append(lane.wait())
            printed.seek(0)
            print(printed.read(), flush=True)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
