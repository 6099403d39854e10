"""Runs all tests in two halves at once.

Tests in real time watch jobs that run: a machine that is busy with other tests makes ranks late and
servers slow, and is then rightly reported. They run one after the other, at the usual priority; the
rest runs beside them and takes only what they leave idle. Even so something else may hold the
machine up, so a test in real time may try three times; pytest reports each.
"""

import os
import subprocess
import sys
import tempfile

from tests.support.marks import REAL_TIME

PYTEST = [sys.executable, "-m", "pytest"]
OTHERS = [*PYTEST, "-n", "3", "--dist", "worksteal", "-m", "not realtime"]
FILES = sorted({"tests/" + key.partition("::")[0] for key in REAL_TIME})
IN_REAL_TIME = [*PYTEST, "-p", "no:xdist", "--reruns", "2", "-m", "realtime", *FILES]


def run_when_idle() -> None:
    """Lets any other process go first, at once; one of low priority would end its slice before."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> int:
    """0 if all tests of both halves pass."""
    with tempfile.TemporaryFile("w+") as printed:
        others = subprocess.Popen(
            OTHERS, stdout=printed, stderr=subprocess.STDOUT, preexec_fn=run_when_idle
        )
        try:
            in_real_time = subprocess.run(IN_REAL_TIME, check=False)
            others.wait()
        finally:
            others.kill()
        printed.seek(0)
        print(printed.read(), flush=True)
    return in_real_time.returncode or others.returncode


if __name__ == "__main__":
    sys.exit(main())
