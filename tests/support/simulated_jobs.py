"""Simulated jobs that run while a test looks at them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ncclscope.simulation.scenario import Scenario, scenario_text

T = TypeVar("T")


@contextmanager
def running(scenario: Scenario, capture: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The job under `ncclscope run`, in a process group of its own; killed at the end."""
    text = capture.parent / f"{capture.name}.scenario"
    text.write_text(scenario_text(scenario))
    command = [sys.executable, "-m", "ncclscope", "run", "-o", str(capture), *options, "--"]
    command += [sys.executable, "-m", "ncclscope.simulation", str(text)]
    log = (capture.parent / f"{capture.name}.log").open("w")
    job = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
    try:
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        log.close()


def eventually(ask: Callable[[], T], seconds: float = 60.0) -> T:
    """The first answer that is true."""
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer or time.monotonic() > end:
            assert answer, f"not within {seconds} s"
            return answer
        time.sleep(0.2)
