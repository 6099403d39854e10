"""`ncclscope status --stacks`: where each rank is in its program."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ncclscope.simulation.scenario import Call, Communicators, Never, Scenario
from ncclscope.snapshot import stacks
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

JOB = Scenario(
    ranks=3,
    steps=50,
    communicators=(Communicators("world"),),
    calls=(Call("world", "AllReduce", 1 << 20),),
    never=(Never(2, 20),),
    give_up_s=0,
)


def answer(capture: Path) -> dict[str, Any]:
    printed = ncclscope("status", capture, "--json", "--stacks")
    said: dict[str, Any] = json.loads(printed.stdout or "{}")
    return said


def functions(process: dict[str, Any]) -> set[str]:
    return {frame["function"] for thread in process["threads"] for frame in thread["frames"]}


def stuck_ranks(capture: Path) -> list[dict[str, Any]]:
    """The processes, once rank 2 stands before its call."""
    said = answer(capture).get("stacks", [])
    where = [any("Event.wait" in name for name in functions(row)) for row in said]
    refused = any(row["why_not"] and "ptrace" in row["why_not"] for row in said)
    return said if refused or where == [False, False, True] else []


def test_stacks_show_which_rank_is_elsewhere(tmp_path: Path) -> None:
    if stacks.py_spy_path() is None:
        pytest.skip("py-spy is not installed")
    capture = tmp_path / "capture"
    with running(JOB, capture):
        eventually(lambda: len(list(capture.glob("*/live"))) == 3)
        processes = eventually(lambda: stuck_ranks(capture))
        if any(row["why_not"] for row in processes):
            pytest.skip(f"py-spy may not look here: {processes[0]['why_not']}")
        assert [row["rank"] for row in processes] == [0, 1, 2]
        assert all("cudaStreamSynchronize" in functions(row) for row in processes[:2])
        assert "_Rank._call" in functions(processes[2])
        text = ncclscope("status", capture, "--stacks").stdout
        assert "  ranks 0, 1, MainThread:\n" in text, "equal stacks are shown once"
        assert "  rank 2, MainThread:\n" in text


@pytest.mark.parametrize(
    ("script", "why_not"),
    [
        ("echo 'Permission Denied: try sudo' >&2; exit 1", "may not look at it"),
        ("echo 'Error: Failed to find python version' >&2; exit 1", "no Python process"),
        ("echo 'Error: No such process' >&2; exit 1", "py-spy: No such process"),
        ("echo '[1, 2]'", "something else than stacks"),
        ("exit 3", "py-spy failed"),
    ],
)
def test_why_there_is_no_stack_is_said(tmp_path: Path, script: str, why_not: str) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    threads, cause = stacks._dump(str(program), 1)
    assert threads == ()
    assert why_not in cause
