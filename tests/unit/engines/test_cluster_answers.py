"""What a cluster that cannot answer is called."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncclscope.engines import worker_check
from ncclscope.engines.cluster_answers import Answers
from ncclscope.engines.worker_check import check_workers
from ncclscope.errors import NcclscopeError
from tests.support.packages import needs

WORKER = "tcp://192.0.2.7:1"


class Cluster:
    """A client of a cluster with one worker."""

    def __init__(self, look: Callable[[Callable[..., Any], str, float], Any]) -> None:
        self._look = look

    def run(self, do: Callable[..., Any], token: str, waits_s: float, on_error: str) -> Any:
        assert on_error == "return"
        return {WORKER: self._look(do, token, waits_s)}

    def nthreads(self) -> dict[str, int]:
        return {WORKER: 3}


def sees(do: Callable[..., Any], token: str, waits_s: float) -> Any:
    return do(token, waits_s)


def lacks_ncclscope(*_: Any) -> Any:
    return ModuleNotFoundError("No module named 'ncclscope'")


def sees_nothing(*_: Any) -> Any:
    return worker_check.versions_here(), ""


def fails() -> Any:
    raise AttributeError("Can't get attribute '_Limited'")


@needs("distributed")
def test_an_error_that_nobody_knows_has_workers_looked_at_again(tmp_path: Path) -> None:
    """They may have joined since the first time."""
    with pytest.raises(NcclscopeError, match=rf"worker {WORKER} cannot run ncclscope: No module"):
        Answers(Cluster(lacks_ncclscope), "tcp://s", tmp_path).of(fails)
    with pytest.raises(AttributeError, match="_Limited"):
        Answers(Cluster(sees), "tcp://s", tmp_path).of(fails)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_workers_do_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is about the capture, or about TMPDIR where the model is made there."""
    assert check_workers(Cluster(sees), tmp_path) == 3
    with pytest.raises(NcclscopeError, match=rf"{WORKER} does not see .*\. Captures must be on"):
        check_workers(Cluster(sees_nothing), tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path.parent))
    with pytest.raises(NcclscopeError, match=rf"{WORKER} does not see .*\. Set TMPDIR to"):
        check_workers(Cluster(sees_nothing), tmp_path)
