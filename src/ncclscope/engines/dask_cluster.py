"""Decodes the processes of a capture on the workers of a Dask cluster.

A worker decodes a process, keeps its columns until their place in the model is known, and writes
them there itself, as the worker processes of model/decode_pool.py do. Operations never pass through
the network; the capture lies on a file system that all machines share. A task whose worker dies is
done again by another one: it reads the same files and writes the same bytes to the same place.
"""

import importlib
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ncclscope._version import __version__
from ncclscope.arrays.library import spill_large_arrays_to
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.humanize import plural
from ncclscope.model.decode_pool import Decoder
from ncclscope.model.process.decoded_process import (
    DecodedProcess,
    Placement,
    write_operations,
)
from ncclscope.model.schema import Columns
from ncclscope.model.store.decoded_files import process_of
from ncclscope.model.streams import StreamRanges

_CONNECT_S, _WORKERS_S = 30, 60
_DECODERS_OF_A_THREAD = 2  # one process is decoded while another one is placed
_MOST_DECODERS = 512
_TOKEN = "cluster-token"


@contextmanager
def cluster_decoders(
    address: str,
    folders: Sequence[Path],
    target: Path,
    tell: Callable[[str], None],
    on: str = "",
    workers: int = 1,
    within_s: float = _WORKERS_S,
    wait_for_start: Callable[[], object] = bool,
) -> Iterator[list[Decoder]]:
    """Decoders of the folders: the first decodes the first folder, and so on in turns.

    address         tcp://HOST:PORT, or file: and the path of a scheduler file
    tell            gets a line about what ran
    on              what people call the cluster, unless that is its address
    workers         that it should have, within so many seconds; it goes on with fewer
    wait_for_start  returns when its workers start
    """
    on = on or address
    with _client(address) as client:
        wait_for_start()
        _wait_for_workers(client, on, workers, within_s)
        threads = _check_workers(client, target)
        count = min(threads * _DECODERS_OF_A_THREAD, len(folders), _MOST_DECODERS)
        decoders = [
            _ClusterDecoder(client, on, folders[number::count], target) for number in range(count)
        ]
        yield list(decoders)
        hosts = sum((decoder.hosts for decoder in decoders), Counter[str]())
        if hosts:
            where = ", ".join(f"{name} {number:,}" for name, number in sorted(hosts.items()))
            tell(
                f"decoded on {on}: {plural(sum(hosts.values()), 'process', 'processes')} ({where})"
            )


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


def _wait_for_workers(client: Any, on: str, workers: int, within_s: float) -> None:
    """Waits for so many workers, and goes on with fewer after a while; an error without any."""
    try:
        client.wait_for_workers(workers, timeout=within_s)
    except TimeoutError:
        if not client.nthreads():
            message = f"the Dask cluster at {on} has no workers after {within_s:.0f} s"
            raise NcclscopeError(message, "Start some, or leave --on out") from None


def _check_workers(client: Any, target: Path) -> int:
    """How many threads the workers have; an error unless they have this package and see the
    model's folder.
    """
    token = target / _TOKEN
    token.write_text(secrets.token_hex(16))
    try:
        answers = client.run(_look, str(token), on_error="return")
    finally:
        expected = (__version__, token.read_text())
        token.unlink()
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            message = f"worker {worker} cannot run ncclscope: {answer}"
            hint = f"Install ncclscope {__version__} for the Python that runs the workers"
            raise NcclscopeError(message, hint)
        if answer[0] != expected[0]:
            message = f"worker {worker} has ncclscope {answer[0]}, this is {expected[0]}"
            raise NcclscopeError(message, "Install the same version on both")
        if answer[1] != expected[1]:
            message = f"worker {worker} does not see {target.parent}"
            raise NcclscopeError(message, "Captures must be on a file system that workers share")
    return sum(client.nthreads().values())


class _ClusterDecoder:
    """A decoder whose processes are decoded on the cluster; two of them at a time."""

    def __init__(self, client: Any, on: str, folders: Sequence[Path], target: Path) -> None:
        self._client, self._on, self._target = client, on, str(target)
        self._folders = iter(folders)
        self._held: Any = None  # the process that is being placed
        self._writing: Any = None
        self._next: Any = None
        self.hosts: Counter[str] = Counter()  # where processes were decoded
        self._submit_next()

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.submit(function, *arguments, pure=False)

    def _submit_next(self) -> None:
        folder = next(self._folders, None)
        self._next = None if folder is None else self._submit(_decode, str(folder), self._target)

    def _result(self, future: Any) -> Any:
        distributed: Any = importlib.import_module("distributed")
        try:
            return future.result()
        except distributed.KilledWorker as error:
            message = f"cannot read the capture on {self._on}: its workers die ({error})"
            raise NcclscopeError(message, "They may have too little memory") from None
        except (CancelledError, distributed.comm.CommClosedError, TimeoutError):
            message = f"cannot read the capture on {self._on}: its scheduler is gone"
            raise NcclscopeError(message, "Run it again, or leave --on out") from None

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
        ranges, host = self._result(self._writing)
        self.hosts[host] += 1
        self._held = self._writing = None  # the worker forgets its columns
        return ranges


# ---- on the workers ----
def _look(token: str) -> tuple[str, str]:
    try:
        return __version__, Path(token).read_text()
    except OSError:
        return __version__, ""


def _decode(folder: str, target: str) -> tuple[DecodedProcess, Columns] | str:
    with spill_large_arrays_to(Path(target)):
        return process_of(Path(folder))


def _without_columns(decoded: tuple[DecodedProcess, Columns] | str) -> DecodedProcess | str:
    return decoded if isinstance(decoded, str) else decoded[0]


def _write(
    decoded: tuple[DecodedProcess, Columns], placement: Placement, target: str
) -> tuple[StreamRanges, str]:
    # A copy: a task that is repeated gets the same columns again.
    columns = {name: values.copy() for name, values in decoded[1].items()}
    return write_operations(columns, placement, Path(target)), socket.gethostname()
