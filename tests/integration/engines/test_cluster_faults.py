"""Bad luck in every stage on a Dask cluster: the answer is right, or there is none, and the next
command goes on.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import waiting_account
from ncclscope.analysis.waiting.engine_tasks import tasks_on
from ncclscope.cli import main
from ncclscope.engines.dask_cluster import cluster_engine
from ncclscope.model.build import open_model
from tests.support.dask_clusters import cluster_of_processes, local_cluster
from tests.support.dataset_contents import dataset_in
from tests.support.mixed_captures import MIXED, attempts
from tests.support.packages import needs
from tests.support.paths import ROOT
from tests.support.stage_engines import saved_model
from tests.support.stage_faults import (
    ANSWERING,
    IN_WINDOWS,
    KILLED_IN,
    LOST,
    die,
    fault_in,
    fill_disk,
    stages_seen,
)
from tests.support.waiting import eventually

pytestmark = needs("distributed")
COMES_BACK_S = 30
# Stages of one command: of those that make a model some that are far from each other.
BUILDING = [stage for stage in KILLED_IN if KILLED_IN[stage] == LOST and stage not in ANSWERING]
OTHERS = {KILLED_IN[stage]: list[str]() for stage in KILLED_IN if KILLED_IN[stage] != LOST}
for stage, needed in KILLED_IN.items():
    OTHERS.get(needed, []).append(stage)
TOGETHER = [*(BUILDING[first::6] for first in range(6)), *OTHERS.values(), ANSWERING]
# `report --on` whose first task of a stage waits for a file.
HELD = """
import sys
from functools import partial
from pathlib import Path
import ncclscope.analysis.report_stage as report_stage
from ncclscope.cli import main
from tests.support.stage_faults import fault_in, hold
stage, marker, until, *words = sys.argv[1:]
report_stage.MOST_HERE = 0
sys.argv[1:] = words
with fault_in(stage, partial(hold, Path(until)), Path(marker)):
    sys.exit(main())
"""


class Clusters:
    """A cluster with two workers, for one test after the other. On a busy machine Dask may give up
    to start a worker again that was killed: then the next test has a new cluster.
    """

    def __init__(self) -> None:
        self._stack, self._local = ExitStack(), None

    def whole(self) -> Any:
        """One that has all its workers."""
        if self._local is None or not self._comes_back():
            self._stack.close()
            self._local = self._stack.enter_context(local_cluster(many_deaths=True))
        return self._local

    def _comes_back(self) -> bool:
        until = time.monotonic() + COMES_BACK_S
        while len(self._local.scheduler.workers) < 2:
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        """Ends it."""
        self._stack.close()


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    made = Clusters()
    yield made
    made.close()


@pytest.fixture
def cluster(clusters: Clusters) -> Any:
    return clusters.whole()


@pytest.fixture(autouse=True)
def all_runs_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers sum up operations."""
    monkeypatch.setattr("ncclscope.analysis.report_stage.MOST_HERE", 0)


