"""How much memory reading a capture may take: `NCCLSCOPE_MEMORY_LIMIT`, none by default.

The kernel keeps the limit, for each of our processes. Mapped files do not count: the kernel takes
their memory back when others need it.
"""

import importlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncclscope.byte_sizes import size_in_bytes
from ncclscope.errors import UsageError

VARIABLE = "NCCLSCOPE_MEMORY_LIMIT"
_DATABASE_SHARE = 0.5  # numpy and Python have the rest
# The setting of DuckDB's allocator, which it reads when it is loaded. Threads that start share an
# arena: it crashes where there is no memory for one of their own.
_ALLOCATOR, _ONE_ARENA = "DUCKDB_JE_MALLOC_CONF", "narenas:1"
# Above what is taken when a limit begins. With less Python cannot even import and says why.
_LEAST_BYTES = 64 << 20
# What commands allow this process as a worker, while it does their tasks, and what it had before.
_allowed: list[int] = []
_soft_limit_before: list[int] = []
_lock = threading.Lock()


def memory_limit_bytes() -> int | None:
    """The limit; None where none is set. That of a worker is the least of its own and of those of
    the commands that it works for.
    """
    limits = list(_allowed)
    if text := os.environ.get(VARIABLE, ""):
        own = size_in_bytes(text)
        if not own:
            raise UsageError(f"{VARIABLE}={text} is no size", f"Set it as in {VARIABLE}=8G")
        limits.append(own)
    return min(limits, default=None)


def limit_memory() -> None:
    """Has the kernel refuse more memory to this process and to those that it starts."""
    limit = memory_limit_bytes()
    if limit is not None:
        with database_of_one_arena():  # some verbs import it later than this
            importlib.import_module("duckdb")
        _check_room(limit)
        _limit_to(limit)
        # Of threads that find no memory to begin: others do their work. `bool` needs none itself.
        sys.unraisablehook = bool


@contextmanager
def memory_limited_to(limit: int | None) -> Iterator[None]:
    """Has the kernel refuse more memory to this process meanwhile; None: no more than always.
    Threads may do this at once: the least limit holds for all of them.
    """
    if limit is None:
        yield
        return
    _check_room(limit)
    with _lock:
        if not _allowed:
            _soft_limit_before[:] = [resource.getrlimit(resource.RLIMIT_DATA)[0]]
        _allowed.append(limit)
        _limit_to(min(_allowed))
    try:
        yield
    finally:
        with _lock:
            _allowed.remove(limit)
            _limit_to(min(_allowed, default=_soft_limit_before[0]))


def _check_room(limit: int) -> None:
    """A UsageError where a limit leaves no room to work in."""
    lines = Path("/proc/self/status").read_text().splitlines()
    taken = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))
    least = taken + _LEAST_BYTES
    if limit < least:
        message = f"{VARIABLE} allows {limit >> 20}M, and {taken >> 20}M are taken before any work"
        raise UsageError(message, f"Set it to {(least >> 20) + 1}M at least")


def _limit_to(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [size for size in (limit, hard) if size != resource.RLIM_INFINITY]
    most = min(limits, default=resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


@contextmanager
def database_of_one_arena() -> Iterator[None]:
    """Has DuckDB, if it is loaded meanwhile, live with a limit. Processes that are started later
    do not get its variable.
    """
    if not os.environ.get(VARIABLE) or _ALLOCATOR in os.environ:
        yield
        return
    os.environ[_ALLOCATOR] = _ONE_ARENA
    try:
        yield
    finally:
        del os.environ[_ALLOCATOR]


def database_limit_bytes() -> int | None:
    """DuckDB's share of it."""
    limit = memory_limit_bytes()
    return None if limit is None else int(limit * _DATABASE_SHARE)
