"""Makes the model of a capture on the workers of a Dask cluster.

A worker decodes a process, keeps its columns until their place in the model is known, and writes
them there itself, as the worker processes of model/decode_pool.py do. The later stages are tasks
that read and write these files. Operations never pass through the network; the capture lies on a
file system that all machines share. A task whose worker dies is done again by another one: it reads
the same files and writes the same bytes to the same place.
"""

import importlib
import itertools
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.arrays.memory_limit import memory_limit_bytes, memory_limited_to
from ncclscope.engines.cluster_answers import Answers
from ncclscope.engines.worker_check import check_versions, check_workers, versions_here
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import plural
from ncclscope.model.decode_pool import Decoder
from ncclscope.model.engine import Item, ProcessOperations, Result
from ncclscope.model.late_files import sizes_in, wait_for_process, waiting_for_late_files
from ncclscope.model.model import Progress
from ncclscope.model.process.decoded_process import (
    DecodedProcess,
    Placement,
    write_operations,
)
from ncclscope.model.schema import Columns
from ncclscope.model.store.checkpoints import rows_checksum
from ncclscope.model.store.decoded_files import process_of
from ncclscope.model.streams import StreamRanges

_CONNECT_S, _WORKERS_S = 30, 60
# One process is decoded while another one is placed; of large ones that takes no time, but memory.
_DECODERS_OF_A_THREAD, _OF_LARGE_PROCESSES = 2, 1
_LARGE_BYTES = 32 << 20  # of a process's files
_MOST_DECODERS = 512
_TASKS_OF_A_THREAD = 4  # of a stage, at least
_MOST_ROWS = 1 << 22  # operations of a task, if it has several processes
_MERGED_AT_ONCE = 8  # states
_PROCESSES = ("process", "processes")


@contextmanager
def cluster_engine(
    address: str,
    folders: Sequence[Path],
    target: Path,
    tell: Callable[[str], None],
    on: str = "",
    workers: int = 1,
    within_s: float = _WORKERS_S,
    wait_for_start: Callable[[], object] = bool,
) -> Iterator["ClusterEngine"]:
    """An engine for the folders.

    address         tcp://HOST:PORT, or file: and the path of a scheduler file
    tell            gets a line about what ran
    on              what people call the cluster, unless that is its address
    workers         that it should have, and within how many seconds; it goes on with fewer
    wait_for_start  returns when its workers start
    """
    on = on or address
    with _client(address) as client:
        wait_for_start()
        _wait_for_workers(client, on, workers, within_s)
        engine = ClusterEngine(client, on, target, check_workers(client, target))
        yield engine
        for line in engine.summary():
            tell(line)


def check_distributed(on: str) -> Any:
    """Dask's package; a UsageError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        message = f"cannot use --on {on}: the package distributed is not installed"
        raise UsageError(message, "Install it: pip install distributed") from None


@contextmanager
def _client(on: str) -> Iterator[Any]:
    distributed = check_distributed(on)
    logging.getLogger("asyncio").addFilter(_is_news)
    path = on.removeprefix("file:")
    where = {"scheduler_file": path} if on.startswith("file:") else {"address": on}
    if on.startswith("file:") and not Path(path).is_file():
        raise UsageError(f"there is no scheduler file {path}", "Start the scheduler first")
    try:
        client = distributed.Client(**where, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        message = f"cannot reach a Dask scheduler at {on}: {error}"
        raise NcclscopeError(message, "Check that it runs, or leave --on out") from None
    try:
        yield client
    finally:
        client.close()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether asyncio should report something. On Ctrl-C Dask leaves behind what waits for tasks:
    a traceback.
    """
    return record.exc_info is None or type(record.exc_info[1]).__name__ != "AllExit"


def _wait_for_workers(client: Any, on: str, workers: int, within_s: float) -> None:
    """Waits for `workers`, and goes on with fewer after a while; an error without any."""
    try:
        client.wait_for_workers(workers, timeout=within_s)
    except TimeoutError:
        if not client.nthreads():
            message = f"the Dask cluster at {on} has no workers after {within_s:.0f} s"
            raise NcclscopeError(message, "Start some, or leave --on out") from None