def report_of(capture: Path, on: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report's JSON without the capture's name."""
    assert main(["report", "--json", "--on", on, str(capture)]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer | {"capture": ""}


Expected = Callable[[str], tuple[Path, Any, Any]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """A capture of the mixed ones without a model, and one machine's model and report of it."""

    @cache
    def make(name: str) -> tuple[Path, Any, Any]:
        folder = tmp_path_factory.mktemp("expected")
        MIXED[name](folder / "raw")
        shutil.copytree(folder / "raw", folder / "here")
        words = [sys.executable, "-m", "ncclscope", "report", "--json", folder / "here"]
        report = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        return folder / "raw", saved_model(folder / "here"), report | {"capture": ""}

    return make


def no_model_is_left(capture: Path) -> bool:
    """Whether nothing counts as a model, nor as a part of one."""
    return not [path for path in capture.iterdir() if "model" in path.name]


@pytest.mark.parametrize("stages", TOGETHER, ids=" ".join)
def test_a_worker_is_killed_in_every_stage(
    stages: list[str],
    cluster: Any,
    expected: Expected,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half of what its task writes is written. Another worker does all of it."""
    raw, model, report = expected(KILLED_IN[stages[0]])
    capture, on = tmp_path / "capture", cluster.scheduler_address
    shutil.copytree(raw, capture)
    with ExitStack() as faults:
        for stage in stages:
            faults.enter_context(fault_in(stage, die, tmp_path / stage))
        if stages == ANSWERING:
            assert report_of(capture, on, capsys) == report
        else:
            open_model(capture, engine_of=partial(cluster_engine, on, tell=lambda _: None))
    assert [stage for stage in stages if not (tmp_path / stage).exists()] == []
    assert saved_model(capture) == model
    assert not list(capture.glob(".model-*"))


def test_a_worker_is_killed_in_windows_of_the_account(cluster: Any, tmp_path: Path) -> None:
    attempts(tmp_path / "capture")
    model = open_model(tmp_path / "capture")
    account = partial(waiting_account, model, Selection(), most_at_once=100)
    answer, on = account(), cluster.scheduler_address
    folder = tmp_path / "capture" / "model"
    with cluster_engine(on, [], folder, print) as engine, stages_seen() as seen:
        assert account(tasks=tasks_on(engine, model)) == answer
        stages = [name for name in dict.fromkeys(seen) if name != "_call"]
        for stage in stages:
            with fault_in(stage, die, tmp_path / stage):
                assert account(tasks=tasks_on(engine, model)) == answer, stage
            assert (tmp_path / stage).exists()
    assert sorted(stages) == sorted(IN_WINDOWS)


def test_a_worker_is_killed_while_it_decodes(
    cluster: Any, expected: Expected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`decode --on`: its files are written, but not the one that makes them count."""
    raw, _, report = expected("2.28.9-v5-4ranks")
    capture, marker, on = tmp_path / "capture", tmp_path / "died", cluster.scheduler_address
    shutil.copytree(raw, capture)
    with fault_in("_decode_folder", die, marker):
        assert main(["decode", "--remove-raw", "--on", on, str(capture)]) == 0
    assert marker.exists()
    assert "decoded: 4 processes" in capsys.readouterr().out
    assert not list(capture.glob("*/log.*"))
    assert report_of(capture, "here", capsys) == report


def test_a_worker_is_killed_while_it_writes_a_dataset(
    cluster: Any, expected: Expected, tmp_path: Path
) -> None:
    """Its file has no name yet. Another worker writes all files of the node, and nothing else is left."""
    capture, marker, on = tmp_path / "capture", tmp_path / "died", cluster.scheduler_address
    shutil.copytree(expected("attempts")[0], capture)
    words = ["export", "--to", "parquet", str(capture)]
    assert main([*words, "-o", str(tmp_path / "here")]) == 0
    with fault_in("WriteNode", die, marker):
        assert main([*words, "-o", str(tmp_path / "there"), "--on", on]) == 0
    assert marker.exists()
    assert dataset_in(tmp_path / "there") == dataset_in(tmp_path / "here")
    assert not list(capture.glob(".model-*"))


@pytest.mark.parametrize("stage", ["_write", "MoveTimes", "SetWaits"])
def test_a_disk_is_full_where_a_worker_writes(
    stage: str,
    cluster: Any,
    expected: Expected,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence and no model; the next command goes on with what was decoded, and its worker that
    checks this dies.
    """
    raw, model, report = expected(LOST)
    capture, marker, on = tmp_path / "capture", tmp_path / "full", cluster.scheduler_address
    shutil.copytree(raw, capture)
    with fault_in(stage, fill_disk, marker):
        assert main(["report", "--on", on, str(capture)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"ncclscope: cannot make the model of {capture}: File too large")
    assert not (capture / "model").exists()
    with fault_in("_is_there", die, tmp_path / "died"), stages_seen() as seen:
        assert report_of(capture, on, capsys) == report
    if stage != "_write":
        assert (tmp_path / "died").exists()
        assert "_decode" not in seen
    assert saved_model(capture) == model
    assert not list(capture.glob(".model-*"))


@pytest.mark.parametrize("stage", ["_decode", "SumOperations", "GatherStates"])
def test_an_interrupted_command_ends_and_cancels_its_tasks(
    stage: str, cluster: Any, expected: Expected, tmp_path: Path
) -> None:
    """While a worker is in the midst of a task: what that goes on to write counts nowhere."""
    capture, marker, until = tmp_path / "capture", tmp_path / "held", tmp_path / "until"
    shutil.copytree(expected(LOST)[0], capture)
    on = cluster.scheduler_address
    command = [sys.executable, "-c", HELD, stage, marker, until, "report", "--on", on, capture]
    try:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as held:
            eventually(lambda: marker.exists() or held.poll() is not None)
            held.send_signal(signal.SIGINT)
            _, errors = held.communicate(timeout=120)
        eventually(lambda: not cluster.scheduler.tasks)
    finally:
        until.touch()
    assert held.returncode == 130, errors
    assert "Traceback" not in errors
    eventually(lambda: not any(_running(cluster)))
    if stage == "SumOperations":  # the model was there before
        assert saved_model(capture) == expected(LOST)[1]
        assert not (capture / "model" / "sums.json").exists()
        assert not list(capture.glob(".model-*"))
    else:
        assert no_model_is_left(capture)


def _running(cluster: Any) -> list[int]:
    """How many tasks each worker is in the midst of."""
    import distributed

    with distributed.Client(cluster) as client:
        return list(client.run(_tasks_of).values())


def _tasks_of(dask_worker: Any) -> int:
    return len(dask_worker.state.executing) + len(dask_worker.state.long_running)


@pytest.mark.parametrize("stage", ["_write", "SumOperations"])
def test_the_scheduler_is_killed(
    stage: str,
    expected: Expected,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One sentence; the next command goes on with what was decoded."""
    raw, model, report = expected(LOST)
    capture, marker = tmp_path / "capture", tmp_path / "killed"
    shutil.copytree(raw, capture)
    with cluster_of_processes(tmp_path, workers=1) as (on, processes):
        kill = partial(_kill_and_wait, processes[0].pid)
        with fault_in(stage, kill, marker):
            assert main(["report", "--on", on, str(capture)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"ncclscope: cannot read the capture on {on}: its scheduler is gone. Run it again, or leave "
        "--on out"
    )
    assert (capture / "model").exists() == (stage == "SumOperations")
    assert report_of(capture, "here", capsys) == report
    assert saved_model(capture) == model
    assert not list(capture.glob(".model-*"))


def _kill_and_wait(pid: int, ask: Callable[[], Any]) -> Any:
    """Kills another process in the midst of a task."""
    os.kill(pid, signal.SIGKILL)
    return ask()


def test_a_cluster_without_workers_is_waited_for_no_longer(
    expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Dask itself would wait for a worker for ever."""
    monkeypatch.setattr("ncclscope.engines.cluster_answers._LOOK_S", 0.5)
    monkeypatch.setattr("ncclscope.engines.cluster_answers._MOST_ALONE_S", 2)
    capture = tmp_path / "capture"
    shutil.copytree(expected("attempts")[0], capture)
    died = fault_in("GatherStates", die, tmp_path / "died")
    with cluster_of_processes(tmp_path, workers=1) as (on, _), died:
        assert main(["report", "--on", on, str(capture)]) == 1
    assert "it has no workers for 2 s. Start workers and run it again" in capsys.readouterr().err
    assert not (capture / "model").exists()
    open_model(capture)
    assert saved_model(capture) == expected("attempts")[1]
