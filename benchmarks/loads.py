"""The player's synthetic load: what one collective of it makes, and how to run it."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import ROOT
from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture
from ncclscope.native import player_path

MODES = ("profile", "trace", "full")


@dataclass(frozen=True, slots=True)
class Shape:
    """A collective as the player makes it for interface v7, by what a mode asks NCCL for.

    An event is what NCCL starts once; its states and its stop are callbacks, too.
    """

    channels: int
    steps: int  # of each of the 2 x channels proxy ops

    def events(self, mode: str) -> int:
        """Events a collective."""
        calls = 4 + self.channels  # GroupApi, CollApi, Group, Coll; a KernelCh each
        trace = calls + 1 + 2 * self.channels  # KernelLaunch; two ProxyOp each
        full = trace + 1 + 2 * self.channels * self.steps  # ProxyCtrl; ProxyStep
        return {"profile": calls, "trace": trace, "full": full}[mode]

    def callbacks(self, mode: str) -> int:
        """Callbacks a collective."""
        calls = 10 + 3 * self.channels
        trace = calls + 2 + 6 * self.channels
        full = trace + 4 + 10 * self.channels * self.steps
        return {"profile": calls, "trace": trace, "full": full}[mode]

    def options(self) -> list[object]:
        """For the player."""
        return ["--channels", self.channels, "--steps", self.steps]


def load_command(*options: object) -> list[str]:
    """The player's `load` with these options."""
    return [str(player_path()), "load", *map(str, options)]


def run_load(env: dict[str, str], *options: object) -> str:
    """Runs a load to its end; what the player printed."""
    ran = subprocess.run(
        load_command(*options), env=env, capture_output=True, text=True, check=True
    )
    return ran.stdout


def callbacks_and_refusals(printed: str) -> tuple[int, int]:
    """Callbacks that the player says it made, and events whose start the recorder refused."""
    line = re.search(r"made (\d+) callbacks of interface v\d, (\d+) starts refused", printed)
    if not line:
        raise SystemExit(f"the player did not do its work: {printed}")
    return int(line[1]), int(line[2])


def callbacks_made(printed: str) -> int:
    """Callbacks that the player says it made, none of them refused."""
    callbacks, refused = callbacks_and_refusals(printed)
    if refused:
        raise SystemExit(f"the player did not do its work: {printed}")
    return callbacks


def the_process(capture: Path) -> Process:
    """The only process of a capture."""
    (process,) = open_capture(capture).processes
    return process


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on the repository's own disk, removed afterwards."""
    (ROOT / ".bench").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        yield Path(directory)


def holds(does: bool) -> str:
    """How a bar is reported."""
    return "holds" if does else "**does not hold**"
