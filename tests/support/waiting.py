"""Waiting for something to happen, instead of for time to pass: how long it takes is the machine's affair."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ncclscope.capture.live_page import read_live_page

T = TypeVar("T")
PATIENCE_S = 60.0  # far longer than anything takes on a busy machine


def eventually(ask: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first answer that is true. A question that takes long is not asked all the time: the job
    that it is about runs on the same cores.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        answer = ask()
        now = time.monotonic()
        if answer or now > end:
            assert answer, f"not within {seconds} s"
            return answer
        time.sleep(max(0.1, 3 * (now - began)))


def wait_for_heartbeats(folder: Path, count: int) -> None:
    """Until the recorder of a running process has written its live page `count` more times.

    The recorder's thread writes the page, reads the control file and drains its streams in turn, so
    two heartbeats later it has seen whatever was there before.
    """
    wait_for_heartbeats_of([folder], count)


def wait_for_heartbeats_of(folders: Iterable[Path], count: int) -> None:
    """The same for several processes at once: one after the other could outlast the job."""

    def serial(folder: Path) -> int:
        page = read_live_page(folder)
        return page.serial if page else 0

    first = {folder: eventually(lambda folder=folder: serial(folder)) for folder in folders}
    for folder, begun in first.items():
        eventually(lambda folder=folder, begun=begun: serial(folder) >= begun + count)
