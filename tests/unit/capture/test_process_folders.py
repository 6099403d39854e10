"""What counts as the folder of a process."""

import os
from pathlib import Path

import pytest

from ncclscope.capture.housekeeping import describe, is_process_folder, process_folders
from ncclscope.capture.reader import is_capture


@pytest.mark.parametrize("name", ["meta", "arena", "log.000000", "log.000007"])
def test_any_file_of_a_process_makes_its_folder(name: str, tmp_path: Path) -> None:
    """Of a log, rotation may have left later segments alone."""
    folder = tmp_path / "capture" / "host.1.2"
    folder.mkdir(parents=True)
    assert not is_process_folder(folder)
    assert not is_capture(folder.parent)
    (folder / name).touch()
    assert is_process_folder(folder)
    assert process_folders(folder.parent) == [folder]
    assert is_capture(folder.parent)
    info = describe(folder.parent)
    assert info
    assert info.processes == 1


@pytest.mark.parametrize("name", ["live", "tally", "new.meta", "notes.txt"])
def test_other_files_do_not(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).touch()
    (tmp_path / "meta").touch()  # not a folder
    assert process_folders(tmp_path) == []


@pytest.mark.parametrize("what", ["listdir", "stat"])
def test_folders_of_other_users_are_left_out(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder that can be listed and not entered, too."""
    for name in ("a.1.1", "b.2.2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta").touch()
    allowed = getattr(os, what)

    def checked(path: str | Path, *words: object, **options: object) -> object:
        if "a.1.1" in str(path):
            raise PermissionError(path)
        return allowed(path, *words, **options)

    monkeypatch.setattr(os, what, checked)
    assert [folder.name for folder in process_folders(tmp_path)] == ["b.2.2"]
