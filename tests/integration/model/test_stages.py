"""Stages of a model in many tasks, each done twice and cut short the first time: every value is that
of one task.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.errors import NcclscopeError
from ncclscope.model import capture_counts
from ncclscope.model.build import open_model
from tests.support.player import TRANSCRIPTS
from tests.support.stage_engines import noting, repeating, saved_model
from tests.support.writer import ALL_KINDS_OF_WORK, SyntheticSpec, from_transcript, synthetic


def _attempts(capture: Path, **values: Any) -> None:
    """Two attempts on two nodes, all sorts of calls, a process that is missing, and a killed one."""
    groups = ((0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8)))
    spec = SyntheticSpec(
        processes=8, operations=60, ranks_per_node=4, communicators=groups,
        mix=ALL_KINDS_OF_WORK, attempts=2,
        missing=frozenset({5}), killed=frozenset({2}), **values,
    )  # fmt: skip
    synthetic(capture, spec)


MADE: dict[str, Callable[[Path], object]] = {"attempts": _attempts} | {
    name: partial(from_transcript, TRANSCRIPTS / name)
    for name in (
        "2.23.4-v1-2ranks", "2.28.9-v5-3ranks-hang", "2.28.9-v5-4ranks", "2.31.2-v7-2ranks",
    )
}  # fmt: skip


def both(make: Callable[[Path], object], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The models that one task and many repeated ones make."""
    make(folder / "here")
    shutil.copytree(folder / "here", folder / "there")
    open_model(folder / "here")
    open_model(folder / "there", engine_of=repeating)
    names = [{path.name for path in (folder / n / "model").iterdir()} for n in ("here", "there")]
    assert names[0] == names[1]
    return saved_model(folder / "here"), saved_model(folder / "there")


@pytest.mark.parametrize("name", MADE)
def test_every_value_is_that_of_one_task(name: str, tmp_path: Path) -> None:
    expected, answer = both(MADE[name], tmp_path)
    assert answer == expected
    assert expected["rows"]["operations"] > 0


def _dying(counted: list[int]) -> Any:
    """An engine that fails after so many processes; it counts those that it decodes."""

    def count(stage: str) -> None:
        if stage == "decode":
            if not counted[0]:
                raise NcclscopeError("the cluster is gone")
            counted[0] -= 1
            counted[1] += 1

    return noting(count)


def test_a_second_command_goes_on_where_one_ended(tmp_path: Path) -> None:
    _attempts(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    open_model(tmp_path / "here")
    counted = [6, 0]
    with pytest.raises(NcclscopeError, match="the cluster is gone"):
        open_model(tmp_path / "there", engine_of=_dying(counted))
    (left,) = (tmp_path / "there").glob(".model-*")
    noted = sorted(path.name for path in left.glob("process.n*"))
    assert noted == [f"process.n{number}" for number in range(6)]
    with (left / "operations.count").open("r+b") as column:  # of the first: it no longer counts
        column.write(b"damaged!")
    counted[:] = [99, 0]
    open_model(tmp_path / "there", engine_of=_dying(counted))
    assert counted[1] == 14 - 5
    assert saved_model(tmp_path / "there") == saved_model(tmp_path / "here")
    assert not list((tmp_path / "there").glob(".model-*"))


def test_lost_calls_are_numbered_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_counts, "_lost_calls", lambda decoded: True)
    expected, answer = both(_attempts, tmp_path)
    assert answer == expected
