"""`--on slurm` with a real Slurm of two nodes on this host: every value is that of one machine.

`python -m benchmarks slurm` also kills workers and commands there.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclscope.cli import main
from tests.support.packages import needs
from tests.support.slurm_cluster import no_job_is_left, slurm_cluster, why_not
from tests.support.stage_engines import saved_model
from tests.support.waiting import eventually
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, synthetic

pytestmark = [needs("distributed"), pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module", autouse=True)
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Two attempts on two nodes, all sorts of calls, a process that is missing, and a killed one."""
    spec = SyntheticSpec(
        processes=4, operations=30, ranks_per_node=2, mix=ALL_KINDS_OF_WORK, attempts=2,
        communicators=((0, 1), (2, 3), (0, 1, 2, 3)),
        missing=frozenset({3}), killed=frozenset({1}),
    )  # fmt: skip
    synthetic(tmp_path / "capture", spec)
    return tmp_path / "capture"


def test_every_value_is_that_of_one_machine(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    shutil.copytree(capture, here)
    answers = []
    for path, on in ((here, "here"), (capture, "slurm:2")):
        assert main(["report", "--json", "--on", on, str(path)]) == 0
        printed = capsys.readouterr()
        answers.append(json.loads(printed.out) | {"capture": ""})
    assert "2 workers asked for" in printed.err
    assert "decoded on slurm:2: 6 processes" in printed.err
    assert answers[0] == answers[1]
    assert saved_model(capture) == saved_model(here)
    assert saved_model(capture)["rows"]["operations"] > 0
    eventually(no_job_is_left)


def test_slurm_refuses_the_job(
    capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    assert main(["report", "--on", "slurm", str(capture)]) == 1
    said = capsys.readouterr().err
    assert "Slurm refused the job: sbatch: error: invalid partition specified: nowhere" in said
    assert "Traceback" not in said
    assert not [path for path in capture.iterdir() if "model" in path.name]
    assert no_job_is_left()
