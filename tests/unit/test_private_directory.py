"""Files that are written where other users may have prepared something."""

from pathlib import Path

import pytest

from ncclscope.capture import control
from ncclscope.private_directory import new_private_file, write_private_text
from ncclscope.web.callback_index import save_rows


@pytest.mark.parametrize("kind", ["link", "hard link", "nothing"])
def test_nothing_is_written_through_a_link(kind: str, tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("before")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "hard link":
        path.hardlink_to(victim)
    write_private_text(path, "new")
    assert victim.read_text() == "before"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert not path.is_symlink()


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def write_half() -> None:
        with new_private_file(path) as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_requests_and_the_index_of_the_timeline_replace_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("before")
    for name in ("control", "p.rows", "p.json"):
        (tmp_path / name).symlink_to(victim)
    assert control.request(tmp_path, "mode trace") == 1
    save_rows([], {}, tmp_path / "p.rows")
    assert victim.read_text() == "before"
    assert (tmp_path / "control").read_text() == "serial 1\nmode trace\n"
