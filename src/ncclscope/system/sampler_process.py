"""Starts and stops the sampler's process for `ncclscope run --system`.

It is a process of its own so that a driver that hangs does not hang `run`. It ends when its
standard input does, however `run` ended.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

_LAST_SAMPLE_S = 1.0  # the most that the last sample may take, when the job is over


def start_sampler(capture: Path, interval_s: float, root: Path) -> "subprocess.Popen[bytes] | None":
    """Starts the sampler; prints why and returns None if it cannot be started."""
    command = [sys.executable, "-m", "ncclscope.system"]
    command += [os.path.abspath(capture), str(interval_s), os.path.abspath(root)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",  # Python imports from the working directory first: not the job's modules
            start_new_session=True,  # Ctrl-C is for the job
        )
    except OSError as error:
        print(f"ncclscope: no system counters: {error.strerror}", file=sys.stderr)
        return None


def stop_sampler(sampler: "subprocess.Popen[bytes] | None") -> str:
    """Lets the sampler take its last sample, for at most a second; returns its summary, which is ""
    if another process sampled.
    """
    if sampler is None:
        return ""
    try:
        output, _ = sampler.communicate(timeout=_LAST_SAMPLE_S)
    except subprocess.TimeoutExpired:  # a driver that hangs
        sampler.kill()
        return "system counters: the sampler did not answer"
    if sampler.returncode:
        return f"system counters: the sampler ended with {_exit_cause(sampler.returncode)}"
    return output.decode("utf-8", "replace").strip()


def _exit_cause(returncode: int) -> str:
    names = {-number: number.name for number in signal.Signals}
    return names.get(returncode, f"exit code {returncode}")
