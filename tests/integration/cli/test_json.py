"""JSON of all verbs: a version, and one name with one unit for one thing (docs/json.md)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclscope.cli import COMMANDS, verb_parser
from ncclscope.json_answers import VERSION
from ncclscope.simulation.scenario import Call, Communicators, Late, Scenario
from tests.support.player import ncclscope
from tests.support.writer import write_scenario

JOB = Scenario(
    ranks=4,
    steps=12,
    communicators=(Communicators("world"), Communicators("dp", 2, 2)),
    calls=(Call("dp", "AllReduce", 1 << 20), Call("world", "SendRecv", 1 << 16)),
    late=(Late(rank=2, ms=20),),
)
WORDS = {
    "report": ("report", "CAPTURE"),
    "status": ("status", "CAPTURE"),
    "diagnose": ("diagnose", "CAPTURE"),
    "whatif": ("whatif", "CAPTURE", "--without", "rank", "2"),
    "compare": ("compare", "CAPTURE", "CAPTURE"),
    "history": ("history", "list", "HISTORY"),
    "ls": ("ls", "CAPTURE"),
    "doctor": ("doctor",),
}
ELSEWHERE = {"bench", "overhead", "dump"}  # need a job, or have a page of their own
FORBIDDEN = {"bytes", "order", "path", "newest"}  # size_bytes, total_bytes; call_order; capture
FREE = {"facts", "checks", "completeness"}  # objects whose keys are a rule's or a check's own


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("json")
    write_scenario(folder / "job", JOB, 1)
    assert ncclscope("history", "add", folder / "history", folder / "job").returncode == 0
    return {"CAPTURE": folder / "job", "HISTORY": folder / "history"}


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from keys(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            if name not in FREE:
                yield from keys(each)


@pytest.mark.parametrize("verb", WORDS)
def test_a_verbs_json_has_a_version_and_the_names_of_all_verbs(
    places: dict[str, Path], verb: str
) -> None:
    words = [places.get(word, word) for word in WORDS[verb]]
    answer = json.loads(ncclscope(*words, "--json").stdout)
    assert next(iter(answer)) == "version"
    assert answer["version"] == VERSION
    names = set(keys(answer))
    assert not names & FORBIDDEN
    assert not [name for name in names if name.endswith(("_us", "_ms", "_seconds"))]


def test_all_verbs_with_json_are_looked_at() -> None:
    with_json = {
        verb
        for verb in COMMANDS
        if any("--json" in action.option_strings for action in verb_parser(verb)._actions)
    }
    assert with_json == set(WORDS) | ELSEWHERE
