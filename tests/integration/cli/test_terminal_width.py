"""On a terminal of 80 columns lines fit, but for paths, which stay in one piece."""

import os
import pty
import sys
from pathlib import Path

import pytest

from tests.support.writer import SyntheticSpec, synthetic

_COLUMNS = 80


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("w") / "c"
    synthetic(path, SyntheticSpec(processes=2, operations=20))
    return path


def _shown(*words: str | Path) -> list[str]:
    """The lines that a terminal gets."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"COLUMNS": str(_COLUMNS), "TERM": "dumb"}
        os.execv(sys.executable, [sys.executable, "-m", "ncclscope", *map(str, words)])
    shown = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the verb has ended
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    os.waitpid(child, 0)
    return [line.rpartition("\r")[2] for line in shown.decode().replace("\r\n", "\n").split("\n")]


@pytest.mark.parametrize("verb", ["doctor", "pack", "status", "compare", "diagnose"])
def test_lines_fit_but_for_paths(verb: str, capture: Path, tmp_path: Path) -> None:
    more: dict[str, list[str | Path]] = {
        "doctor": [], "pack": [capture, "-o", tmp_path / "p.tar.gz"],
        "compare": [capture, capture],
    }  # fmt: skip
    shown = _shown(verb, *more.get(verb, [capture]))
    assert any(shown)
    assert not [line for line in shown if len(line) > _COLUMNS and "/" not in line]
