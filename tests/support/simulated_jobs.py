"""Simulated jobs that run while a test looks at them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ncclscope.simulation.scenario import Scenario
from ncclscope.simulation.scenario_lines import scenario_text


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
