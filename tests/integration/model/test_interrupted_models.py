"""Commands that end while they make a model: nothing half-written counts, and the next one goes on."""

import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncclscope.errors import NcclscopeError
from ncclscope.model.build import open_model
from tests.support.stage_engines import noting, saved_model
from tests.support.writer import Straggler, SyntheticSpec, synthetic

STAGES = (
    "decode", "FindBounds", "MoveTimes", "GatherStates", "count_state", "WriteBlock", "SetWaits",
    "SeeInstances", "check_column",
)  # fmt: skip


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two captures of the same job on two nodes; the first has its model."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=40, ranks_per_node=4, communicators=groups,
        straggler=Straggler(1, 1_000_000),
    )  # fmt: skip
    synthetic(tmp_path / "here", spec)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    open_model(tmp_path / "here")
    return tmp_path / "here", tmp_path / "there"


def _in_child(do: Callable[[], object]) -> int:
    """How a child process that does something ended."""
    child = os.fork()
    if not child:
        try:
            do()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_command_is_killed_in_every_stage(copies: tuple[Path, Path]) -> None:
    """One after the other, each time a stage later: each goes on with what the first decoded."""
    here, there = copies
    for stage in STAGES:
        left_of_stage = {"decode": 3}

        def kill(now: str, stage: str = stage, left: dict[str, int] = left_of_stage) -> None:
            left[now] = left.get(now, 0) - 1
            if now == stage and left[now] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        ended = _in_child(lambda: open_model(there, engine_of=noting(kill)))
        assert ended == -signal.SIGKILL, f"there is no stage {stage}"
        assert not (there / "model").exists()
        (left,) = there.glob(".model-*")
        assert list(left.glob("process.n*")), stage
    decoded: list[str] = []
    open_model(there, engine_of=noting(decoded.append))
    assert "decode" not in decoded
    assert saved_model(there) == saved_model(here)
    assert not list(there.glob(".model-*"))


@pytest.mark.parametrize("stage", ["decode", "MoveTimes", "SetWaits"])
def test_the_disk_is_full_in_a_stage(stage: str, copies: tuple[Path, Path]) -> None:
    here, there = copies
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(now: str) -> None:
        if now == stage:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))

    try:
        with pytest.raises(NcclscopeError, match=r"cannot make the model of .*: File too large"):
            open_model(there, engine_of=noting(fill))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (there / "model").exists()
    decoded: list[str] = []
    open_model(there, engine_of=noting(decoded.append))
    assert ("decode" in decoded) == (stage == "decode")
    assert saved_model(there) == saved_model(here)
    assert not list(there.glob(".model-*"))


def test_two_commands_make_the_model_at_once(copies: tuple[Path, Path]) -> None:
    """The second begins and ends while the first is in the midst of its stages."""
    here, there = copies
    models: list[Any] = []

    def second(now: str) -> None:
        if now == "SetWaits":
            assert _in_child(lambda: models.append(open_model(there))) == 0
            assert saved_model(there) == saved_model(here)

    first = open_model(there, engine_of=noting(second))
    assert saved_model(there) == saved_model(here)
    assert first.tables["operations"]["wait_ns"].tolist() == (
        open_model(here).tables["operations"]["wait_ns"].tolist()
    )
    assert not list(there.glob(".model-*/manifest.json"))
