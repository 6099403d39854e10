"""Outputs replace regular files only. Nodes here are scratch nodes in a temporary directory."""

import gzip
import os
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.output_files import (
    check_directory,
    holds_only,
    open_output,
    put_directory,
    write_text,
)


def null_device(path: Path) -> Path:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_bytes(b"")
    except OSError:  # not root, or a file system without devices
        pytest.skip("no device nodes can be made here")
    return path


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = null_device(tmp_path / "null")
    write_text(device, "text")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_fifo_gets_the_text_and_stays_a_fifo(tmp_path: Path) -> None:
    fifo, received = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()), daemon=True)
    reader.start()
    write_text(fifo, "text")
    reader.join(10)
    assert received == ["text"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_that_nobody_reads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncclscope.output_files._READER_WAIT_S", 0.0)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NcclscopeError, match="no program reads from it"):
        write_text(tmp_path / "fifo", "text")


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(UsageError, match="it is a socket"):
            write_text(tmp_path / "s", "text")
    assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1"])
def test_names_of_stdout(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_text(Path(name), "text")
    assert capfdbinary.readouterr().out == b"text"


def write_half(path: Path) -> None:
    with open_output(path) as (out, _):
        out.write(b"half")
        raise OSError(28, "No space left on device")


def test_a_file_is_old_or_new_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"old")
    with pytest.raises(NcclscopeError, match="No space left"):
        write_half(path)
    assert path.read_bytes() == b"old"
    write_text(path, "new")
    assert gzip.decompress(path.read_bytes()) == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_force_replaces_nothing_but_exports(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.mkdir()
    (path / "a.log").write_text("")
    check_directory(path, True, holds_only("*.log"))
    (path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="is not a dataset"):
        check_directory(path, True, holds_only("*.log"))


def test_a_directory_is_put_back_if_the_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    old = tmp_path / "export"
    old.mkdir()
    (old / "file").write_text("old")
    with pytest.raises(OSError, match="No such file"):
        put_directory(tmp_path / "scratch-that-is-gone" / "directory", old)
    assert (old / "file").read_text() == "old"


def test_shared_memory_holds_plain_files() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "out"
        write_text(path, "a")
        write_text(path, "ab")
        assert path.read_text() == "ab"
