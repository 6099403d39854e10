"""Files that are written where other users may have prepared something."""

from pathlib import Path

import pytest

from ncclscope.capture import control
from ncclscope.capture.deletion import delete
from ncclscope.live.metrics_cache import MetricsCache
from ncclscope.live.textfiles import write_textfiles
from ncclscope.private_directory import UNFINISHED, new_path, new_private_file, write_private_text
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


def test_a_library_that_makes_its_file_itself_writes_through_no_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("before")
    path.symlink_to(victim)
    with new_path(path) as new:
        new.write_text("new")
    assert (victim.read_text(), path.read_text()) == ("before", "new")

    def make_half() -> None:
        with new_path(path) as new:
            new.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        make_half()
    assert path.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [path, victim]


def test_metrics_in_a_shared_directory_are_written_through_no_link(tmp_path: Path) -> None:
    """Others may write to node_exporter's directory, and `serve` may be root's."""
    victim = tmp_path / "victim"
    victim.write_text("before")
    for name in ("ncclscope-job.prom", "ncclscope-job.tmp"):
        (tmp_path / name).symlink_to(victim)
    cache = MetricsCache.__new__(MetricsCache)
    cache.of_hosts, cache.by_run = [], {"job": []}
    (written,) = write_textfiles(tmp_path, cache, set())
    assert victim.read_text() == "before"
    assert not written.is_symlink()
    assert written.stat().st_mode & 0o444 == 0o444, "node_exporter is another user"


def test_what_a_killed_command_left_goes_with_the_capture(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    (capture / "timeline").mkdir(parents=True)
    for place in (capture / "control", capture / "timeline" / "p.rows"):
        for digits in ("0123456789abcdef", "fedcba9876543210"):
            place.with_name(f"{UNFINISHED}{place.name}.{digits}").write_text("half")
    assert delete(capture) == []
    assert not capture.exists()
