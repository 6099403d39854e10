"""Processes of a capture one after the other, decoded by several workers where there is much of it.

A worker keeps a process's columns until it is told where they go, and writes them there itself:
they never pass through a pipe. Each worker holds one process at a time.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.errors import NcclscopeError
from ncclscope.model.process.decoded_process import DecodedProcess, Placement, decode_process, place
from ncclscope.model.schema import Columns
from ncclscope.model.streams import FoundStreams

_WORTH_WORKERS_BYTES = 256 << 20
_MOST_WORKERS = 8
# Arguments of mallopt, and what they are set to. Memory that was given back to the kernel and asked
# for again costs as much as the numbers that are put into it.
_MALLOC = ((-3, 32 << 20), (-1, 512 << 20), (-2, 16 << 20))  # mmap threshold, trim threshold, pad


class Decoder(Protocol):
    """Decodes its processes one after the other: `part`, and unless that was a text, `put` and
    `found`.
    """

    def part(self) -> DecodedProcess | str:
        """The next process, or why it cannot be read."""

    def put(self, placement: Placement) -> None:
        """Where the process's operations go."""

    def found(self) -> FoundStreams:
        """What was found in them."""


class _InProcess:
    """In this process."""

    def __init__(self, folders: Sequence[Path], target: Path) -> None:
        self._folders, self._target = iter(folders), target
        self._columns: Columns = {}
        self._found: FoundStreams | None = None

    def part(self) -> DecodedProcess | str:
        with spill_large_arrays_to(self._target):
            decoded = decode_process(next(self._folders))
        if isinstance(decoded, str):
            return decoded
        part, self._columns = decoded
        return part

    def put(self, placement: Placement) -> None:
        with spill_large_arrays_to(self._target):
            self._found = place(self._columns, placement, self._target)
        self._columns = {}

    def found(self) -> FoundStreams:
        assert self._found is not None
        return self._found


class _Subprocess:
    """In a process of its own."""

    def __init__(self, folders: Sequence[Path], target: Path, others: list[Connection]) -> None:
        # fork: a script that opens a capture need not be importable, as spawn would have it.
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        others.append(self.pipe)
        self._process = context.Process(
            target=_work, args=(folders, target, theirs, others), daemon=True
        )
        self._process.start()
        theirs.close()

    def _receive(self) -> Any:
        try:
            received = self.pipe.recv()
        except EOFError:
            message = "cannot read the capture: a worker process was killed"
            raise NcclscopeError(message, "There may be too little memory for it") from None
        if isinstance(received, BaseException):
            raise received
        return received

    def part(self) -> DecodedProcess | str:
        received: DecodedProcess | str = self._receive()
        return received

    def put(self, placement: Placement) -> None:
        self.pipe.send(placement)

    def found(self) -> FoundStreams:
        received: FoundStreams = self._receive()
        return received

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _work(
    folders: Sequence[Path], target: Path, pipe: Connection, others: list[Connection]
) -> None:
    for other in others:  # so that workers see when the one who asked is gone
        other.close()
    keep_memory()
    here = _InProcess(folders, target)
    try:
        for _ in folders:
            part = here.part()
            pipe.send(part)
            if not isinstance(part, str):
                here.put(pipe.recv())
                pipe.send(here.found())
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except BaseException as error:  # theirs to show
        pipe.send(error)


def keep_memory() -> None:
    """Tells the C library to keep memory that is freed. For processes that only decode."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for what, value in _MALLOC:
            mallopt(what, value)


def _size_bytes(folders: Sequence[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.glob("log.*"))


@contextmanager
def decoders(folders: Sequence[Path], target: Path) -> Iterator[list[Decoder]]:
    """Those who decode: the first one the first folder, and so on in turns."""
    count = min(len(os.sched_getaffinity(0)), len(folders), _MOST_WORKERS)
    if not count or _size_bytes(folders) < _WORTH_WORKERS_BYTES:
        yield [_InProcess(folders, target)]
        return
    workers: list[_Subprocess] = []
    others: list[Connection] = []
    try:
        for number in range(count):
            workers.append(_Subprocess(folders[number::count], target, others))
        yield list(workers)
    finally:
        for worker in workers:
            worker.end()
