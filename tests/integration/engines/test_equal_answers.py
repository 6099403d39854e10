"""Every answer of every verb with `--on` is that of one machine, over captures of all sorts."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import main
from tests.support.dask_clusters import local_cluster
from tests.support.mixed_captures import MIXED
from tests.support.packages import needs
from tests.support.stage_engines import saved_model
from tests.support.stage_faults import KILLED_IN, OF_THE_ENGINE, stages_seen

pytestmark = needs("distributed")
# What the captures are there for, as `report --json` shows it.
SHOWS: dict[str, Callable[[dict[str, Any]], object]] = {
    "attempts": lambda report: "2 attempts" in " ".join(report["completeness"]["notes"]),
    "lost calls and a mismatch": lambda report: (
        report["completeness"]["dropped"] and report["completeness"]["mismatched_instances"]
    ),
    "gathers": lambda report: {"Gather", "Scatter"} <= _functions(report),
    "2.23.4-v1-2ranks": lambda report: "AllReduce" in _functions(report),
    "2.28.9-v5-3ranks-hang": lambda report: report["completeness"]["in_flight"],
    "2.28.9-v5-4ranks": lambda report: {"Send", "Recv"} <= _functions(report),
    "2.31.2-v7-2ranks": lambda report: "AllReduce" in _functions(report),
}
SELECTIONS: list[tuple[str, ...]] = [
    ("report", "--by", "rank,size"),
    ("report", "--op", "AllReduce", "--rank", "1"),
    ("report", "--comm", "tp*", "--by", "+algorithm"),
    ("report", "--since", "0.005", "--until", "0.015"),
    ("diagnose", "--rank", "0-1"),
    ("diagnose", "--comm", "dp*"),
    ("diagnose", "--since", "0.005", "--until", "0.015"),
    ("compare", "--op", "AllReduce", "--comm", "tp*"),
    ("compare", "--last", "10ms"),
]


def _functions(report: dict[str, Any]) -> set[str]:
    return {group["function"] for group in report["operations"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with local_cluster() as local:
        yield local


@pytest.fixture(autouse=True)
def all_runs_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers sum up operations."""
    monkeypatch.setattr("ncclscope.analysis.report_stage.MOST_HERE", 0)


@pytest.fixture(autouse=True)
def the_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` and `diagnose` say for how many seconds nothing was heard of a process."""
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)


Answers = Callable[[str, Path, Sequence[str]], tuple[int, Any]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Answers:
    """The exit code and JSON of a verb without the capture's name; `--on` a cluster or here."""

    def answer(on: str, capture: Path, words: Sequence[str]) -> tuple[int, Any]:
        verb, *options = words
        if verb != "status":
            options += ["--on", on]
        captures = [str(capture)] * (2 if verb == "compare" else 1)
        code = main([verb, "--json", *options, *captures])
        printed = capsys.readouterr().out.replace(str(capture), "CAPTURE")
        return code, json.loads(printed)

    return answer


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A capture that is written once, and only copied."""

    @cache
    def write(name: str) -> Path:
        capture = tmp_path_factory.mktemp("written") / "capture"
        MIXED[name](capture)
        return capture

    return write


def exported(on: str, capture: Path, to: str) -> bytes:
    """What `export` writes."""
    path = capture.parent / f"exported.{to}"
    assert main(["export", "--to", to, "-o", str(path), "--on", on, str(capture)]) == 0
    return path.read_bytes().replace(str(capture).encode(), b"CAPTURE")


@pytest.fixture
def copies_of(written: Callable[[str], Path], tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """Two copies of a capture, for this machine and for the cluster."""

    def copy(name: str) -> tuple[Path, Path]:
        both = tmp_path / "here" / "capture", tmp_path / "there" / "capture"
        for one in both:
            shutil.rmtree(one, ignore_errors=True)
            shutil.copytree(written(name), one)
        return both

    return copy


@pytest.mark.parametrize("name", MIXED)
def test_all_verbs(
    name: str, cluster: Any, ask: Answers, copies_of: Callable[[str], tuple[Path, Path]]
) -> None:
    """The cluster makes the model and the sums; the other verbs find what it made."""
    here, there = copies_of(name)
    on = cluster.scheduler_address
    with stages_seen() as seen:
        answer = ask(on, there, ["report"])
    expected = ask("here", here, ["report"])
    assert answer == expected
    assert SHOWS[name](expected[1])
    assert saved_model(there) == saved_model(here)
    assert set(seen) <= {*KILLED_IN, *OF_THE_ENGINE}, "test_cluster_faults.py kills in every stage"
    for verb in ("diagnose", "status", "compare"):
        assert ask(on, there, [verb]) == ask("here", here, [verb]), verb
    for to in ("jsonl", "chrome"):  # operations; calls, channels and proxy steps
        assert exported(on, there, to) == exported("here", here, to), to
    assert not list(there.glob(".model-*"))


def test_each_verb_has_the_cluster_make_the_model(
    cluster: Any, ask: Answers, copies_of: Callable[[str], tuple[Path, Path]]
) -> None:
    on = cluster.scheduler_address
    for verb in ("diagnose", "compare", "export"):
        here, there = copies_of("2.28.9-v5-3ranks-hang")
        with stages_seen() as seen:
            answer = exported(on, there, "jsonl") if verb == "export" else ask(on, there, [verb])
        assert "WriteBlock" in seen, verb
        assert answer == (
            exported("here", here, "jsonl") if verb == "export" else ask("here", here, [verb])
        )
        assert saved_model(there) == saved_model(here)


def test_selections(
    cluster: Any, ask: Answers, copies_of: Callable[[str], tuple[Path, Path]]
) -> None:
    """Of operations, communicators, ranks and times."""
    here, there = copies_of("lost calls and a mismatch")
    on = cluster.scheduler_address
    for words in SELECTIONS:
        expected = ask("here", here, words)
        assert ask(on, there, words) == expected, words
        assert expected != ask("here", here, words[:1]), f"{words} selects everything"
    assert saved_model(there) == saved_model(here)
