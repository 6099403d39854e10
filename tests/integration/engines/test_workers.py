"""Workers that cannot do our tasks, and the limit of their memory."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from ncclscope.arrays.memory_limit import VARIABLE, database_limit_bytes, memory_limit_bytes
from ncclscope.cli import main
from ncclscope.engines import worker_check
from ncclscope.engines.dask_cluster import cluster_engine
from ncclscope.errors import NcclscopeError
from ncclscope.model.build import open_model
from tests.support.dask_clusters import (
    OLDER_PACKAGE,
    START_S,
    WITHOUT_PACKAGE,
    cluster_of_processes,
    local_cluster,
    start_worker,
)
from tests.support.mixed_captures import attempts
from tests.support.packages import needs
from tests.support.stage_engines import saved_model
from tests.support.stage_faults import fault_in, hold
from tests.support.waiting import eventually

pytestmark = needs("distributed")
LIMIT_BYTES, TOO_MUCH = 2 << 30, 3 << 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as local:
        yield local


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    attempts(tmp_path / "capture")
    return tmp_path / "capture"


def nothing_of_a_model(capture: Path) -> bool:
    return not [path for path in capture.iterdir() if "model" in path.name]


@pytest.mark.parametrize("name", ["ncclscope", "Python", "numpy"])
def test_workers_with_another_version_are_refused(
    name: str,
    cluster: Any,
    capture: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = worker_check.versions_here()
    monkeypatch.setattr(worker_check, "versions_here", lambda: theirs | {name: "0.7"})
    assert main(["report", "--on", cluster.scheduler_address, str(capture)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ncclscope: worker tcp://")
    does = "Run the command" if name == "Python" else "Install the same version"
    assert f" has {name} {theirs[name]}, this is 0.7. {does}" in said
    assert nothing_of_a_model(capture)


def test_workers_without_our_package_are_refused(capture: Path, tmp_path: Path) -> None:
    """Another command then reads the capture on one machine."""
    with cluster_of_processes(tmp_path, 1, WITHOUT_PACKAGE) as (on, _):
        words = [sys.executable, "-m", "ncclscope", "report", "--on", on, str(capture)]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    said = answer.stderr.splitlines()[-1]
    assert said.startswith("ncclscope: worker tcp://")
    assert "cannot run ncclscope: ModuleNotFoundError(" in said
    assert ". Install ncclscope " in said
    assert "Traceback" not in answer.stderr
    assert nothing_of_a_model(capture)
    assert main(["report", str(capture)]) == 0


def report_while_another_joins(capture: Path, folder: Path, worker: str) -> int:
    """The exit code of a report on one worker, held in a task until another one has joined."""
    marker, until = folder / "held", folder / "joined"
    with cluster_of_processes(folder, 1) as (on, processes):
        joining = Thread(target=_join, args=(on, processes, worker, marker, until))
        joining.start()
        with fault_in("_decode", partial(hold, until), marker):
            code = main(["report", "--on", on, str(capture)])
        joining.join()
    return code


def _join(on: str, processes: list[Any], worker: str, marker: Path, until: Path) -> None:
    """Starts another worker when one is held, and lets that go on."""
    import distributed

    file = Path(on.removeprefix("file:"))
    eventually(marker.exists, START_S)
    processes.append(start_worker(file, worker))
    with distributed.Client(scheduler_file=str(file)) as client:
        client.wait_for_workers(2, timeout=START_S)
    until.touch()


def test_a_worker_with_another_version_that_joins_later_is_refused(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_while_another_joins(capture, tmp_path, OLDER_PACKAGE) == 1
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    said, own = errors.splitlines()[-1], worker_check.versions_here()["ncclscope"]
    assert said.startswith("ncclscope: worker ")
    assert f" has ncclscope 0.0.1, this is {own}. Install the same version on both" in said
    assert not (capture / "model").exists()
    assert main(["report", str(capture)]) == 0


def test_a_worker_without_our_package_that_joins_later_does_nothing(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends when it gets a task, and the other one does that."""
    assert report_while_another_joins(capture, tmp_path, WITHOUT_PACKAGE) == 0
    assert "Traceback" not in capsys.readouterr().err
    saved = saved_model(capture)
    shutil.rmtree(capture / "model")
    open_model(capture)
    assert saved == saved_model(capture)


# ---- a limit of memory ----
def _limits(_: int) -> tuple[int | None, int | None]:
    return memory_limit_bytes(), database_limit_bytes()


def _take(size_bytes: int) -> int:
    return len(np.empty(size_bytes, np.uint8))


def take_too_much(ask: Any) -> Any:
    """A task that needs more than the limit."""
    _take(TOO_MUCH)
    return ask()


def test_workers_keep_the_limit_of_the_command(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And have none any more for a command without one."""
    engine_of = partial(cluster_engine, cluster.scheduler_address, [], tmp_path / "model", print)
    (tmp_path / "model").mkdir()
    monkeypatch.setenv(VARIABLE, str(LIMIT_BYTES))
    with engine_of() as engine:
        assert engine.map(_limits, [0]) == [(LIMIT_BYTES, LIMIT_BYTES // 2)]
        with pytest.raises(NcclscopeError, match=r"a worker has not enough memory\. Raise"):
            engine.map(_take, [TOO_MUCH])
        assert engine.map(_take, [1 << 20]) == [1 << 20]
    monkeypatch.delenv(VARIABLE)
    with engine_of() as engine:
        assert engine.map(_limits, [0]) == [(None, None)]
        assert engine.map(_take, [TOO_MUCH]) == [TOO_MUCH]


@pytest.mark.parametrize("stage", ["_decode", "_write", "GatherStates", "merge_instances"])
def test_a_worker_that_needs_too_much_is_a_sentence(
    stage: str,
    cluster: Any,
    capture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every way in which tasks are started; the next command goes on."""
    engine_of = partial(cluster_engine, cluster.scheduler_address, tell=lambda _: None)
    monkeypatch.setenv(VARIABLE, str(LIMIT_BYTES))
    with (
        fault_in(stage, take_too_much, tmp_path / "met"),
        pytest.raises(NcclscopeError, match="a worker has not enough memory"),
    ):
        open_model(capture, engine_of=engine_of)
    assert (tmp_path / "met").exists()
    assert not (capture / "model").exists()
    open_model(capture, engine_of=engine_of)
    assert saved_model(capture)["rows"]["operations"] > 0
