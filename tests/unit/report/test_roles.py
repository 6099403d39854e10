"""Communicators pooled by role."""

import json
from pathlib import Path

import pytest

from ncclscope.cli import main
from ncclscope.simulation.scenario import Call, Communicators, Scenario
from tests.support.writer.scenario import write_scenario

CALLS = (Call("tp", "AllGather", 1 << 18), Call("dp", "AllReduce", 1 << 20))


def job(ranks: int) -> Scenario:
    """A job with ranks / 2 tp groups of 2 ranks, and 2 dp groups of the other ones."""
    return Scenario(
        ranks=ranks, steps=4,
        communicators=(Communicators("tp", 2), Communicators("dp", ranks // 2, 2)), calls=CALLS,
    )  # fmt: skip


def test_many_communicators_are_pooled_by_role(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scenario(tmp_path / "job", job(32), 1)
    assert main(["report", str(tmp_path / "job"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    roles = {row["role"]: row for row in said["roles"]}
    assert {role: row["communicators"] for role, row in roles.items()} == {"tp": 16, "dp": 2}
    assert (roles["tp"]["ranks"], roles["dp"]["ranks"]) == ([2, 2], [16, 16])
    for key in ("calls", "operations", "total_bytes"):
        assert sum(row[key] for row in said["roles"]) == said["total"][key]
    assert main(["report", str(tmp_path / "job")]) == 0
    assert "── communicators by role" in capsys.readouterr().out


def test_few_communicators_are_shown_one_by_one_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scenario(tmp_path / "job", job(8), 1)
    assert main(["report", str(tmp_path / "job"), "--json"]) == 0
    assert "roles" not in json.loads(capsys.readouterr().out)
