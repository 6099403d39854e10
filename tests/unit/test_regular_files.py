"""Files are opened for reading without waiting, and read up to what their format allows."""

import os
from pathlib import Path

import pytest

from ncclscope.regular_files import NotRegularError, open_binary, read_bytes


def test_fifos_directories_and_links_are_refused_and_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for name, kind in (("fifo", "a FIFO"), ("zero", "a symbolic link"), (".", "a directory")):
        with pytest.raises(NotRegularError, match=f"{name}: it is {kind}, not a regular file"):
            open_binary(tmp_path / name)
    for name, kind in (("link", "a FIFO"), ("zero", "a device")):
        with pytest.raises(NotRegularError, match=f"it is {kind}"):
            open_binary(tmp_path / name, follow=True)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(NotRegularError, match="8,589,934,592 bytes"):
        read_bytes(tmp_path / "sparse", 1 << 20)


def test_a_link_that_the_user_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", 4, follow=True) == b"text"
