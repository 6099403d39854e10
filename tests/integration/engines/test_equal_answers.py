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
from ncclscope.model.decode_capture import decode_capture
from tests.support.dask_clusters import local_cluster
from tests.support.dataset_contents import dataset_in
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
    "times by events": lambda report: report["total"]["sources"]["gpu-event"],
    "2.23.4-v1-2ranks": lambda report: "AllReduce" in _functions(report),
    "2.28.9-v5-3ranks-hang": lambda report: report["completeness"]["in_flight"],
    "2.28.9-v5-4ranks": lambda report: {"Send", "Recv"} <= _functions(report),
    "2.31.2-v7-2ranks": lambda report: "AllReduce" in _functions(report),
}
WITH_PROXY_STEPS = ("2.28.9-v5-4ranks", "2.31.2-v7-2ranks")
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
def say(capsys: pytest.CaptureFixture[str]) -> Answers:
    """The exit code and text of a verb without the capture's name; `--on` a cluster or here."""

    def answer(on: str, capture: Path, words: Sequence[str]) -> tuple[int, str]:
        verb, *options = words
        if verb != "status":
            options += ["--on", on]
        captures = [str(capture)] * (2 if verb == "compare" else 1)
        code = main([verb, *options, *captures])
        return code, capsys.readouterr().out.replace(str(capture), "CAPTURE")

    return answer


@pytest.fixture
def ask(say: Answers) -> Answers:
    """The same with JSON."""

    def answer(on: str, capture: Path, words: Sequence[str]) -> tuple[int, Any]:
        verb, *options = words
        code, printed = say(on, capture, [verb, "--json", *options])
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
        # Names of one length: texts are as wide as they are long.
        both = tmp_path / "local" / "capture", tmp_path / "there" / "capture"
        for one in both:
            shutil.rmtree(one, ignore_errors=True)
            shutil.copytree(written(name), one)
        return both

    return copy


@pytest.mark.parametrize("name", MIXED)
def test_all_verbs(
    name: str,
    cluster: Any,
    ask: Answers,
    say: Answers,
    copies_of: Callable[[str], tuple[Path, Path]],
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
    for verb in ("report", "diagnose"):  # as people read it
        assert say(on, there, [verb]) == say("here", here, [verb]), verb
    assert exported(on, there, "jsonl") == exported("here", here, "jsonl")
    traced = exported("here", here, "chrome")  # calls, channels and proxy steps
    assert exported(on, there, "chrome") == traced
    assert name not in WITH_PROXY_STEPS or b'"cat":"step"' in traced
    assert not list(there.glob(".model-*"))


def test_processes_that_are_decoded(
    cluster: Any, ask: Answers, copies_of: Callable[[str], tuple[Path, Path]]
) -> None:
    """All of them, or every other one: answers are those of the logs."""
    raw, there = copies_of("2.28.9-v5-4ranks")
    expected = {verb: ask("here", raw, [verb]) for verb in ("report", "diagnose")}
    for kept in (0, 2):
        _, there = copies_of("2.28.9-v5-4ranks")
        assert decode_capture(there, remove_raw=True).decoded == 4
        for folder in sorted(path.parent for path in raw.glob("*/log.*"))[:kept]:
            shutil.rmtree(there / folder.name)
            shutil.copytree(folder, there / folder.name)
        assert len(list(there.glob("*/log.*"))) == kept
        for verb, answer in expected.items():
            assert ask(cluster.scheduler_address, there, [verb]) == answer, (kept, verb)


@pytest.mark.parametrize("name", ["attempts", "2.31.2-v7-2ranks"])
def test_a_dataset_that_workers_write(
    name: str, cluster: Any, copies_of: Callable[[str], tuple[Path, Path]]
) -> None:
    """Every row of every file."""
    both, on = copies_of(name), ("here", cluster.scheduler_address)
    with stages_seen() as seen:
        for capture, engine in zip(both, on, strict=True):
            path = str(capture.parent / "dataset")
            words = ["export", "--to", "parquet", "-o", path, "--on", engine, str(capture)]
            assert main(words) == 0
    assert "WriteNode" in seen
    expected, answer = (dataset_in(capture.parent / "dataset") for capture in both)
    assert answer == expected
    assert any(file.startswith("operations/node=0/") for file in expected)


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
