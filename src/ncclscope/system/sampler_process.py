"""The sampler's process as `ncclscope run --system` sees it: started beside the job, gone with it.

A process of its own, so that a driver that hangs does not hang `run`. It ends when its standard
input does, however `run` ended.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

_PATIENCE_S = 1.0  # for the last sample, when the job is over


def start_beside(capture: Path, interval_s: float, root: Path) -> "subprocess.Popen[bytes] | None":
    """Starts the sampler; None, and a word about it, where that fails."""
    words = [sys.executable, "-m", "ncclscope.system"]
    words += [os.path.abspath(capture), str(interval_s), os.path.abspath(root)]
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",  # or the job's own modules would come before Python's
            start_new_session=True,  # Ctrl-C is for the job
        )
    except OSError as error:
        print(f"ncclscope: no system counters: {error.strerror}", file=sys.stderr)
        return None


def stop_beside(sampler: "subprocess.Popen[bytes] | None") -> str:
    """Lets the sampler take its last sample, and leaves at the latest after a second. What it did,
    in words; "" where another one sampled.
    """
    if sampler is None:
        return ""
    try:
        said, _ = sampler.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:  # a driver that hangs
        sampler.kill()
        return "system counters: the sampler did not answer"
    if sampler.returncode:
        return f"system counters: the sampler ended with {_in_words(sampler.returncode)}"
    return said.decode("utf-8", "replace").strip()


def _in_words(returncode: int) -> str:
    names = {-one: one.name for one in signal.Signals}
    return names.get(returncode, f"exit code {returncode}")
