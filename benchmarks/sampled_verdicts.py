"""What `diagnose` names where GPU times are sampled, beside the same jobs with all of them.

Jobs of the laboratory with a late rank, or with links that become slow halfway, and healthy ones:
how many of the planted faults are named (recall), and how many of the named ones are true
(precision). `python -m benchmarks.sampled_verdicts`.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.results import publish, table
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.diagnose.finding import INFO, Finding
from ncclscope.model.build import open_model
from tests.support.laboratory.kinds import drops_and_late_ranks
from tests.support.laboratory.recording import Recording
from tests.support.laboratory.shapes import HEALTHY
from tests.support.laboratory.truth import Kind

SEEDS = 2
RECORDINGS = {
    "kernel": Recording(),
    "sampled, one of 16": Recording(timed_every=16),
    "sampled, one of 64": Recording(timed_every=64),
}
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


def main() -> None:
    """Publishes the table."""
    header = ["GPU timing", "planted", "jobs", "named", "true of what is said"]
    publish("sampled-verdicts", table(header, list(rows())))


if __name__ == "__main__":
    main()
