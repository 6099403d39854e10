"""Texts of ranges and of the identity can hold anything: no output passes on what a terminal or a
browser obeys.
"""

import json
from pathlib import Path

import pytest

from ncclscope.capture import layout
from tests.support.player import ncclscope
from tests.support.writer.training import MS, PlantedCall, Program

_TEXT = "\x1b]0;owned\x07<script>alert(1)</script>\u202e\n=cmd|' /C calc'!A0"
_OBEYED = {"\x1b", "\x07", "\u202e", "\r"}  # by a terminal
_IN_ONE_LINE = _TEXT.replace("\n", "")  # as the identity has its values


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose modules, ranges and groups have hostile names."""
    path = tmp_path_factory.mktemp("hostile")
    for rank in range(2):
        program = Program(rank, 2, groups=False)
        program.who.more["gpu_timing.in_force"] = _IN_ONE_LINE + str(rank)
        program.who.more["gpu_timing.reason"] = _IN_ONE_LINE
        group = {"what": "group", "name": _TEXT, "description": _TEXT, "ranks": [0, 1]}
        program.context += [group, {"what": "failure", "why": _TEXT}]
        program.context.append({"what": "kernels", "file": "", "why": _TEXT})
        for _ in range(4):
            with program.range(_TEXT, layout.RANGE_MODULE):
                program.call("AllReduce", 4096, PlantedCall(None, None, None))
            with program.range("!" + _TEXT):
                program.wait(MS)
            with program.range("Optimizer.step#SGD.step"):
                program.wait(MS)
        program.push(_TEXT)
        program.write(path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("report",), ("report", "--by", "module"), ("report", "--by", "dimension,communicator"),
        ("diagnose",), ("status",), ("dump",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_terminals_get_no_control_characters(capture: Path, words: tuple[str, ...]) -> None:
    said = ncclscope(*words, capture)
    assert said.returncode in (0, 4), said.stderr
    assert not _OBEYED & set(said.stdout + said.stderr)


def test_compare_gives_terminals_no_control_characters(capture: Path) -> None:
    said = ncclscope("compare", capture, capture)
    words = " ".join(said.stdout.split())  # whatever the width
    assert "GPU timing: A \\x1b]0;owned" in words  # why it does not judge
    assert not _OBEYED & set(said.stdout + said.stderr)


def test_programs_get_texts_as_they_are(capture: Path) -> None:
    printed = ncclscope("dump", "--json", "--event", "Range", capture).stdout.splitlines()
    texts = {json.loads(line)["fields"]["text"] for line in printed}
    assert _TEXT in texts
    # Of a text without a place in the table the first 56 bytes are kept.
    assert _TEXT.encode()[:56].decode("utf-8", "replace") in texts


def test_pages_get_no_markup(capture: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert ncclscope("report", capture, "--html", page).returncode == 0
    assert "<script>alert" not in page.read_text()
    assert "&lt;script&gt;alert" in page.read_text()


def test_tables_for_spreadsheets_hold_whole_lines(capture: Path) -> None:
    lines = ncclscope("report", capture, "--csv", "--by", "module,function").stdout.splitlines()
    assert len(lines) == 2
    assert not lines[1].startswith("=")
