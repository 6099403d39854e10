"""A line on the terminal that shows progress."""

import os
import sys
from pathlib import Path

from ncclscope.arrays.memory_limit import limit_memory
from ncclscope.capture.reader import is_dataset
from ncclscope.cli.arguments.engine import HERE
from ncclscope.cli.engine_options import engine_on
from ncclscope.cli.messages import print_message
from ncclscope.humanize import printable
from ncclscope.model.build import open_model
from ncclscope.model.model import Model, Progress


def progress_line(text: str) -> Progress | None:
    """A function that shows `text` with {done} and {of} filled in, or the name of a stage, and
    clears it at the end; None if stderr is no terminal.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, of: int, stage: str = "") -> None:
        line = "" if done >= of else text.format(done=done, of=of)
        if stage:
            line = f"{stage}: step {done + 1} of {of} …"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return show


def open_model_with_progress(capture: Path, on: str = HERE) -> Model:
    """The model of a capture; on a terminal, with a line that shows progress. `on`: what decodes
    it, as `--on` says.
    """
    limit_memory()
    if on != HERE and is_dataset(capture):
        print_message(
            f"ncclscope: {printable(str(capture))} is a dataset, which this machine reads: --on "
            f"{printable(on)} does no more than sum it up"
        )
    progress = progress_line("reading {done:,} of {of:,} processes …")
    model = open_model(capture, progress, engine_on(on))
    if progress:
        progress(1, 1)
    if not model.seal and not os.access(capture, os.W_OK):
        print_message(
            f"ncclscope: the model of {printable(str(capture))} was not saved: this user may not "
            "write there. Each command makes it again"
        )
    return model
