"""The environment and command line that a job gets."""

import os
import time
from pathlib import Path

import pytest

from ncclscope.errors import UsageError
from ncclscope.launch.command import pass_on_variables
from ncclscope.launch.environment import (
    Settings,
    debug_variables,
    default_capture_name,
    placeholders_in,
    reachable_plugin,
    recording_variables,
    why_not_writable,
)
from ncclscope.launchers import global_rank

NAMES = ["NCCL_PROFILER_PLUGIN", "NCCLSCOPE_DIR"]


def test_variables() -> None:
    variables = recording_variables(Settings(Path("/c"), "full"), Path("/p.so"))
    assert variables == {
        "NCCL_PROFILER_PLUGIN": "/p.so",
        "NCCLSCOPE_DIR": "/c",
        "NCCLSCOPE_MODE": "full",
    }
    chosen = Settings(Path("/c"), events="0x7", arena="8M", disk_limit="1G", gpu_timing="sampled")
    variables = recording_variables(chosen, Path("/p.so"))
    assert variables["NCCLSCOPE_EVENTS"] == "0x7"
    assert variables["NCCLSCOPE_ARENA"] == "8M"
    assert variables["NCCLSCOPE_DISK_LIMIT"] == "1G"
    assert variables["NCCLSCOPE_GPU_TIMING"] == "sampled"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"SLURM_JOB_ID": "4711", "TORCHELASTIC_RUN_ID": "x"}, "ncclscope-4711"),
        ({"TORCHELASTIC_RUN_ID": "run/7"}, "ncclscope-run_7"),
        ({"TORCHELASTIC_RUN_ID": "none", "PMIX_NAMESPACE": "ns1"}, "ncclscope-ns1"),
        ({"OMPI_MCA_ess_base_jobid": "123"}, "ncclscope-123"),
    ],
)
def test_capture_is_named_after_the_job(environment: dict[str, str], name: str) -> None:
    assert default_capture_name(environment) == name


def test_ranks_without_a_job_id_are_named_after_their_launcher() -> None:
    first = default_capture_name({"RANK": "0", "TORCHELASTIC_RUN_ID": "none"})
    time.sleep(1.1)
    assert default_capture_name({"RANK": "1"}) == first


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_writable(tmp_path / "a" / "b") == ""
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    assert why_not_writable(tmp_path / "file" / "c") == f"{tmp_path / 'file'} is no directory"
    (tmp_path / "gone").symlink_to("nowhere")
    assert why_not_writable(tmp_path / "gone") == f"{tmp_path / 'gone'} is no directory"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may everything
    assert why_not_writable(tmp_path / "c") == f"{tmp_path} cannot be written to"


def test_rank() -> None:
    assert global_rank({}) is None
    assert global_rank({"RANK": "3", "SLURM_PROCID": "9"}) == 3
    assert global_rank({"OMPI_COMM_WORLD_RANK": "5"}) == 5
    assert global_rank({"RANK": "x"}) is None


@pytest.mark.parametrize("program", ["mpirun", "/opt/mpi/bin/mpiexec", "orterun"])
def test_open_mpi_gets_the_variables_to_forward(program: str) -> None:
    command = pass_on_variables([program, "-np", "2", "a.out"], NAMES, open_mpi=lambda _: True)
    forward = ["-x", "NCCL_PROFILER_PLUGIN", "-x", "NCCLSCOPE_DIR"]
    assert command == [program, *forward, "-np", "2", "a.out"]


def test_other_launchers_hand_everything_on() -> None:
    for command in (["mpirun", "-n", "2", "a.out"], ["torchrun", "train.py"], ["python", "t.py"]):
        assert pass_on_variables(command, NAMES, open_mpi=lambda _: False) == command


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--export=ALL", "--export=ALL"),
        ("--export=NONE", "--export=NCCL_PROFILER_PLUGIN,NCCLSCOPE_DIR"),
        ("--export=PATH,HOME", "--export=PATH,HOME,NCCL_PROFILER_PLUGIN,NCCLSCOPE_DIR"),
        ("--ntasks=2", "--ntasks=2"),
    ],
)
def test_srun_keeps_our_variables(given: str, expected: str) -> None:
    assert pass_on_variables(["srun", given, "a.out"], NAMES) == ["srun", expected, "a.out"]


def test_placeholders() -> None:
    assert placeholders_in("a-%r-%h%%p") == ["%h", "%r"]
    assert placeholders_in("100%") == placeholders_in("a%%r%x") == []
    added, _ = debug_variables("INFO", Path("/100%real"), {})
    assert added["NCCL_DEBUG_FILE"] == "/100%%real/debug.%h.%p"


def test_a_plugin_path_that_nccl_would_cut(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    plugin = deep / "libnccl-profiler-ncclscope.so"
    plugin.touch()
    link = reachable_plugin(plugin, tmp_path / "capture")
    assert os.path.realpath(link) == str(plugin)
    assert len(str(link)) <= 254
    assert link.parent.stat().st_mode & 0o077 == 0
    assert reachable_plugin(plugin, tmp_path / "capture") == link, "again"
    with pytest.raises(UsageError, match="shorter path"):
        reachable_plugin(plugin, deep / "capture")
