"""How much memory reading a capture may take: `NCCLSCOPE_MEMORY_LIMIT`, none by default.

The kernel keeps the limit, for each of our processes. Mapped files do not count: the kernel takes
their memory back when others need it.
"""

import os
import resource

from ncclscope.byte_sizes import size_in_bytes
from ncclscope.errors import UsageError

VARIABLE = "NCCLSCOPE_MEMORY_LIMIT"
_DATABASE_SHARE = 0.5  # numpy and Python have the rest


def memory_limit_bytes() -> int | None:
    """The limit; None where none is set."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    limit = size_in_bytes(text)
    if not limit:
        raise UsageError(f"{VARIABLE}={text} is no size", f"Set it as in {VARIABLE}=8G")
    return limit


def limit_memory() -> None:
    """Has the kernel refuse more memory to this process and to those that it starts."""
    limit = memory_limit_bytes()
    if limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def database_limit_bytes() -> int | None:
    """DuckDB's share of it."""
    limit = memory_limit_bytes()
    return None if limit is None else int(limit * _DATABASE_SHARE)
