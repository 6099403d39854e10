"""Faults in the first task of a stage on a Dask cluster: its worker dies, its disk is full, it hangs.

The command gets tasks that are wrapped when they are submitted; everything else is as always.
"""

import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ncclscope.engines import dask_cluster

Ask = Callable[[], Any]  # what a task does
_HELD_S = 300
LOST, EVENTS = "lost calls and a mismatch", "times by events"
# Stages in the order in which they run, with a capture of mixed_captures.py that needs them.
KILLED_IN = {
    "_decode": LOST,
    "_without_columns": LOST,
    "_write": LOST,
    "CompleteSizes": "2.23.4-v1-2ranks",
    "CommunicatorsOf": LOST,
    "NumberBySequence": LOST,
    "CountStreams": LOST,
    "FindEventTimes": EVENTS,
    "align_event_clocks": EVENTS,
    "MoveEventTimes": EVENTS,
    "FindBounds": LOST,
    "MoveTimes": LOST,
    "GatherStates": LOST,
    "_keys": LOST,
    "_state": LOST,
    "merge_instances": LOST,
    "count_state": LOST,
    "CastBallots": LOST,
    "WriteBlock": LOST,
    "SetWaits": LOST,
    "SeeInstances": LOST,
    "FirstTimesOf": "2.28.9-v5-3ranks-hang",
    "CountModules": LOST,
    "check_column": LOST,
    "LookAt": LOST,
    "SumOperations": LOST,
    "merge_sums": LOST,
    "_as_is": LOST,
}
ANSWERING = ["LookAt", "SumOperations", "merge_sums", "_as_is"]  # those of `report`
# Tasks of the account of waiting in windows, of `decode`, and of `export --to parquet`: each has a test
# of its own.
IN_WINDOWS = ["_Count", "_SampleTimes", "_FindRuns", "_InWindow"]
KILLED_APART = [*IN_WINDOWS, "_decode_folder", "WriteNode"]
# Not stages: a task of every stage, and the check of what an earlier command decoded.
OF_THE_ENGINE = ("_same", "_call", "_is_there")


def name_of(do: Any) -> str:
    """What a stage is called."""
    while isinstance(do, partial):
        do = do.func
    return str(getattr(do, "__name__", type(do).__name__))


@dataclass(frozen=True)
class _Once:
    """A task that goes wrong the first time, on whichever worker that is."""

    do: Any
    wrong: Callable[[Ask], Any]
    marker: Path  # is there when it went wrong

    @property
    def __name__(self) -> str:
        return name_of(self.do)

    def __call__(self, *arguments: Any) -> Any:
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return self.do(*arguments)
        return self.wrong(lambda: self.do(*arguments))


@contextmanager
def stages_seen() -> Iterator[list[str]]:
    """The stages that this process submits, in order; those of the engine itself begin with _."""
    with _submitting(lambda do: do) as seen:
        yield seen


@contextmanager
def fault_in(stage: str, wrong: Callable[[Ask], Any], marker: Path) -> Iterator[None]:
    """Has the first task of a stage go wrong."""
    with _submitting(lambda do: _Once(do, wrong, marker) if name_of(do) == stage else do):
        yield


@contextmanager
def _submitting(wrap: Callable[[Any], Any]) -> Iterator[list[str]]:
    import distributed

    submit, seen = distributed.Client.submit, list[str]()

    def wrapped(client: Any, do: Any, *arguments: Any, **options: Any) -> Any:
        if do is dask_cluster._same:  # what all tasks of a stage do, as an argument
            seen.append(name_of(arguments[0]))
            return submit(client, do, wrap(arguments[0]), **options)
        if isinstance(do, dask_cluster._Limited):  # what goes wrong does so with its limit
            seen.append(name_of(do.do))
            return submit(client, replace(do, do=wrap(do.do)), *arguments, **options)
        seen.append(name_of(do))
        return submit(client, wrap(do), *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed.Client, "submit", wrapped)
        yield seen


# ---- what goes wrong on the worker ----
def die(ask: Ask) -> None:
    """Ends the worker in the midst of the first thing that it writes, or before that gets its name;
    else with its work done and nobody told.
    """

    def write_half(target: int, values: Any, place: int) -> None:
        written = memoryview(values)
        pwrite(target, written[: len(written) // 2], place)
        _kill()

    pwrite, os.pwrite = os.pwrite, write_half  # type: ignore[assignment]
    decode: Any = importlib.import_module("ncclscope.model.decode_capture")
    decode.write_manifest = lambda *_: _kill()
    parquet_files: Any = sys.modules.get("ncclscope.export.parquet_files")
    if parquet_files is not None:
        parquet_files.put_file = lambda *_: _kill()
    ask()
    _kill()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk(ask: Ask) -> Any:
    """Lets no file be longer than some bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        return ask()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def hold(until: Path, ask: Ask) -> Any:
    """Begins when a file is there."""
    end = time.monotonic() + _HELD_S
    while not until.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return ask()
