"""Writes of readers that fail in turn: no traceback, no hang, no partial file left as if whole.

READER_FAULTS says how many calls of each verb fail, spread over all of them; without it, all do.
"""

import errno
import os
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.results import publish, table
from tests.support.reader_faults import ERRORS, VERBS, build_library, sweep
from tests.support.writer import SyntheticSpec, synthetic

MOST_EACH = int(os.environ.get("READER_FAULTS", "1000000"))


def main() -> None:
    """Makes calls fail, one in each run."""
    problems: list[str] = []
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="reader-faults-") as directory:
        place = Path(directory)
        library = build_library(place)
        synthetic(place / "whole", SyntheticSpec(processes=2, operations=20))
        for verb in VERBS:
            result = sweep(library, place / "whole", place / "work", verb, MOST_EACH)
            ends = Counter(result.ends.values())
            bad = {at: end for at, end in result.ends.items() if end not in ("sentence", "whole")}
            problems += [f"{verb}: call {at}: {end}" for at, end in bad.items()]
            print(verb, result.calls, dict(ends), flush=True)
            runs = len(result.ends)
            calls = len({at.partition(" ")[0] for at in result.ends})
            rows.append(
                [verb, result.calls, calls, runs, ends["sentence"], ends["whole"], len(bad)]
            )
    header = ["verb", "calls that write", "of which failed", "runs", "sentence",
              "done all the same", "bad"]  # fmt: skip
    names = ", ".join(errno.errorcode[error] for error in ERRORS)
    note = (
        "In each run one of the verb's calls that write (open, write, pwrite, rename, mkdir, "
        f"ftruncate) fails, with {names} in turn. The capture has no saved model, so that most of "
        "the calls save one. Done all the same: the verb could do without it, and its output is "
        "whole. Bad: a traceback, a hang, or a partial file under its own name."
    )
    publish("reader_faults", f"{table(header, rows)}\n\n{note}")
    if problems:
        raise SystemExit("\n".join(problems[:20]))
