"""Writes of readers that fail in turn: no traceback, no hang, no partial file left as if whole."""

import errno
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.reader_faults import ERRORS, VERBS, build_library, run_with_fault, writes_of
from tests.support.writer import SyntheticSpec, synthetic

MOST_EACH = 10  # or up to twice as many calls of a verb fail, spread over all of them


def main() -> None:
    """Makes calls fail, one in each run."""
    problems: list[str] = []
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        place = Path(directory)
        library = build_library(place)
        whole = place / "whole"
        synthetic(whole, SyntheticSpec(processes=2, operations=20))
        for name, words in VERBS.items():
            calls = writes_of(library, whole, place / "work", words)
            step = max(calls // MOST_EACH, 1)
            ends: Counter[str] = Counter()
            for number in range(1, calls + 1, step):
                for error in ERRORS:
                    end = run_with_fault(library, whole, place / "work", words, number, error)
                    ends[end] += 1
                    if end not in ("sentence", "whole"):
                        problems.append(f"{name}: call {number} {errno.errorcode[error]}: {end}")
            bad = sum(ends.values()) - ends["sentence"] - ends["whole"]
            rows.append([name, calls, sum(ends.values()), ends["sentence"], ends["whole"], bad])
    header = [
        "verb",
        "calls that write",
        "failed once each",
        "sentence",
        "done all the same",
        "bad",
    ]
    names = ", ".join(errno.errorcode[error] for error in ERRORS)
    note = (
        "In each run one of the verb's calls that write (open, write, pwrite, rename, mkdir, "
        f"ftruncate) fails with {names}; of many calls, about {MOST_EACH}. Done all the same: the "
        "verb could do without it, and its output is whole. Bad: a traceback, a hang, or a partial "
        "file under its own name."
    )
    publish("reader_faults", f"{table(header, rows)}\n\n{note}")
    if problems:
        raise SystemExit("\n".join(problems[:20]))
