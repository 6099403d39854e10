"""Two thousand random SIGKILLs under load, or `python -m benchmarks.kills --kills NUMBER`."""

import argparse
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.kill_loop import CHUNKS, MOST_USES, THREADS, kill_once

KILLS = 2000
CALLBACKS_PER_S = 1_500_000  # of each thread


def main(kills: int = KILLS) -> None:
    """Kills, checks, counts."""
    checked = dropping = 0
    recycled: list[int] = []
    problems: list[str] = []
    for seed in range(kills):
        with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
            verdict = kill_once(Path(directory), 1_000_000 + seed, CALLBACKS_PER_S)
        checked += verdict.checked
        dropping += verdict.refused > 0
        recycled.append(verdict.recycled)
        problems += [verdict.problem] if verdict.problem else []
    lost = sum("certain" in problem for problem in problems)
    corrupt = sum("hold something" in problem for problem in problems)
    header = ["kills", "records checked", "lost", "corrupt", "uses of a chunk", "runs with drops"]
    median = sorted(recycled)[kills // 2]
    row: list[object] = [kills, f"{checked / 1e6:.1f} M", lost, corrupt, median, dropping]
    note = (
        f"{THREADS} threads at {CALLBACKS_PER_S / 1e6} M callbacks/s each into an arena of "
        f"{CHUNKS} chunks of 64 KB, drained to disk; killed at random, after up to {MOST_USES} "
        "uses of each chunk. Lost and corrupt: kills after which a record that was certain was "
        "missing, or one held something else than it should."
    )
    publish("kills", f"{table(header, [row])}\n\n{note}")
    if problems:
        raise SystemExit(problems[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    main(parser.parse_args().kills)
