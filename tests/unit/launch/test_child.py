"""Signals that come when the job has ended."""

import subprocess
import sys

import pytest

# Below nohup, signals are ignored from the start.
PROGRAM = """
import os, signal, sys
from ncclscope.launch.child import exit_code_kept
number = getattr(signal, sys.argv[1])
if sys.argv[3:] != ["ignored"]:
    signal.signal(number, signal.SIG_DFL)
with exit_code_kept(7):
    if sys.argv[2] == "during":
        os.kill(os.getpid(), number)
        sys.exit(1)
os.kill(os.getpid(), number)
sys.exit(7)
"""


@pytest.mark.parametrize("when", ["during", "after"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_do_not_change_the_exit_code_of_a_job_that_has_ended(name: str, when: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, name, when], timeout=60, check=False)
    assert ran.returncode == 7


def test_an_ignored_signal_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    program = ignoring + PROGRAM.replace("sys.exit(1)", "sys.exit(8)")
    command = [sys.executable, "-c", program, "SIGHUP", "during", "ignored"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 8
