"""`--on slurm` where Slurm does not do its part; test_real_slurm.py has a real one."""

from pathlib import Path

import pytest

from ncclscope.cli import main
from tests.support.packages import needs
from tests.support.writer import SyntheticSpec, synthetic

pytestmark = needs("distributed")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "capture"
    synthetic(path, SyntheticSpec(processes=2, operations=5, communicators=((0, 1),)))
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for stand-ins of Slurm's programs, the only one on the PATH with /bin."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    return folder


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def said_by(capture: Path, on: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the errors; nothing of a model is kept."""
    code = main(["report", "--on", on, str(capture)])
    assert not [path for path in capture.iterdir() if "model" in path.name]
    return code, capsys.readouterr().err


def test_a_machine_without_slurm(
    capture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, errors = said_by(capture, "slurm", capsys)
    assert code == 2
    assert "cannot run sbatch: No such file" in errors


def test_slurm_refuses_the_job(
    capture: Path, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = "sbatch: error: invalid partition specified: nowhere"
    write_program(programs / "sbatch", f"echo '{refusal}' >&2; exit 1")
    code, errors = said_by(capture, "slurm:4", capsys)
    assert code == 1
    assert f"Slurm refused the job: {refusal}" in errors


def test_the_job_ends_before_a_worker_joins(
    capture: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits in the queue once, and is gone then, with a line in its log."""
    asked, cancelled = tmp_path / "asked", tmp_path / "cancelled"
    log = "$(echo $* | sed 's/.*--output=//; s/ .*//')"
    write_program(programs / "sbatch", f'echo "no such python" > "{log}"; echo "7;cluster"')
    write_program(programs / "squeue", f"[ -e {asked} ] || echo PENDING Resources; touch {asked}")
    write_program(programs / "scancel", f'echo "$@" > {cancelled}')
    code, errors = said_by(capture, "slurm:2", capsys)
    assert code == 1
    assert "Slurm job 7: 2 workers asked for" in errors
    assert "Slurm job 7 waits: Resources" in errors
    assert "Slurm job 7 ended before it decoded anything: no such python" in errors
    assert cancelled.read_text().split() == ["--quiet", "7"]


@pytest.mark.parametrize("on", ["slurm:", "slurm:0", "slurm:many"])
def test_a_wrong_number_of_workers(
    on: str, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, errors = said_by(capture, on, capsys)
    assert code == 2
    assert "has no number of workers. Use slurm, or slurm:16" in errors
