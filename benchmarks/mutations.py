"""Mutated captures over all verbs: no crash, no hang, no traceback, memory below 2 GB.

`python -m benchmarks mutations`; MUTATIONS says how many captures, MUTATIONS_SEED which seed is the
first, MUTATIONS_SECONDS when to stop. Each capture is read by some verbs, drawn from all of them,
in one child process.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.mutations import mutated_copy, whole_captures
from tests.support.verb_runs import import_modules, run_verbs

LONGEST_S = float(os.environ.get("MUTATIONS_SECONDS", "inf"))
CAPTURES = int(os.environ.get("MUTATIONS", "100000"))
FIRST_SEED = int(os.environ.get("MUTATIONS_SEED", "0"))
VERBS_EACH = 5  # of the 14
LIMIT_S = 120.0  # for one verb, on a busy machine
MEMORY_BAR = 2 << 30
_EXPORTS = ("csv", "jsonl", "parquet", "perfetto", "chrome", "inspector", "callbacks")


def verbs_for(capture: Path, whole: Path, out: Path, draw: random.Random) -> list[list[str]]:
    """Some of the verbs that read a capture, in an order of chance; one of each verb's outputs."""
    path = str(capture)
    to = draw.choice(_EXPORTS)
    runs = [
        ["report", path, *draw.choice(([], ["--json"], ["--csv"], ["--html", f"{out}/r.html"]))],
        ["diagnose", path, *draw.choice(([], ["--json"]))],
        ["status", path, *draw.choice(([], ["--json"]))],
        ["whatif", path],
        ["compare", *draw.sample((path, str(whole)), 2)],
        ["timeline", path, "--html", str(out / "t.html")],
        ["export", path, "--to", to, "-o", str(out / f"x.{to}")],
        ["dump", path, *draw.choice(([], ["--json"]))],
        ["pack", path, "-o", str(out / "p.tar.gz")],
        ["ls", str(capture.parent), *draw.choice(([], ["--json"]))],
        ["prune", str(capture.parent), "--keep", "0", "--dry-run"],
        ["serve", path, "--all-hosts", "--once"],
        ["top", path, "--once"],
        ["ctl", path, "--mode", "trace"],
    ]  # fmt: skip
    # A page takes as long as all others together: it is made for fewer captures.
    chosen = draw.sample(runs, VERBS_EACH)
    return [words for words in chosen if words[0] != "timeline" or draw.random() < 0.4]


def main() -> None:
    """Mutates and reads, and prints each problem with the seed that shows it."""
    problems: Counter[str] = Counter()
    runs = captures = 0
    peak_bytes, slowest_s, began = 0, 0.0, time.monotonic()
    import_modules()
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        (Path(directory) / "whole").mkdir()
        wholes = whole_captures(Path(directory) / "whole")
        for seed in range(FIRST_SEED, FIRST_SEED + CAPTURES):
            draw = random.Random(seed)
            whole, place = draw.choice(wholes), Path(directory) / "place"
            (place / "out").mkdir(parents=True)
            said = mutated_copy(whole, place / "captures" / "capture", seed)
            words = verbs_for(place / "captures" / "capture", whole, place / "out", draw)
            for run in run_verbs(words, LIMIT_S):
                runs += 1
                peak_bytes = max(peak_bytes, run.peak_bytes)
                slowest_s = max(slowest_s, run.took_s)
                problem = run.problem or ("memory" if run.peak_bytes > MEMORY_BAR else "")
                if problem:
                    problems[problem] += 1
                    last = run.errors.strip().splitlines()[-12:]
                    print(f"seed {seed} {whole.name} {' '.join(run.words[:2])}: {problem}: {said}")
                    print("    " + "\n    ".join(last), flush=True)
            captures += 1
            shutil.rmtree(place)
            if time.monotonic() - began > LONGEST_S:
                break
            if captures % 20 == 0:
                pace = captures / (time.monotonic() - began)
                print(f"{captures:,} captures, {pace:.1f}/s, {dict(problems)}", file=sys.stderr)
    header = ["captures", "runs of verbs", "crashes", "hangs", "tracebacks", "other", "peak memory"]
    crashes = sum(count for name, count in problems.items() if name.startswith("signal"))
    other = sum(problems.values()) - crashes - problems["hang"] - problems["traceback"]
    row: list[object] = [
        f"{captures:,}", f"{runs:,}", crashes, problems["hang"], problems["traceback"], other,
        f"{peak_bytes / 1e6:.0f} MB",
    ]  # fmt: skip
    note = (
        f"Seeds {FIRST_SEED:,} to {FIRST_SEED + captures - 1:,}. Each capture is a copy of one of "
        f"{len(wholes)} whole ones, damaged in up to four ways: bytes, slots, headers, identities, "
        "schemas, files of other kinds, and saved models whose checksums fit. Up to five of the 14 "
        f"verbs read each one. The slowest run took {slowest_s:.0f} s on a busy machine. Other: "
        "control characters, errors that say they are a mistake in ncclscope, memory above 2 GB."
    )
    publish("mutations", f"{table(header, [row])}\n\n{note}")
    if problems:
        raise SystemExit(f"{dict(problems)}")
