"""A capture that a cluster decodes, and clusters that cannot: test_equal_answers.py has all verbs on all
sorts of captures, test_cluster_faults.py what dies meanwhile.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import main
from ncclscope.engines.dask_cluster import cluster_engine
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.build import open_model
from ncclscope.model.model import Progress
from tests.support.dask_clusters import local_cluster
from tests.support.mixed_captures import MIXED, attempts
from tests.support.packages import needs
from tests.support.paths import ROOT
from tests.support.stage_faults import stages_seen

pytestmark = needs("distributed")

MADE = {name: MIXED[name] for name in ("attempts", "2.28.9-v5-3ranks-hang", "times by events")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as local:
        yield local


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


def test_sums_of_a_long_run_are_kept(
    cluster: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers sum up operations, and nobody asks them again."""
    attempts(tmp_path / "capture")
    words = ["report", "--json", str(tmp_path / "capture")]
    assert main(words) == 0
    expected = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("ncclscope.analysis.report_stage.MOST_HERE", 0)
    with stages_seen() as seen:
        assert main([*words, "--on", cluster.scheduler_address]) == 0
    answer = capsys.readouterr()
    assert json.loads(answer.out) == expected
    assert [stage for stage in dict.fromkeys(seen) if not stage.startswith("_")] == [
        "LookAt", "SumOperations", "merge_sums",
    ]  # fmt: skip
    assert f"stages on {cluster.scheduler_address}: " in answer.err
    assert not list((tmp_path / "capture").glob(".model-*"))
    assert main([*words, "--on", "tcp://127.0.0.1:9"]) == 0
    assert json.loads(capsys.readouterr().out) == expected


def test_decoded_files_are_equal(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = two_copies(attempts, tmp_path)
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


def test_a_dataset_is_read_by_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command says so: nobody answers under that address."""
    attempts(tmp_path / "capture")
    dataset, nowhere = str(tmp_path / "dataset"), "tcp://127.0.0.1:9"
    assert main(["export", "--to", "parquet", "-o", dataset, str(tmp_path / "capture")]) == 0
    capsys.readouterr()
    assert main(["report", "--json", dataset]) == 0
    expected = capsys.readouterr()
    assert expected.err == ""
    assert main(["report", "--json", "--on", nowhere, dataset]) == 0
    answer = capsys.readouterr()
    assert answer.out == expected.out
    assert answer.err == (
        f"ncclscope: {dataset} is a dataset, which this machine reads: --on {nowhere} does no more "
        "than sum it up\n"
    )


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclscope.engines.dask_cluster._CONNECT_S", 1)
    attempts(tmp_path / "capture")
    with pytest.raises(NcclscopeError, match="cannot reach a Dask scheduler at tcp://127"):
        manifest(tmp_path / "capture", "tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="there is no scheduler file /nowhere"):
        manifest(tmp_path / "capture", "file:/nowhere")
    assert not [path for path in (tmp_path / "capture").iterdir() if "model" in path.name]


def test_the_script_for_slurm_prints_the_report(tmp_path: Path) -> None:
    """With a stand-in for srun, which runs its command here."""
    attempts(tmp_path / "capture")
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
