"""Deletes what ncclscope wrote into a capture, and nothing else: `run -o .` makes a capture of a
directory that holds the user's own files.
"""

import os
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from ncclscope.capture.housekeeping import is_process_folder

# Patterns of names. Of a process's folder:
_OF_PROCESS = (
    "meta", "tally", "live", "arena", "arena.partial", "context.jsonl", "log.[0-9]*", "new.*",
    "decoded.*",
)  # fmt: skip
# Of folders that readers keep in a capture: saved models, made ones, and the timeline's index.
_OF_READERS = {
    "model": ("manifest.json", "[a-z_]*.[a-z_]*"),
    ".model-*": ("manifest.json", "[a-z_]*.[a-z_]*"),
    "timeline": ("*.rows", "*.json", "*.mark", "new.*"),
}
# Of the capture's own directory: samples, requests, NCCL's log, a link to the plugin.
_OF_CAPTURE = ("system.*.jsonl", "control", "new.control.*", "debug.*", "plugin.so")
_SAVED_MODEL = "manifest.json"


def delete(capture: Path) -> list[Path]:
    """Deletes a capture. Returns what stays there because ncclscope did not write it. Links are
    never followed, and stay where other things of the user's do.
    """
    left: list[Path] = []
    links: list[Path] = []
    for entry in list(os.scandir(capture)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            patterns = _patterns_of(path)
            left += _empty(path, patterns) if patterns else [path]
        elif _is_one_of(entry.name, _OF_CAPTURE):
            path.unlink(missing_ok=True)
        else:
            (links if entry.is_symlink() else left).append(path)
    if left:
        return [*left, *links]
    for link in links:
        link.unlink(missing_ok=True)
    with suppress(OSError):  # something stays in it
        capture.rmdir()
    return left


def is_saved_model(folder: Path) -> bool:
    """Whether a folder holds a saved model, perhaps damaged, and nothing else. A directory `model`
    of the user's own, with weights in it, is none.
    """
    if not folder.is_dir() or folder.is_symlink():
        return False
    entries = list(os.scandir(folder))
    names = [entry.name for entry in entries]
    plain = all(not entry.is_dir(follow_symlinks=False) or _is_empty(entry) for entry in entries)
    fits = all(_is_one_of(name, _OF_READERS["model"]) for name in names)
    return plain and fits and (not names or _SAVED_MODEL in names)


def _is_empty(entry: "os.DirEntry[str]") -> bool:
    return not any(True for _ in os.scandir(entry.path))


def _patterns_of(folder: Path) -> tuple[str, ...]:
    """Names that ncclscope gives to files in a folder of a capture; none: it is not ncclscope's."""
    if is_process_folder(folder):
        return _OF_PROCESS
    if folder.name == "model" and not is_saved_model(folder):
        return ()
    return next((names for name, names in _OF_READERS.items() if fnmatch(folder.name, name)), ())


def _empty(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Deletes the files of a folder that match, and the folder if it is empty then; what stays."""
    left = []
    for entry in list(os.scandir(folder)):
        is_file = entry.is_symlink() or not entry.is_dir(follow_symlinks=False)
        if is_file and (entry.is_symlink() or _is_one_of(entry.name, patterns)):
            Path(entry.path).unlink(missing_ok=True)
        else:
            left.append(Path(entry.path))
    with suppress(OSError):
        folder.rmdir()
    return left


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
