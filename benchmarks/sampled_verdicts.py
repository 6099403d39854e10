"""What `diagnose` names where GPU times are sampled, beside the same jobs with all of them.

Jobs of the laboratory with a late rank, or with links that become slow halfway, and healthy ones:
how many of the planted faults are named (recall), and how many of the named ones are true
(precision). Then the same of random jobs that are long enough for a sample, and false alarms in the
healthy jobs of the laboratory. `python -m benchmarks.sampled_verdicts`.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path

from benchmarks.results import publish, table
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import INFO, Finding
from ncclscope.model.build import open_model
from tests.support.laboratory.kinds import all_kinds, drops_and_late_ranks
from tests.support.laboratory.random_jobs import random_kind
from tests.support.laboratory.recording import Recording
from tests.support.laboratory.score import Score, score_capture
from tests.support.laboratory.shapes import HEALTHY
from tests.support.laboratory.truth import Kind

SEEDS = 2
RECORDINGS = {
    "kernel": Recording(),
    "sampled, one of 16": Recording(timed_every=16),
    "sampled, one of 64": Recording(timed_every=64),
}
# Random jobs: with the usual 12 to 60 steps, a sample of one in 16 would hold one step or four.
FIRST_SEED, RANDOM_JOBS, LONGER = 30_001, 60, 8
RANKS_AT_MOST = 32  # of the healthy kinds, of which one of 8 operations is timed
JUDGED = ("degradation", "straggler", "slow_link")


def is_true(kind: Kind, finding: Finding) -> bool:
    """Whether a finding names what was planted."""
    if not kind.faults:
        return False
    fault = kind.faults[0]
    if fault.kind == "host":
        return finding.family == "straggler" and finding.ranks == (fault.rank,)
    return finding.family in ("degradation", "slow_link")


def findings_of(kind: Kind, seed: int) -> list[Finding]:
    """Findings of the judged families about one job."""
    with tempfile.TemporaryDirectory() as directory:
        kind.write(Path(directory) / "capture", seed)
        findings = diagnose(open_model(Path(directory) / "capture"), None).findings
    return [f for f in findings if f.family in JUDGED and f.severity != INFO]


def rows() -> Iterator[list[object]]:
    """Rows by fault and timing."""
    for timing, recording in RECORDINGS.items():
        counts: dict[str, Counter[str]] = {}
        for kind in drops_and_late_ranks():
            own = counts.setdefault(kind.name.rpartition(", ")[2], Counter())
            for seed in range(1, SEEDS + 1):
                findings = findings_of(replace(kind, recording=recording), seed)
                true = [finding for finding in findings if is_true(kind, finding)]
                own.update(jobs=1, named=bool(true), true=len(true), said=len(findings))
        for fault, own in counts.items():
            recall = "–" if fault == HEALTHY else f"{own['named']} of {own['jobs']}"
            precision = f"{own['true']} of {own['said']}" if own["said"] else "–"
            yield [timing, fault, own["jobs"], recall, precision]


def _score(kind: Kind, seed: int) -> Score:
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(directory) / "capture"
        return score_capture(capture, kind.write(capture, seed), ask_whatif=False)


def score_random(seed: int) -> Score:
    """A random job of many steps with one of 16 operations timed."""
    kind = random_kind(seed, longer=LONGER)
    return _score(replace(kind, recording=replace(kind.recording, timed_every=16)), seed)


def score_healthy(name: str) -> Score:
    """A healthy job with one of 8 operations timed."""
    kind = all_kinds()[name]
    return _score(replace(kind, recording=replace(kind.recording, timed_every=8)), 1)


def sums(jobs: str, scores: list[Score]) -> list[object]:
    """A row: what was named in jobs with a fault, and said of healthy ones."""
    healthy = [score for score in scores if score.kind.endswith(HEALTHY)]
    alarms = sum(bool(score.false_alarms) for score in healthy)
    faults = sum(score.faults for score in scores)
    wrong = sum(len(score.false_alarms) for score in scores if score not in healthy)
    named = f"{sum(score.named for score in scores)} of {faults}" if faults else "–"
    return [jobs, f"{alarms} of {len(healthy)}", named, wrong if faults else "–"]


def main() -> None:
    """Publishes the tables."""
    seeds = range(FIRST_SEED, FIRST_SEED + RANDOM_JOBS)
    healthy = [name for name, kind in all_kinds().items() if not kind.faults]
    healthy = [name for name in healthy if all_kinds()[name].ranks <= RANKS_AT_MOST]
    with Pool() as pool:
        drawn = pool.map(score_random, seeds, chunksize=1)
        written = pool.map(score_healthy, healthy, chunksize=1)
    for score in [*drawn, *written]:
        if score.failures:
            print(score.kind, score.seed, *score.failures, sep="\n    ")
    columns = ["jobs", "healthy ones with a false alarm", "faults named", "wrongly named"]
    own = [
        sums(f"random, {LONGER} times as long, one of 16 timed", drawn),
        sums(f"healthy kinds of at most {RANKS_AT_MOST} ranks, one of 8 timed", written),
    ]
    publish("sampled-jobs", table(columns, own))
    header = ["GPU timing", "planted", "jobs", "named", "true of what is said"]
    publish("sampled-verdicts", table(header, list(rows())))


if __name__ == "__main__":
    main()
