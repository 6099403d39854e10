"""A disk that becomes full while a cluster makes a model: no answer, and the next command goes on.

test_cluster_faults.py has limits of single files; here the disk itself has no room, so what is
written through mapped memory fails as well.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import main
from ncclscope.model.build import open_model
from tests.support.dask_clusters import local_cluster
from tests.support.mixed_captures import MIXED
from tests.support.packages import needs
from tests.support.stage_engines import saved_model
from tests.support.stage_faults import LOST, fault_in, stages_seen

pytestmark = [
    needs("distributed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: needs root"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as local:
        yield local


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)  # workers still map files of it


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "capture"
    MIXED[LOST](path)
    return path


def fill_up(disk: Path, ask: Callable[[], Any]) -> Any:
    """Somebody else fills the disk before a task begins."""
    with suppress(OSError), (disk / "others").open("wb", buffering=0) as others:
        while True:
            others.write(bytes(1 << 16))
    with suppress(OSError), (disk / "others").open("ab", buffering=0) as others:
        while True:  # the last pages
            others.write(b"x")
    return ask()


@pytest.mark.parametrize("stage", ["_decode", "_write", "MoveTimes", "GatherStates", "SetWaits"])
def test_the_disk_becomes_full(
    stage: str,
    cluster: Any,
    raw: Path,
    disk: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capture, on = disk / "capture", cluster.scheduler_address
    shutil.copytree(raw, capture)
    shutil.copytree(raw, tmp_path / "here")
    with fault_in(stage, partial(fill_up, disk), tmp_path / "met"):
        assert main(["report", "--on", on, str(capture)]) == 1
    assert (tmp_path / "met").exists()
    printed = capsys.readouterr()
    assert printed.out == ""
    said = printed.err.splitlines()[-1]
    assert said.startswith(
        f"ncclscope: cannot make the model of {capture}: No space left on device"
    )
    assert not (capture / "model").exists()
    (disk / "others").unlink()
    with stages_seen() as seen:
        assert main(["report", "--json", "--on", on, str(capture)]) == 0
    if stage not in ("_decode", "_write"):
        assert "_decode" not in seen, "what was decoded is kept"
    report = json.loads(capsys.readouterr().out)
    assert main(["report", "--json", str(tmp_path / "here")]) == 0
    assert report | {"capture": ""} == json.loads(capsys.readouterr().out) | {"capture": ""}
    open_model(tmp_path / "here")
    assert saved_model(capture) == saved_model(tmp_path / "here")
    assert not list(capture.glob(".model-*"))
