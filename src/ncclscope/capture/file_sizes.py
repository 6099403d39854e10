"""How large the files of a capture can be. What is larger was made to waste a reader's memory."""

import os
from pathlib import Path

from ncclscope.regular_files import NotRegularError

LARGEST_META = 256 << 20  # a clock pair a second makes 256 MB in 48 days; later ones are not read
LARGEST_LIVE_PAGE = 1 << 20  # the recorder writes at most 128 KB
LARGEST_TALLY = 64 << 20  # the recorder keeps 4,100 keys, which are below 16 MB
LARGEST_ARENA = 512 << 20  # the recorder takes at most 256 MB
LEAST_CHUNK, LARGEST_CHUNK = 1 << 12, 64 << 20  # of an arena; the recorder's have 64 KB
# A log is written from its beginning to its end, and a compressing file system saves less than this
# share of it.
_LARGE_LOG, _LEAST_SHARE = 1 << 30, 64


def check_log_size(path: Path, state: os.stat_result) -> None:
    """Raises NotRegularError for a large log that is nearly all hole."""
    if state.st_size > _LARGE_LOG and state.st_blocks * 512 < state.st_size // _LEAST_SHARE:
        raise NotRegularError(path, f"nearly all of its {state.st_size:,} bytes are a hole")
