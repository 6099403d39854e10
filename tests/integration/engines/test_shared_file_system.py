"""A cluster on a shared file system on a bad day, and two commands on one capture: every value is
that of one machine.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.engines.dask_cluster import cluster_engine
from ncclscope.errors import NcclscopeError
from ncclscope.model import late_files
from ncclscope.model.build import open_model
from tests.support.dask_clusters import local_cluster
from tests.support.packages import needs
from tests.support.paths import C_SOURCES
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, synthetic

pytestmark = needs("distributed")


def write_capture(path: Path) -> None:
    groups = ((0, 1), (2, 3), (0, 1, 2, 3))
    spec = SyntheticSpec(
        processes=4, operations=30, ranks_per_node=2, communicators=groups, mix=ALL_KINDS_OF_WORK
    )
    synthetic(path, spec)


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("late") / "late_files.so"
    source = C_SOURCES / "late_files.c"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@contextmanager
def cluster(**environment: str) -> Iterator[str]:
    """The address of a scheduler with two worker processes that have these variables."""
    # Not by Dask's settings: these stay in the environment of the tests.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with local_cluster() as local:
            yield local.scheduler_address


def manifest(capture: Path, on: str | None) -> dict[str, Any]:
    """The saved model with checksums of all columns."""
    if on is None:
        open_model(capture)
    else:
        open_model(capture, None, partial(cluster_engine, on, tell=lambda _: None))
    saved = json.loads((capture / "model" / "manifest.json").read_text())
    return {name: saved[name] for name in saved if name not in ("seal", "stamps", "fingerprint")}


@pytest.mark.parametrize("fault", [{"LATE_FILES_MS": "600"}, {"SLOW_OPEN_MS": "20"}])
def test_files_that_workers_see_late_or_slowly_change_nothing(
    fault: dict[str, str], preloaded: Path, tmp_path: Path
) -> None:
    write_capture(tmp_path / "here")
    expected = manifest(tmp_path / "here", None)
    there, log = tmp_path / "there", tmp_path / "log"
    where = {"LATE_FILES_IN": str(there), "LATE_FILES_LOG": str(log), "LD_PRELOAD": str(preloaded)}
    with cluster(**where, **fault) as address:
        shutil.copytree(tmp_path / "here", there, ignore=shutil.ignore_patterns("model"))
        answer = manifest(there, address)
    assert answer == expected
    assert expected["rows"]["operations"] > 0
    assert log.stat().st_size > 10


def test_files_that_workers_never_see_are_an_error(
    preloaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leave no model, nor a part of one that is taken for whole."""
    write_capture(tmp_path / "c")
    where = {"LATE_FILES_IN": str(tmp_path / "c"), "LD_PRELOAD": str(preloaded)}
    monkeypatch.setattr("ncclscope.engines.worker_check.PATIENCE_S", 1.0)
    with (
        cluster(**where, LATE_FILES_MS="3600000") as address,
        pytest.raises(NcclscopeError, match=r"does not see .*/c\. Captures must be on"),
    ):
        manifest(tmp_path / "c", address)
    assert not [path for path in (tmp_path / "c").iterdir() if "model" in path.name]


def test_two_commands_at_once_give_the_same_answer(tmp_path: Path) -> None:
    write_capture(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    expected = manifest(tmp_path / "here", None)
    with cluster() as address:
        words = [sys.executable, "-m", "ncclscope", "report", "--json", str(tmp_path / "there")]
        commands = [
            subprocess.Popen([*words, "--on", on], stdout=subprocess.PIPE, text=True)
            for on in (address, "here", address)
        ]
        answers = [command.communicate()[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0]
    assert answers[0] == answers[1] == answers[2]
    assert manifest(tmp_path / "there", None) == expected
    assert [path.name for path in (tmp_path / "there").glob("*model*")] == ["model"]


def test_a_process_is_waited_for_until_all_of_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"meta": 10, "log.000000": 5, "log.000001": 5}
    (tmp_path / "meta").write_bytes(b"m" * 12)  # it grew
    (tmp_path / "log.000001").write_bytes(b"l" * 5)
    late_files.wait_for_process(tmp_path, sizes)  # the first log was rotated away
    (tmp_path / "log.000001").write_bytes(b"l" * 4)
    monkeypatch.setattr(late_files, "PATIENCE_S", 0.0)
    with pytest.raises(OSError, match=r"does not see log\.000001 of"):
        late_files.wait_for_process(tmp_path, sizes)
    (tmp_path / "decoded.json").write_bytes(b"{}")  # somebody decodes it, and removes the logs
    late_files.wait_for_process(tmp_path, sizes)


def test_a_folder_that_was_seen_and_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command was interrupted: the worker is free at once."""
    folder, file = tmp_path / "model", tmp_path / "model" / "operations.count"
    folder.mkdir()
    file.write_bytes(b"12345678")

    def pause(_: float) -> None:
        pytest.fail("waits")

    monkeypatch.setattr(late_files.time, "sleep", pause)
    with late_files.waiting_for_late_files():
        late_files.wait_for_size(file, 8)
        shutil.rmtree(folder)
        with pytest.raises(OSError, match=r"does not see operations\.count of"):
            late_files.wait_for_size(file, 8)
