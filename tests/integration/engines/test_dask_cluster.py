"""A capture that a cluster decodes: every value is that of one machine, whatever dies meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.analysis.selection import Selection
from ncclscope.analysis.waiting.account import waiting_account
from ncclscope.analysis.waiting.engine_tasks import tasks_on
from ncclscope.cli import main
from ncclscope.engines.dask_cluster import ClusterEngine, cluster_engine
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.build import open_model
from ncclscope.model.model import Progress
from ncclscope.model.stages import GatherStates, SetWaits
from tests.support.packages import needs
from tests.support.paths import ROOT
from tests.support.player import TRANSCRIPTS
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic

pytestmark = needs("distributed")
PATIENT = {
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
}


def _attempts(capture: Path) -> None:
    """Two attempts on two nodes, all sorts of calls, a process that is missing, and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=60, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}),
    )  # fmt: skip
    synthetic(capture, spec)


MADE: dict[str, Callable[[Path], object]] = {"attempts": _attempts} | {
    name: partial(from_transcript, TRANSCRIPTS / name) for name in ("2.28.9-v5-3ranks-hang",)
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler and two worker processes, which are started again when they die."""
    import dask
    import distributed  # noqa: F401  # its settings have to be there, else `set` takes them away

    with dask.config.set(PATIENT), _started() as local:
        yield local


def _started() -> Any:
    """A cluster on ports of its own. Dask gives a worker that starts on a busy machine little time,
    and then raises a RuntimeError: it is started again.
    """
    import distributed

    for last in (False, False, True):
        try:
            return distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
            )
        except RuntimeError:
            if last:
                raise
    raise AssertionError


def manifest(
    capture: Path, on: str | None, progress: Progress | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The saved model with checksums of all columns, and the lines about it."""
    messages: list[str] = []
    if on is None:
        open_model(capture, progress)
    else:
        open_model(capture, progress, partial(cluster_engine, on, tell=messages.append))
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    return {name: saved[name] for name in saved if name not in ("seal", "stamps")}, messages


def two_copies(make: Callable[[Path], object], tmp_path: Path) -> tuple[Path, Path]:
    make(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    return tmp_path / "here", tmp_path / "there"


@pytest.mark.parametrize("name", MADE)
def test_every_value_is_that_of_one_machine(name: str, cluster: Any, tmp_path: Path) -> None:
    here, there = two_copies(MADE[name], tmp_path)
    expected, _ = manifest(here, None)
    answer, messages = manifest(there, cluster.scheduler_address)
    assert answer == expected
    assert expected["rows"]["operations"] > 0
    assert messages[0].startswith(f"decoded on {cluster.scheduler_address}: ")


def test_workers_that_are_killed_change_nothing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While processes are decoded, states are gathered, and waits are set."""
    import distributed

    here, there = two_copies(_attempts, tmp_path)
    expected, _ = manifest(here, None)
    killed: list[str] = []

    def kill(stage: str) -> None:
        with distributed.Client(cluster) as client:
            pid = next(iter(client.run(os.getpid).values()))
        killed.append(stage)
        os.kill(pid, signal.SIGKILL)

    submit_each = ClusterEngine._submit_each

    def submit_and_kill(engine: ClusterEngine, do: Any, items: Any) -> list[Any]:
        futures = submit_each(engine, do, items)
        if type(do) in (GatherStates, SetWaits):
            kill(type(do).__name__)
        return futures

    monkeypatch.setattr(ClusterEngine, "_submit_each", submit_and_kill)

    def kill_once(done: int, _: int, stage: str = "") -> None:
        if done == 7 and not stage:
            kill("decode")

    answer, _ = manifest(there, cluster.scheduler_address, kill_once)
    assert killed == ["decode", "GatherStates", "SetWaits"]
    assert answer == expected


def test_reports_are_equal(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = two_copies(_attempts, tmp_path)
    answers = []
    for path, on in ((here, "here"), (there, cluster.scheduler_address)):
        assert main(["report", "--json", "--on", on, str(path)]) == 0
        answer = json.loads(capsys.readouterr().out)
        del answer["capture"]
        answers.append(answer)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "options", [(), ("--by", "rank,size"), ("--op", "AllReduce", "--rank", "1")]
)
def test_sums_of_long_runs_are_equal(
    options: tuple[str, ...],
    cluster: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers sum up operations, one of them is killed meanwhile, and the command gets sums."""
    import distributed

    _attempts(tmp_path / "capture")
    words = ["report", "--json", str(tmp_path / "capture"), *options]
    assert main(words) == 0
    expected = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("ncclscope.analysis.report_stage.MOST_HERE", 0)
    submit_each, stages = ClusterEngine._submit_each, list[str]()

    def submit_and_kill(engine: ClusterEngine, do: Any, items: Any) -> list[Any]:
        futures = submit_each(engine, do, items)
        stages.append(getattr(do, "__name__", type(do).__name__))
        if stages[-1] == "SumOperations":
            with distributed.Client(cluster) as client:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return futures

    monkeypatch.setattr(ClusterEngine, "_submit_each", submit_and_kill)
    assert main([*words, "--on", cluster.scheduler_address]) == 0
    answer = capsys.readouterr()
    assert json.loads(answer.out) == expected
    assert stages == ["LookAt", "SumOperations", "_as_is"]
    assert f"stages on {cluster.scheduler_address}: " in answer.err
    assert not list((tmp_path / "capture").glob(".model-*"))
    if not options:  # sums and account are kept: nobody is asked
        assert main([*words, "--on", "tcp://127.0.0.1:9"]) == 0
        assert json.loads(capsys.readouterr().out) == expected


def test_the_account_of_waiting_is_equal(cluster: Any, tmp_path: Path) -> None:
    """Of a long run workers make it, window by window; each opens the saved model itself."""
    _attempts(tmp_path / "capture")
    model = open_model(tmp_path / "capture")
    expected = waiting_account(model, Selection(), most_at_once=100)
    with cluster_engine(
        cluster.scheduler_address, [], tmp_path / "capture" / "model", print
    ) as engine:
        tasks = tasks_on(engine, model)
        assert waiting_account(model, Selection(), most_at_once=100, tasks=tasks) == expected
    account, path = expected
    assert account is not None
    assert account.total_ns > 0
    assert path


def test_decoded_files_are_equal(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = two_copies(_attempts, tmp_path)
    answers, reports = [], []
    for path, on in ((here, "here"), (there, cluster.scheduler_address)):
        assert main(["decode", "--remove-raw", "--on", on, str(path)]) == 0
        answers.append(capsys.readouterr().out)
        assert main(["report", "--json", str(path)]) == 0
        report = json.loads(capsys.readouterr().out)
        del report["capture"]
        reports.append(report)
    assert "decoded: 6 processes" in answers[0]
    assert answers[0] == answers[1]
    assert reports[0] == reports[1]
    assert not list(there.glob(".model-*"))


def test_other_verbs_are_equal(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = two_copies(_attempts, tmp_path)
    answers = []
    for path, on in ((here, "here"), (there, cluster.scheduler_address)):
        words = ["--on", on, "--json", str(path)]
        main(["diagnose", *words])
        main(["compare", *words, str(here)])
        answer = capsys.readouterr().out
        answers.append(answer.replace(str(path), "CAPTURE").replace(str(here), "CAPTURE"))
    assert answers[0] == answers[1]


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclscope.engines.dask_cluster._CONNECT_S", 1)
    _attempts(tmp_path / "capture")
    with pytest.raises(NcclscopeError, match="cannot reach a Dask scheduler at tcp://127"):
        manifest(tmp_path / "capture", "tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="there is no scheduler file /nowhere"):
        manifest(tmp_path / "capture", "file:/nowhere")
    assert not [path for path in (tmp_path / "capture").iterdir() if "model" in path.name]


def test_workers_of_another_version_are_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _attempts(tmp_path / "capture")
    monkeypatch.setattr("ncclscope.engines.dask_cluster.__version__", "0.0.7")
    with pytest.raises(NcclscopeError, match=r"has ncclscope .*, this is 0\.0\.7"):
        manifest(tmp_path / "capture", cluster.scheduler_address)
    assert not (tmp_path / "capture" / "model").exists()


def test_the_script_for_slurm_prints_the_report(tmp_path: Path) -> None:
    """With a stand-in for srun, which runs its command here."""
    _attempts(tmp_path / "capture")
    page = (ROOT / "docs" / "deploy" / "dask.md").read_text()
    script = page.split("```sh file=report.sbatch\n")[1].split("```")[0]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "bin" / "srun").chmod(0o755)
    found_first = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}"
    answer = subprocess.run(
        ["sh", "-c", script, "report.sbatch", str(tmp_path / "capture")],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{found_first}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "AllReduce" in answer.stdout
    assert "decoded on file:" in answer.stderr
    assert not (tmp_path / "scheduler-7.json").exists()
