"""Metrics as files for node_exporter's textfile collector: `ncclscope serve --textfile`."""

import time
from contextlib import suppress
from pathlib import Path

from ncclscope.live.exposition import exposition
from ncclscope.live.metrics_cache import MetricsCache, sort_series
from ncclscope.private_directory import UNFINISHED, write_private_text

_ABANDONED_S = 60.0


def write_textfiles(
    directory: Path, cache: MetricsCache, previous: set[Path], interval_s: float = 1.0
) -> set[Path]:
    """Writes a file for each run, and returns their paths.

    Files of runs that are gone are removed: those of `previous`, and those that a killed `serve`
    left behind. node_exporter would export their last values for ever.
    """
    written = set()
    failed: OSError | None = None
    parts = [("system", cache.of_hosts)] if cache.of_hosts else []
    parts += sorted(cache.by_run.items())
    for number, (run, series) in enumerate(parts):
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in run)[:100] or str(number)
        path = directory / f"ncclscope-{safe}.prom"
        if path in written:
            path = directory / f"ncclscope-{safe}-{number}.prom"
        try:
            write_private_text(path, exposition(sort_series(series)), 0o644)
            written.add(path)
        except OSError as error:  # no values are better than old ones
            failed = error
            with suppress(OSError):
                path.unlink(missing_ok=True)
    for path in {*(previous - written), *(_abandoned(directory, interval_s) - written)}:
        path.unlink(missing_ok=True)
    if failed:
        raise failed
    return written


def _abandoned(directory: Path, interval_s: float) -> set[Path]:
    """Files that have not been written for longer than any `serve` pauses; another one may run."""
    oldest = time.time() - max(_ABANDONED_S, 10 * interval_s)
    paths = set()
    for pattern in ("ncclscope-*.prom", f"{UNFINISHED}ncclscope-*.prom.*"):
        for path in directory.glob(pattern):
            with suppress(OSError):  # another `serve` removed it
                paths |= {path} if path.lstat().st_mtime < oldest else set()
    return paths
