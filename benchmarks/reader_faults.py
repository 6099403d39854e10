"""Writes of readers that fail in turn: no traceback, no hang, no partial file left as if whole."""

import errno
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.results import publish, table
from ncclscope.model.build import open_model
from tests.support.reader_faults import ERRORS, VERBS, Sweep, build_library, sweep
from tests.support.writer import SyntheticSpec, synthetic

SAVES_MODEL = "report"  # the others read a capture whose model is saved
ALL_CALLS = 1_000_000
MOST_EACH = {"export parquet": 40, "import": 40}  # of hundreds of calls; a run takes a second


def measure(verbs: Iterable[str]) -> dict[str, Sweep]:
    """Makes calls of those verbs fail, one in each run."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="reader-faults-") as directory:
        place = Path(directory)
        library = build_library(place)
        for name in ("new", "saved"):
            synthetic(place / name, SyntheticSpec(processes=2, operations=20))
        open_model(place / "saved")
        for verb in verbs:
            whole = place / ("new" if verb == SAVES_MODEL else "saved")
            most = MOST_EACH.get(verb, ALL_CALLS)
            results[verb] = sweep(library, whole, place / "work", verb, most)
            ends = Counter(results[verb].ends.values())
            print(verb, results[verb].calls, dict(ends), flush=True)
    return results


def publish_results(results: Mapping[str, Sweep]) -> list[str]:
    """Writes the table into its page; returns what went wrong."""
    problems: list[str] = []
    rows: list[list[object]] = []
    for verb, result in results.items():
        ends = Counter(result.ends.values())
        bad = {at: end for at, end in result.ends.items() if end not in ("sentence", "whole")}
        problems += [f"{verb}: call {at}: {end}" for at, end in bad.items()]
        calls = len({at.partition(" ")[0] for at in result.ends})
        runs = len(result.ends)
        rows.append([verb, result.calls, calls, runs, ends["sentence"], ends["whole"], len(bad)])
    header = ["verb", "calls that write", "of which failed", "runs", "sentence",
              "done all the same", "bad"]  # fmt: skip
    names = ", ".join(errno.errorcode[error] for error in ERRORS)
    note = (
        "In each run one of the verb's calls that write (open, write, pwrite, rename, mkdir, "
        f"ftruncate) fails, with {names} in turn. For `report` the capture has no saved model, so "
        "most of its calls save one. Done all the same: the verb could do without it, and its "
        "output is whole. Bad: a traceback, a hang, or a partial file under its own name."
    )
    publish("reader_faults", f"{table(header, rows)}\n\n{note}")
    return problems


def main() -> None:
    """Measures all verbs."""
    problems = publish_results(measure(VERBS))
    if problems:
        raise SystemExit("\n".join(problems[:20]))
