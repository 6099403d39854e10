"""Decodes the processes of a capture, large captures with several worker processes.

A worker keeps a process's columns until it learns their place in the model, and writes them there
itself: they never pass through a pipe. Each worker holds one process at a time.
"""

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.errors import NcclscopeError
from ncclscope.model.process.decoded_process import (
    DecodedProcess,
    Placement,
    write_operations,
)
from ncclscope.model.schema import Columns
from ncclscope.model.store.decoded_files import process_of
from ncclscope.model.streams import StreamRanges

_WORTH_WORKERS_BYTES = 256 << 20
# One process places what the others decode, and has work for about a tenth of their time with
# short captures, less with long ones.
_MOST_WORKERS = 64
# Parameters of mallopt and their values. Memory that is given back to the kernel and asked for
# again costs as much time as filling it.
_MALLOC = ((-3, 32 << 20), (-1, 512 << 20), (-2, 16 << 20))  # mmap threshold, trim threshold, pad


class Decoder(Protocol):
    """Decodes its processes one after the other: `decode`, and if that did not return an error,
    `write` and `streams`.
    """

    checksum: int | None  # of what was written; None where nobody notes it

    def decode(self) -> DecodedProcess | str:
        """The next process, or why it cannot be read."""

    def write(self, placement: Placement) -> None:
        """Writes the process's operations into the model's columns."""

    def streams(self) -> StreamRanges:
        """The streams of the operations that were written."""


class _InProcess:
    """A decoder in this process."""

    checksum: int | None = None

    def __init__(self, folders: Sequence[Path], target: Path) -> None:
        self._folders, self._target = iter(folders), target
        self._columns: Columns = {}
        self._streams: StreamRanges | None = None

    def decode(self) -> DecodedProcess | str:
        with spill_large_arrays_to(self._target):
            decoded = process_of(next(self._folders))
        if isinstance(decoded, str):
            return decoded
        process, self._columns = decoded
        return process

    def write(self, placement: Placement) -> None:
        with spill_large_arrays_to(self._target):
            self._streams = write_operations(self._columns, placement, self._target)
        self._columns = {}

    def streams(self) -> StreamRanges:
        assert self._streams is not None
        return self._streams


class _Subprocess:
    """A decoder in a worker process."""

    checksum: int | None = None

    def __init__(self, folders: Sequence[Path], target: Path, others: list[Connection]) -> None:
        # fork: a script that opens a capture need not be importable, as spawn requires.
        context = get_context("fork")
        self.pipe, worker_end = context.Pipe()
        others.append(self.pipe)
        self._process = context.Process(
            target=_work, args=(folders, target, worker_end, others), daemon=True
        )
        self._process.start()
        worker_end.close()

    def _receive(self) -> Any:
        try:
            received = self.pipe.recv()
        except EOFError:
            message = "cannot read the capture: a worker process was killed"
            raise NcclscopeError(message, "There may be too little memory for it") from None
        if isinstance(received, BaseException):
            raise received
        return received

    def decode(self) -> DecodedProcess | str:
        received: DecodedProcess | str = self._receive()
        return received

    def write(self, placement: Placement) -> None:
        self.pipe.send(placement)

    def streams(self) -> StreamRanges:
        received: StreamRanges = self._receive()
        return received

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _work(
    folders: Sequence[Path], target: Path, pipe: Connection, others: list[Connection]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the parent may catch; it ends them by it
    for other in others:  # so that a worker notices when its parent is gone
        other.close()
    keep_memory()
    decoder = _InProcess(folders, target)
    try:
        for _ in folders:
            process = decoder.decode()
            pipe.send(process)
            if not isinstance(process, str):
                decoder.write(pipe.recv())
                pipe.send(decoder.streams())
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except BaseException as error:  # the parent raises it
        pipe.send(error)


def keep_memory() -> None:
    """Has the C library keep memory that is freed. For processes that only decode."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC:
            mallopt(parameter, value)


def _size_bytes(folders: Sequence[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.glob("log.*"))


@contextmanager
def decoders(folders: Sequence[Path], target: Path) -> Iterator[list[Decoder]]:
    """Decoders of the folders: the first decodes the first folder, and so on in turns."""
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
