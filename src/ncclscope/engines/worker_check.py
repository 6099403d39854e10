"""Whether the workers of a cluster can do our tasks: have equal versions, and see the capture."""

import platform
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ncclscope._version import __version__
from ncclscope.errors import NcclscopeError
from ncclscope.model.late_files import PATIENCE_S
from ncclscope.private_directory import write_private_text

_PAUSE_S = 0.2
_TOKEN = "cluster-token"
# What to do where a version differs. Ours comes first: an older ncclscope may not say the others.
_SAME = {
    "ncclscope": "Install the same version on both",
    "Python": "Run the command and the workers with the same Python: tasks and answers are pickled",
    "numpy": "Install the same version on both: arrays are pickled",
}
# By whether the model is made in TMPDIR: this user may not write into the capture.
_SHARED = {
    False: "Captures must be on a file system that workers share",
    True: "Set TMPDIR to a directory on a file system that workers share, or leave --on out",
}


def check_workers(client: Any, target: Path) -> int:
    """How many threads the workers have; an error unless they have the versions of this process and
    see the model's folder.
    """
    token = target / _TOKEN
    write_private_text(token, secrets.token_hex(16))
    try:
        answers = client.run(_look, str(token), PATIENCE_S, on_error="return")
        expected = token.read_text()
    finally:
        token.unlink()
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            message = f"worker {worker} cannot run ncclscope: {answer}"
            hint = f"Install ncclscope {__version__} for the Python that runs the workers"
            raise NcclscopeError(message, hint)
        versions, seen = answer
        check_versions(worker, versions, versions_here())
        if seen != expected:
            message = f"worker {worker} does not see {target.parent}"
            raise NcclscopeError(message, _SHARED[target.parent == Path(tempfile.gettempdir())])
    return sum(client.nthreads().values())


def check_versions(worker: str, versions: Any, own: Mapping[str, str]) -> None:
    """Raises a NcclscopeError unless a worker's versions are those of the command, `own`."""
    # An older ncclscope answers with its version alone.
    theirs = versions if isinstance(versions, dict) else {"ncclscope": versions}
    for name, hint in _SAME.items():
        if theirs.get(name) != own[name]:
            message = f"worker {worker} has {name} {theirs.get(name)}, this is {own[name]}"
            raise NcclscopeError(message, hint)


def versions_here() -> dict[str, str]:
    """What must be equal. Of Python and numpy two numbers: with these pickles change."""
    return {
        "ncclscope": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": ".".join(np.__version__.split(".")[:2]),
    }


# ---- on the workers ----
def _look(token: str, waits_s: float) -> tuple[dict[str, str], str]:
    """The versions, and what is in a file that was just written; "" where it is not there in time.
    A folder that exists may show its files late.
    """
    until = time.monotonic() + waits_s
    while True:
        try:
            return versions_here(), Path(token).read_text()
        except OSError:
            if time.monotonic() > until or not Path(token).parents[1].is_dir():
                return versions_here(), ""
            time.sleep(_PAUSE_S)