class ClusterEngine:
    """Carries out stages on the workers of a cluster."""

    repeats, threads = True, 1

    def __init__(self, client: Any, on: str, target: Path, workers: int) -> None:
        self._client, self._on, self._target = client, on, target
        self._answers = Answers(client, on, target)
        self._workers = workers  # threads of all of them
        self._limit = memory_limit_bytes()  # of each worker, while it does our tasks
        self._decoded: Counter[str] = Counter()  # processes, by host
        self._tasks: Counter[str] = Counter()  # of the other stages, by host

    @contextmanager
    def decoders(self, folders: Sequence[Path]) -> Iterator[list[Decoder]]:
        """Decoders of the folders: the first decodes the first folder, and so on in turns."""
        are_large = bool(folders) and sum(sizes_in(folders[0]).values()) > _LARGE_BYTES
        wanted = self._workers * (_OF_LARGE_PROCESSES if are_large else _DECODERS_OF_A_THREAD)
        count = min(wanted, len(folders), _MOST_DECODERS)
        decoders = [
            _ClusterDecoder(self._answers, folders[number::count]) for number in range(count)
        ]
        yield list(decoders)
        self._decoded = sum((decoder.hosts for decoder in decoders), Counter[str]())

    def bundles(self, processes: Sequence[ProcessOperations]) -> list[list[ProcessOperations]]:
        """As many as keep all workers busy, or more, so that each is small."""
        rows = sum(process.rows for process in processes)
        most = min(rows // (self._workers * _TASKS_OF_A_THREAD), _MOST_ROWS)
        bundles: list[list[ProcessOperations]] = []
        held = 0
        for process in processes:
            if not bundles or held + process.rows > most:
                bundles.append([])
                held = 0
            bundles[-1].append(process)
            held += process.rows
        return bundles

    def map(
        self,
        do: Callable[[Item], Result],
        items: Sequence[Item],
        progress: Progress | None = None,
    ) -> list[Result]:
        """`do(item)` of each item, in their order."""
        futures = self._submit_each(do, items)
        if progress:
            _show_each(futures, progress)
        return self._gather(futures)

    def _submit_each(self, do: Callable[[Item], Result], items: Sequence[Item]) -> list[Any]:
        # A task of its own, so that the scheduler holds what they share once and can give it to a
        # worker that comes later.
        shared = self._client.submit(_same, do, pure=False)
        call = _Limited(_call, self._limit)
        return [
            self._client.submit(call, shared, _fields(item), type(item), pure=False)
            if is_dataclass(item)
            else self._client.submit(call, shared, item, None, pure=False)
            for item in items
        ]

    def _gather(self, futures: list[Any]) -> list[Any]:
        """The results of `_call`."""
        self._answers.when_ended(futures)
        returned = self._answers.of(lambda: self._client.gather(futures))
        self._tasks.update(host for _, host in returned)
        return [value for value, _ in returned]

    def reduce(
        self,
        make: Callable[[Item], dict[int, Result]],
        items: Sequence[Item],
        merge: Callable[[Sequence[Result]], Result],
    ) -> dict[int, Any]:
        """States by key. They stay with the workers that made them, and are merged by a tree of
        tasks.
        """
        made = self._submit_each(make, items)
        keys = self._gather([self._client.submit(_keys, future, pure=False) for future in made])
        states: dict[int, list[Any]] = {}
        for future, own_keys in zip(made, keys, strict=True):
            for key in own_keys:
                state = self._client.submit(_state, future, key, pure=False)
                states.setdefault(key, []).append(state)
        return {key: self._merged(parts, merge) for key, parts in states.items()}

    def _merged(self, parts: list[Any], merge: Callable[[Sequence[Result]], Result]) -> Any:
        merged = _Limited(merge, self._limit)
        while len(parts) > 1:
            parts = [
                self._client.submit(merged, parts[first : first + _MERGED_AT_ONCE], pure=False)
                for first in range(0, len(parts), _MERGED_AT_ONCE)
            ]
        return parts[0]

    def summary(self) -> list[str]:
        """What ran where."""
        parts = []
        if self._decoded:
            parts.append(f"decoded on {self._on}: {_counted(self._decoded, *_PROCESSES)}")
        if self._tasks:
            parts.append(f"stages on {self._on}: {_counted(self._tasks, 'task', 'tasks')}")
        return parts


def _show_each(futures: list[Any], progress: Progress) -> None:
    """Shows each task that ends. Dask calls back in one thread of its own."""
    ended = itertools.count(1)

    def show(_: Any) -> None:
        done = next(ended)
        if done < len(futures):  # the caller clears the line
            progress(done, len(futures))

    for future in futures:
        future.add_done_callback(show)


def _counted(hosts: Counter[str], one: str, several: str) -> str:
    where = ", ".join(f"{name} {number:,}" for name, number in sorted(hosts.items()))
    return f"{plural(sum(hosts.values()), one, several)} ({where})"


def _fields(item: Any) -> list[Any]:
    """A dataclass as a list: in lists Dask finds states that stay with workers."""
    return [getattr(item, field.name) for field in fields(item)]


class _ClusterDecoder:
    """A decoder whose processes are decoded on the cluster; two of them at a time."""

    def __init__(self, answers: Answers, folders: Sequence[Path]) -> None:
        self._answers, self._target = answers, str(answers.target)
        self._folders, self._limit = iter(folders), memory_limit_bytes()
        self._held: Any = None  # the process that is being placed
        self._writing: Any = None
        self._next: Any = None
        self.hosts: Counter[str] = Counter()  # where processes were decoded
        self.checksum: int | None = None
        self._submit_next()

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        limited = _Limited(function, self._limit)
        return self._answers.client.submit(limited, *arguments, pure=False)

    def _submit_next(self) -> None:
        folder = next(self._folders, None)
        self._next = None
        if folder is not None:
            self._next = self._submit(_decode, str(folder), self._target, sizes_in(folder))

    def _result(self, future: Any) -> Any:
        self._answers.when_ended([future])
        return self._answers.of(future.result)

    def decode(self) -> DecodedProcess | str:
        """The next process, or why it cannot be read."""
        self._held = self._next
        decoded: DecodedProcess | str = self._result(self._submit(_without_columns, self._held))
        if isinstance(decoded, str):
            self._submit_next()
        return decoded

    def write(self, placement: Placement) -> None:
        """Has the process's operations written into the model's columns."""
        self._writing = self._submit(_write, self._held, placement, self._target)
        self._submit_next()

    def streams(self) -> StreamRanges:
        """The streams of the operations that were written."""
        ranges: StreamRanges
        ranges, self.checksum, host = self._result(self._writing)
        self.hosts[host] += 1
        self._held = self._writing = None  # the worker forgets its columns
        return ranges


# ---- on the workers ----
@dataclass(frozen=True, slots=True)
class _Limited:
    """Does something with so much memory, if it is not None. Dask shows what that is called.

    versions   of the command: a worker that joins later was not looked at
    """

    do: Callable[..., Any]
    limit: int | None
    versions: dict[str, str] = field(default_factory=versions_here)

    @property
    def __name__(self) -> str:
        return str(getattr(self.do, "__name__", type(self.do).__name__))

    def __call__(self, *arguments: Any) -> Any:
        here = versions_here()
        if here != self.versions:
            check_versions(socket.gethostname(), here, self.versions)
        with memory_limited_to(self.limit):
            return self.do(*arguments)


def _same(do: Any) -> Any:
    return do


def _call(do: Callable[[Any], Any], item: Any, kind: type | None) -> tuple[Any, str]:
    with waiting_for_late_files():
        return do(item if kind is None else kind(*item)), socket.gethostname()


def _keys(made: tuple[dict[int, Any], str]) -> tuple[list[int], str]:
    return list(made[0]), made[1]


def _state(made: tuple[dict[int, Any], str], key: int) -> Any:
    return made[0][key]


def _decode(
    folder: str, target: str, sizes: dict[str, int]
) -> tuple[DecodedProcess, Columns] | str:
    wait_for_process(Path(folder), sizes)
    with spill_large_arrays_to(Path(target)):
        return process_of(Path(folder))


def _without_columns(decoded: tuple[DecodedProcess, Columns] | str) -> DecodedProcess | str:
    return decoded if isinstance(decoded, str) else decoded[0]


def _write(
    decoded: tuple[DecodedProcess, Columns], placement: Placement, target: str
) -> tuple[StreamRanges, int, str]:
    columns = dict(decoded[1])  # a task that is repeated gets the same columns again
    ranges = write_operations(columns, placement, Path(target))
    return ranges, rows_checksum(columns), socket.gethostname()
