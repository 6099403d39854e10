"""Memory of freed arrays stays with a command that makes many of them, one after the other.

The C library gives large blocks back to the kernel at once, and gets new ones page by page. Of a
run of millions of operations that was a quarter of what `diagnose` took.
"""

import ctypes

# Of glibc's malloc.h; other C libraries have none of them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_NEVER = -1
_AT_ONCE = 64 << 20  # bytes that the kernel is asked for


def keep_freed_memory() -> None:
    """From now on. For commands that end: a server must give memory back."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    settings = (
        (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _AT_ONCE), (_ARENA_MAX, 1),
    )  # fmt: skip
    for parameter, value in settings:
        mallopt(parameter, value)
