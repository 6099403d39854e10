"""Verdicts of `ncclscope status` on simulated jobs of real processes: while they hang, and killed."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ncclscope.capture.housekeeping import process_folders
from ncclscope.diagnose.hang.judge import judge
from ncclscope.diagnose.hang.verdict import Verdict
from ncclscope.model.build import open_model
from ncclscope.simulation.scenario import (
    Call,
    Communicators,
    Late,
    Never,
    NeverJoins,
    Scenario,
    Stuck,
)
from ncclscope.snapshot.process import read_snapshots
from tests.support.diagnosis import diagnose_capture
from tests.support.player import ncclscope
from tests.support.simulated_jobs import running
from tests.support.waiting import eventually

STEP = 30
JOB = Scenario(
    ranks=4, ranks_per_host=1, steps=STEP + 5, give_up_s=0,
    calls=(Call("world", "AllReduce", 1 << 18),),
)  # fmt: skip
GROUPS = replace(
    JOB,
    communicators=(Communicators("world"), Communicators("tp", 2)),
    calls=(Call("world", "AllReduce", 1 << 18), Call("tp", "AllReduce", 1 << 18)),
)


@dataclass(frozen=True)
class Hang:
    """A job, and what is to be said of the communicator that hangs by itself."""

    scenario: Scenario
    verdict: str
    culprits: list[int]
    waiting: list[int]
    order: int | None = STEP + 1
    mode: str = "full"
    after: str = ""  # the verdict when all are dead, where it is another one
    proxy_step: tuple[int, int] | None = None  # of the first culprit: peer and step


HANGS = {
    "never called": Hang(
        replace(JOB, never=(Never(2, STEP),)), "never_called", [2], [0, 1, 3], mode="trace"
    ),
    "not launched": Hang(
        replace(JOB, stuck=(Stuck(2, STEP, at="launch"),)), "not_launched", [2], [0, 1, 3]
    ),
    "not started": Hang(
        replace(JOB, stuck=(Stuck(1, STEP, at="start"),)), "not_started", [1], [0, 2, 3]
    ),
    # The last step of 2 × 3 turns of two steps each never comes.
    "not finished": Hang(
        replace(JOB, stuck=(Stuck(3, STEP, at="finish"),)),
        "not_finished", [3], [0, 1, 2], proxy_step=(2, 11),
    ),
    "stalled in the network": Hang(
        replace(JOB, stuck=(Stuck(2, STEP, at="network"),)), "stalled", [2, 3], [0, 1],
        proxy_step=(3, 0),
    ),
    "stalled on one host": Hang(
        replace(JOB, ranks_per_host=0, stuck=(Stuck(2, STEP, at="network"),)),
        "stalled", [], [0, 1, 2, 3],
    ),
    "a part was never joined": Hang(
        replace(GROUPS, never_joins=(NeverJoins(3, "tp"),)), "never_joined", [3], [2], order=None
    ),
    "the world was never joined": Hang(
        replace(JOB, never_joins=(NeverJoins(3, "world"),)),
        "never_joined", [3], [0, 1, 2], order=None, after="unknown",
    ),
}  # fmt: skip
# One call has taken 6 s: one of less than 18 s is as usual, one of 15 s would be a hang elsewhere.
CHECKPOINT = replace(JOB, steps=25, late=(Late(1, 6_000, 5, 5), Late(1, 60_000, 22, 22)))


class Watch(threading.Thread):
    """Asks about the checkpoint all the time: when that is worth it depends on the machine."""

    def __init__(self, capture: Path) -> None:
        super().__init__(daemon=True)
        self.said: list[Verdict] = []
        self._capture, self._over = capture, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.5):
            if len(list(self._capture.glob("*/live"))) == CHECKPOINT.ranks:
                self.said += judge(*read_snapshots(process_folders(self._capture))).verdicts

    def enough(self) -> bool:
        """Whether it has waited longer than others may."""
        return any(one.waited_ns > 15.2e9 for one in self.said)

    def end(self) -> list[Verdict]:
        """What was said."""
        self._over.set()
        self.join()
        return self.said


@dataclass(frozen=True)
class Jobs:
    """Captures of all of them, side by side."""

    captures: dict[str, Path]
    kill: Callable[[], None]
    checkpoint: Watch


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    directory = tmp_path_factory.mktemp("hangs")
    scenarios = {name: (hang.scenario, hang.mode) for name, hang in HANGS.items()}
    scenarios["checkpoint"] = CHECKPOINT, "trace"
    captures = {name: directory / name.replace(" ", "-") for name in scenarios}
    with ExitStack() as stack:
        for name, (scenario, mode) in scenarios.items():
            stack.enter_context(running(scenario, captures[name], "--mode", mode))
        watch = Watch(captures["checkpoint"])
        watch.start()
        yield Jobs(captures, stack.close, watch)
        watch.end()


def ask(capture: Path) -> dict[str, Any]:
    printed = ncclscope("status", "--json", capture)
    assert printed.returncode in (0, 4), printed.stderr
    answer: dict[str, Any] = json.loads(printed.stdout)
    assert printed.returncode == (4 if answer["hung"] else 0)
    return answer


def hung(capture: Path) -> dict[str, Any] | None:
    """The communicator that hangs by itself, once one does."""
    if not list(capture.glob("*/live")):
        return None
    bad = [one for one in ask(capture)["communicators"] if one["hung"]]
    return next((one for one in bad if not one["follows_from"]), None)


def check(found: dict[str, Any], hang: Hang, verdict: str) -> None:
    assert (found["verdict"], found["culprits"]) == (verdict, hang.culprits), found
    assert (found["waiting"], found["call_order"]) == (hang.waiting, hang.order), found
    assert found["waited_ns"] > 15e9
    if hang.proxy_step:
        (step,) = (d["proxy_step"] for d in found["doing"] if d["rank"] == hang.culprits[0])
        assert (step["peer"], step["step"]) == hang.proxy_step


def test_every_hang(jobs: Jobs) -> None:
    """First all of them alive, then all of them killed."""
    for name, hang in HANGS.items():
        found = eventually(lambda at=jobs.captures[name]: hung(at), 120)
        check(found, hang, hang.verdict)
    tp = jobs.captures["a part was never joined"]
    (follows,) = (one for one in ask(tp)["communicators"] if one["name"] == "world")
    assert follows["follows_from"] == "tp#2", "who makes a communicator cannot call on another"
    text = " ".join(ncclscope("diagnose", jobs.captures["not launched"]).stdout.split())
    (pid,) = (
        one["pid"] for one in hung(jobs.captures["not launched"])["doing"] if one["rank"] == 2
    )
    assert f"rank 2 (node2 GPU 0; pid {pid}) called it and did not launch it" in text
    assert f"`py-spy dump --pid {pid}` on node2" in text
    eventually(jobs.checkpoint.enough, 120)
    said = jobs.checkpoint.end()
    long = [one for one in said if 15e9 < one.waited_ns <= one.limit_ns]
    assert long
    assert {(one.verdict, one.culprits) for one in long} == {("waiting", (1,))}
    # Of the 6 s the others saw a little less: on a busy machine they come late themselves.
    assert min(one.limit_ns for one in long) >= 17e9
    notes = open_model(jobs.captures["never called"]).completeness.notes
    assert notes[1].startswith("4 processes still running: ranks 0-3"), notes
    jobs.kill()
    time.sleep(0.2)
    for name, hang in HANGS.items():
        found = hung(jobs.captures[name])
        assert found is not None, name
        check(found, hang, hang.after or hang.verdict)
        first = diagnose_capture(jobs.captures[name]).findings[0]
        assert (first.family, first.kind) == ("hang", hang.after or hang.verdict)
        assert list(first.ranks) == hang.culprits
    # The model that was kept says so, too, when it is opened again.
    notes = open_model(jobs.captures["never called"]).completeness.notes
    assert notes[1].startswith("4 processes ended abruptly: ranks 0-3"), notes
    # Without the files of the rank that is to blame, and without proxy steps that would tell.
    capture = jobs.captures["never called"]
    (folder,) = {d["pid"] for d in hung(capture)["doing"] if d["rank"] == 2}
    for file in next(capture.glob(f"*.{folder}.*")).iterdir():
        file.unlink()
    next(capture.glob(f"*.{folder}.*")).rmdir()
    found = hung(capture)
    assert found is not None
    assert (found["verdict"], found["culprits"], found["waiting"]) == ("unknown", [2], [0, 1, 3])
    assert "left no files" in found["reason"]
