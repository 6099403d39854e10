"""Captures into which the user of the command may not write: there is no place for a model that workers
see, unless TMPDIR is one.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dask_clusters import cluster_of_processes
from tests.support.mixed_captures import attempts
from tests.support.packages import needs

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
pytestmark = [
    needs("distributed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]


@pytest.fixture
def capture() -> Iterator[Path]:
    """A capture that all may read, beside a directory in which all may write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        attempts(Path(name, "capture"))
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        Path(name, "shared").mkdir()
        Path(name, "shared").chmod(0o777)
        yield Path(name, "capture")


def as_nobody(capture: Path, on: str, tmpdir: Path | None) -> subprocess.CompletedProcess[str]:
    """A report by a user who may not write into the capture."""
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    if tmpdir:
        environment["TMPDIR"] = str(tmpdir)
    words = [sys.executable, "-m", "ncclscope", "report", "--json", "--on", on, str(capture)]
    answer = subprocess.run(
        [*AS_NOBODY, *words], env=environment, capture_output=True, text=True, check=False
    )
    if "No module named" in answer.stderr:
        pytest.skip("this checkout is private, too")
    return answer


def test_what_to_do_is_said_before_anything_is_read(capture: Path) -> None:
    answer = as_nobody(capture, "tcp://127.0.0.1:9", None)
    assert answer.returncode == 1
    assert answer.stderr == (
        f"ncclscope: cannot have a cluster make the model of {capture}: this user may not write "
        "there. Set TMPDIR to a directory that workers see, or leave --on out\n"
    )


def test_the_model_is_made_in_a_directory_that_workers_see(capture: Path) -> None:
    shared = capture.parent / "shared"
    expected = as_nobody(capture, "here", None)  # skips the test where nobody can run Python
    with cluster_of_processes(shared, 1, user=AS_NOBODY) as (on, _):
        answer = as_nobody(capture, on, shared)
    assert answer.returncode == 0, answer.stderr
    assert "was not saved: this user may not write there" in answer.stderr
    assert answer.stdout == expected.stdout != ""
    assert not (capture / "model").exists()
    assert not list(shared.glob(".model-*"))
