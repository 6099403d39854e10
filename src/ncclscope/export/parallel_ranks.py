"""Work that is done rank by rank, several at once, and put together in the order of ranks."""

import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, BinaryIO

from ncclscope.errors import NcclscopeError
from ncclscope.export.trace_model import Rank
from ncclscope.export.written import Written
from ncclscope.model.model import Progress

WriteRank = Callable[[Rank, BinaryIO], Written]
_MOST_WORKERS = 16
_WORTH_WORKERS = 50_000  # operations; below, starting processes takes longer than the work


def write_ranks(
    ranks: Sequence[Rank],
    operations: int,
    write_rank: WriteRank,
    scratch: Path,
    out: BinaryIO,
    progress: Progress | None,
) -> Written:
    """Writes what `write_rank` makes of each rank to `out`; `operations` is how many there are."""
    workers = min(len(os.sched_getaffinity(0)), len(ranks), _MOST_WORKERS)
    total = Written(0)
    if workers < 2 or operations < _WORTH_WORKERS:
        for place, rank in enumerate(ranks):
            total = total.plus(write_rank(rank, out))
            if progress:
                progress(place + 1, len(ranks))
        return total
    with _started(ranks, write_rank, scratch, workers) as connections:
        for place in range(len(ranks)):
            connection = connections[place % workers]
            total = total.plus(_finished(connection))
            piece = _piece(scratch, place)
            with piece.open("rb") as made:
                shutil.copyfileobj(made, out, 1 << 20)
            piece.unlink()
            with suppress(BrokenPipeError):  # it was that worker's last
                connection.send(None)
            if progress:
                progress(place + 1, len(ranks))
    return total


def _piece(scratch: Path, place: int) -> Path:
    return scratch / f"rank-{place}"


def _finished(connection: "Connection[Any, Any]") -> Written:
    """What a worker wrote of its next rank."""
    try:
        found = connection.recv()
    except EOFError:
        hint = "Was it killed for its memory? Export fewer ranks, or a window of time"
        raise NcclscopeError("cannot export: a worker process died", hint) from None
    if isinstance(found, OSError):
        raise found
    if isinstance(found, str):
        raise RuntimeError(found)
    assert isinstance(found, Written)
    return found


@contextmanager
def _started(
    ranks: Sequence[Rank], write_rank: WriteRank, scratch: Path, workers: int
) -> Iterator[list["Connection[Any, Any]"]]:
    """Worker processes; each does every so-manieth rank, and is at most one ahead."""
    context = get_context("fork")  # columns are shared, and nothing needs to be importable
    processes: list[ForkProcess] = []
    connections: list[Connection[Any, Any]] = []
    try:
        for number in range(workers):
            here, there = context.Pipe()
            process = context.Process(
                target=_work, args=(there, ranks, write_rank, scratch, number, workers), daemon=True
            )
            process.start()
            there.close()
            processes.append(process)
            connections.append(here)
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.terminate()
            process.join()


def _work(
    connection: "Connection[Any, Any]",
    ranks: Sequence[Rank],
    write_rank: WriteRank,
    scratch: Path,
    number: int,
    workers: int,
) -> None:
    """One worker's life."""
    behind = 0
    for place in range(number, len(ranks), workers):
        try:
            with _piece(scratch, place).open("wb") as out:
                found: Written | OSError | str = write_rank(ranks[place], out)
        except OSError as error:
            found = error
        except Exception:
            found = traceback.format_exc()
        try:
            connection.send(found)
            behind += 1
            if behind > 1:
                connection.recv()
                behind -= 1
        except (EOFError, OSError):  # nobody waits for it any more
            return
