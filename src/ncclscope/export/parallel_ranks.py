"""Ranks written by several processes at once, and put together in the order of ranks."""

import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, BinaryIO

from ncclscope.errors import NcclscopeError
from ncclscope.export.result import ExportResult
from ncclscope.export.trace_model import Rank
from ncclscope.model.model import Progress

WriteRank = Callable[[Rank, BinaryIO], ExportResult]
_MOST_WORKERS = 16
_WORTH_WORKERS = 50_000  # operations; with fewer, starting processes takes longer than the work


def write_ranks(
    ranks: Sequence[Rank],
    operations: int,
    write_rank: WriteRank,
    scratch: Path,
    out: BinaryIO,
    progress: Progress | None,
) -> ExportResult:
    """Writes to `out` what `write_rank` makes of each rank. `operations`: of all ranks together."""
    workers = min(len(os.sched_getaffinity(0)), len(ranks), _MOST_WORKERS)
    total = ExportResult(0)
    if workers < 2 or operations < _WORTH_WORKERS:
        for place, rank in enumerate(ranks):
            total += write_rank(rank, out)
            if progress:
                progress(place + 1, len(ranks))
        return total
    with _start_workers(ranks, write_rank, scratch, workers) as connections:
        for place in range(len(ranks)):
            connection = connections[place % workers]
            total += _receive(connection)
            file = _rank_file(scratch, place)
            with file.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
            file.unlink()
            with suppress(BrokenPipeError):  # it was that worker's last rank
                connection.send(None)
            if progress:
                progress(place + 1, len(ranks))
    return total


def _rank_file(scratch: Path, place: int) -> Path:
    return scratch / f"rank-{place}"


def _receive(connection: "Connection[Any, Any]") -> ExportResult:
    """What a worker wrote of its next rank; raises what it raised."""
    try:
        result = connection.recv()
    except EOFError:
        hint = "Was it killed for its memory? Export fewer ranks, or a shorter time"
        raise NcclscopeError("cannot export: a worker process died", hint) from None
    if isinstance(result, OSError):
        raise result
    if isinstance(result, str):
        raise RuntimeError(result)
    assert isinstance(result, ExportResult)
    return result


@contextmanager
def _start_workers(
    ranks: Sequence[Rank], write_rank: WriteRank, scratch: Path, workers: int
) -> Iterator[list["Connection[Any, Any]"]]:
    """Connections to worker processes. With 3 workers the first writes ranks 0, 3, 6 and so on.

    A worker is at most one rank ahead, so that few files wait to be copied.
    """
    context = get_context("fork")  # columns are shared, and nothing needs to be importable
    processes: list[ForkProcess] = []
    connections: list[Connection[Any, Any]] = []
    try:
        for number in range(workers):
            parent_end, worker_end = context.Pipe()
            process = context.Process(
                target=_work,
                args=(worker_end, ranks, write_rank, scratch, number, workers),
                daemon=True,
            )
            process.start()
            worker_end.close()
            processes.append(process)
            connections.append(parent_end)
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
    """Writes the ranks of one worker, and sends what it wrote of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which the parent may catch; it ends them by it
    uncopied = 0
    for place in range(number, len(ranks), workers):
        try:
            with _rank_file(scratch, place).open("xb") as out:
                result: ExportResult | OSError | str = write_rank(ranks[place], out)
        except OSError as error:
            result = error
        except Exception:
            result = traceback.format_exc()
        try:
            connection.send(result)
            uncopied += 1
            if uncopied > 1:
                connection.recv()
                uncopied -= 1
        except (EOFError, OSError):  # the parent has given up
            return
