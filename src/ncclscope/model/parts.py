"""What the model needs of each process, decoded by several workers where there is much of it."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ncclscope.capture.process import Process, open_process
from ncclscope.capture.segment import Blocks
from ncclscope.capture.slots import SlotLog
from ncclscope.errors import FormatError
from ncclscope.model import operations, steps
from ncclscope.model.decode import decode
from ncclscope.model.expansion import expand_groups
from ncclscope.model.local import LocalCommunicators
from ncclscope.model.operations import StampCounts
from ncclscope.model.steps import StepTimes
from ncclscope.model.tables import NONE, Columns
from ncclscope.model.words import Words

_WORTH_WORKERS_BYTES = 256 << 20
_MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Part:
    """One process. Codes are of its own words, communicators its own numbers, times its host's."""

    process: Process  # without its slots
    local: LocalCommunicators
    columns: Columns
    words: dict[str, list[str]]
    stamp_counts: StampCounts
    gpu_clock_error_ns: int
    sends: StepTimes
    receives: StepTimes
    impossible: int  # events left out, because their times cannot be
    unsized: int  # operations with a count that cannot be


def _without_slots(process: Process) -> Process:
    empty = np.empty(0, np.int64)
    return replace(process, slots=SlotLog([], Blocks(empty, empty, empty, empty), process.damage))


def decode_part(folder: Path) -> Part | str:
    """One process of a capture, or why it cannot be read."""
    try:
        process = open_process(folder)
    except (FormatError, OSError) as error:
        return str(error)
    words = Words()
    decoded = decode(process, tuple(dict.fromkeys((*operations.KINDS, *steps.KINDS))))
    made = operations.operations_from(decoded, words)
    columns = expand_groups(made.columns, made.local.ranks, words)
    operations.set_orders(columns)
    sends, receives = steps.steps_of(decoded)
    return Part(
        _without_slots(process),
        made.local,
        columns,
        words.lists,
        made.stamp_counts,
        max((clock.width_ns() for clock in made.clocks.values()), default=0),
        sends,
        receives,
        decoded.impossible,
        int(np.count_nonzero(columns["size_bytes"] == NONE)),
    )


def _size_bytes(folders: Sequence[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.glob("log.*"))


def decoded_parts(folders: Sequence[Path]) -> Iterator[Part | str]:
    """All processes in their order. Only a few are in memory at a time."""
    workers = min(len(os.sched_getaffinity(0)), len(folders), _MOST_WORKERS)
    if workers < 2 or _size_bytes(folders) < _WORTH_WORKERS_BYTES:
        yield from map(decode_part, folders)
        return
    # fork: a script that opens a capture need not be importable, as spawn would have it.
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        running: deque[Future[Part | str]] = deque()
        for folder in folders:
            running.append(pool.submit(decode_part, folder))
            if len(running) > workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
