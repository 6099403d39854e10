"""What a user gets wrong is one sentence: what failed, on what, why, and what to do."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.player import ncclscope, player, recording


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes") / "c"
    assert player("load", "--collectives", "20", env=recording(path)).returncode == 0
    return path


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def said_by(words: list[str], capture: Path, taken: int = 0) -> str:
    """The one line that the command says, without its beginning."""
    replaced = [
        word.replace("CAPTURE", str(capture)).replace("TAKEN", str(taken)) for word in words
    ]
    ran = ncclscope(*replaced)
    assert ran.returncode in (1, 2), ran.stderr
    lines = [line for line in ran.stderr.splitlines() if not line.startswith("NCCL ")]
    assert len(lines) == 1, ran.stderr
    return lines[0].removeprefix("ncclscope: ")


@pytest.mark.parametrize(
    ("words", "what", "cause"),
    [
        (["report", "/nosuch"], "cannot open /nosuch", "no such directory"),
        (["report", "CAPTURE", "--html", "/nosuch/x"], "cannot write /nosuch/x", "No such file or directory"),
        (["export", "CAPTURE", "-o", "/nosuch/x.json"], "cannot write /nosuch/x.json", "No such file or directory"),
        (["timeline", "CAPTURE", "--html", "/nosuch/x"], "cannot write /nosuch/x", "No such file or directory"),
        (["timeline", "CAPTURE", "--no-open", "--port", "TAKEN"], "cannot listen on 127.0.0.1 port TAKEN", "Address already in use"),
        (["timeline", "CAPTURE", "--no-open", "--port", "99999"], "cannot listen on 127.0.0.1 port 99999", "port must be 0-65535"),
        (["timeline", "CAPTURE", "--no-open", "--host", "256.1.1.1"], "cannot listen on 256.1.1.1 port 0", ".*not known.*"),
        (["serve", "--port", "TAKEN"], "cannot listen on 127.0.0.1:TAKEN", "Address already in use"),
        (["serve", "--port", "99999"], "cannot listen on 127.0.0.1:99999", "port must be 0-65535"),
        (["diagnose", "CAPTURE", "--baseline", "/nosuch"], "cannot read /nosuch", "No such file or directory"),
        (["diagnose", "CAPTURE", "--baseline", "/etc/passwd"], "cannot read /etc/passwd", "it is not JSON"),
        (["compare", "CAPTURE", "/nosuch"], "cannot open /nosuch", "no such directory"),
        (["import", "/nosuch", "-o", "x"], "cannot import /nosuch", "no such file or directory"),
        (["pack", "CAPTURE", "-o", "/nosuch/x"], "cannot write /nosuch/x", "No such file or directory"),
        (["ls", "/nosuch"], "cannot list /nosuch", "no such directory"),
        (["prune", "--keep", "5"], "--keep 5 would delete every finished capture", "it says 5 bytes"),
        (["prune", "/nosuch", "--keep", "1G"], "cannot list /nosuch", "no such directory"),
        (["demo", "--scenario", "/nosuch"], "cannot read the scenario /nosuch", "No such file or directory"),
        (["demo", "--scenario", "/bin/sh"], "cannot read the scenario /bin/sh", "it is no text"),
        (["bench", "--simulate", "-b", "1K", "--save", "/nosuch/x"], "cannot write /nosuch/x", ".*"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_sentence(words: list[str], what: str, cause: str, capture: Path, taken: int) -> None:
    said = said_by(words, capture, taken)
    named = re.escape(what.replace("TAKEN", str(taken)))
    shape = rf"{named}: {cause}\. [A-Z`].*[^.]"
    assert re.fullmatch(shape, said), said
    assert "Errno" not in said


def test_a_port_of_ranks_that_is_taken(
    capture: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    words = ["bench", "--simulate", "-b", "1K", "--address", f"127.0.0.1:{taken}"]
    said = said_by(words, capture)
    assert said.startswith(f"cannot listen at 127.0.0.1:{taken}: Address already in use. Choose ")
    assert "--port" not in said  # bench has none


def test_what_could_not_be_packed_leaves_nothing(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").mkdir()
    said = said_by(["pack", "CAPTURE", "-o", str(tmp_path / "x.tar.gz")], capture)
    assert "it is a directory" in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]
