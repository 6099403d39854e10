"""A line on the terminal that shows how far the work is."""

import sys
from pathlib import Path

from ncclscope.model.build import open_model
from ncclscope.model.model import Model, Progress


def progress_line(text: str) -> Progress | None:
    """Shows `text` with {done} and {of} filled in, and nothing at the end; None without a
    terminal.
    """
    if not sys.stderr.isatty():
        return None

    def show(done: int, of: int) -> None:
        line = "" if done >= of else text.format(done=done, of=of)
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return show


def open_model_with_progress(capture: Path) -> Model:
    """The model of a capture; on a terminal one sees how far it is."""
    progress = progress_line("reading {done:,} of {of:,} processes …")
    model = open_model(capture, progress)
    if progress:
        progress(1, 1)
    return model
