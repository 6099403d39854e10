"""The jobs that verdict_quality.py scores, part by part, and the score of each."""

import tempfile
import traceback
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ncclscope
from benchmarks.results import ROOT
from benchmarks.sampled_verdicts import RECORDINGS, findings_of, is_true
from ncclscope.diagnose.diagnosis import diagnose
from ncclscope.snapshot.process import unfinished_snapshots
from tests.support.laboratory.kinds import all_kinds, drops_and_late_ranks
from tests.support.laboratory.process_kinds import process_kinds
from tests.support.laboratory.random_jobs import random_kind
from tests.support.laboratory.score import compare_exit_codes, may_be_said, score_capture
from tests.support.laboratory.shapes import HEALTHY
from tests.support.laboratory.truth import Kind

Row = dict[str, Any]
KINDS, HEALTHY_JOBS, GATES, SAMPLED, REAL_PROCESSES, RANDOM = (
    "kinds", "healthy", "gates", "sampled", "processes", "random",
)  # fmt: skip
LARGE = 200  # ranks: jobs from here on are made once, and first
HEALTHY_SEED = 101  # the first: rules were not tuned on these
HEALTHY_RANKS = 64  # of jobs that are made with many seeds, at most
PROBLEMS = ("warning", "critical")
# Jobs whose gates are tried: two healthy ones of other seeds, and a faulty one.
COMPARED = {
    "ddp 4": "late rank",
    "ddp 8 on 2 hosts": "slow link between hosts",
    "fsdp 2 x tp 2": "slow GPU",
    "dp 8 x tp 2": "late rank",
    "mesh 2 x 2 x 2": "slow GPU",
    "pipeline 4": "slow stage",
    "experts 8, even": "late rank",
    "ring 8": "slow GPU",
    "serving tp 4 x 2": "slow GPU",
}


@cache
def _kinds() -> dict[str, Kind]:
    return all_kinds()


def _scratch() -> Path:
    path = ROOT / ".bench"
    path.mkdir(exist_ok=True)
    return path


def score_kind(name: str, seed: int) -> Row:
    """One job, with all verbs asked about it."""
    kind = random_kind(seed) if name == RANDOM else _kinds().get(name) or process_kinds()[name]
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        capture = Path(directory) / "capture"
        truth = kind.write(capture, seed)
        row = score_capture(capture, truth).row()
    planted = [(one.kind, one.ranks, round(one.lost_share, 3)) for one in truth.origins]
    hangs = bool(truth.status.exit_code)
    named = {"kind": name, "planted": truth.kind}
    return (
        row
        | named
        | {"truth": planted, "must": [one.must for one in truth.origins], "hangs": hangs}
    )


def score_healthy(name: str, seed: int) -> Row:
    """The false warnings of one healthy job. Some jobs are uneven by design: saying so is true."""
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        truth = _kinds()[name].write(Path(directory) / "capture", seed)
        model = ncclscope.open(str(Path(directory) / "capture")).model
        findings = diagnose(model, unfinished_snapshots(model)).findings
    alarms = [
        f"{finding.severity} {finding.family} ({finding.kind}): {finding.sentence}"
        for finding in findings
        if finding.severity in PROBLEMS and not may_be_said(finding.family, finding.ranks, truth)
    ]
    failures = [f"false alarm: {alarm}" for alarm in alarms]
    return {"ranks": truth.ranks, "false_alarms": alarms, "failures": failures}


def score_gates(name: str, seed: int) -> Row:
    """Whether gates pass equal jobs and stop a slower one."""
    kinds, fault = _kinds(), COMPARED[name]
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        jobs = [Path(directory) / word for word in ("first", "second", "faulty")]
        kinds[f"{name}, {HEALTHY}"].write(jobs[0], 10 * seed + 1)
        kinds[f"{name}, {HEALTHY}"].write(jobs[1], 10 * seed + 2)
        kinds[f"{name}, {fault}"].write(jobs[2], 10 * seed + 3)
        equal = compare_exit_codes(jobs[0], jobs[1])
        slower = compare_exit_codes(jobs[0], jobs[2])
    right = equal == (0, 0) and slower == (3, 0)
    return {"equal": equal, "slower": slower, "right": right}


def score_sampled(name: str, seed: int) -> Row:
    """What is named where GPU times are sampled."""
    timing, _, job = name.partition(": ")
    kind = {kind.name: kind for kind in drops_and_late_ranks()}[job]
    findings = findings_of(replace(kind, recording=RECORDINGS[timing]), seed)
    true = [is_true(kind, finding) for finding in findings]
    failures = [
        f"false alarm: {finding.sentence}"
        for finding, right in zip(findings, true, strict=True)
        if not right
    ]
    failures += ["not named"] if kind.faults and not any(true) else []
    return {"fault": job.rpartition(", ")[2], "timing": timing, "said": len(findings),
            "true": sum(true), "failures": failures}  # fmt: skip


PARTS: dict[str, Callable[[str, int], Row]] = {
    KINDS: score_kind,
    HEALTHY_JOBS: score_healthy,
    GATES: score_gates,
    SAMPLED: score_sampled,
    REAL_PROCESSES: score_kind,
    RANDOM: score_kind,
}


def key_of(part: str, name: str, seed: int) -> str:
    """A job in words."""
    return f"{part}: {name}, seed {seed}"


def score(job: tuple[str, str, int]) -> tuple[str, Row]:
    """A job's key and its row; an error is a row as well."""
    part, name, seed = job
    row: Row = {"part": part, "kind": name, "seed": seed}
    try:
        row |= PARTS[part](name, seed) | row
    except Exception:
        row["crash"] = traceback.format_exc().strip().splitlines()[-1]
    return key_of(*job), row


def all_jobs(
    parts: Collection[str],
    words: list[str],
    seeds: int,
    healthy: int,
    largest: int,
    random: range = range(0),
) -> list[tuple[str, str, int]]:
    """Jobs in an order in which a run that is stopped has seen something of everything. `random`:
    seeds of jobs that nobody wrote.
    """
    jobs: list[tuple[str, str, int]] = []
    kinds = {n: k for n, k in _kinds().items() if k.ranks <= largest}
    sampled = [f"{timing}: {kind.name}" for timing in RECORDINGS for kind in drops_and_late_ranks()]
    large = [name for name, kind in kinds.items() if kind.ranks >= LARGE]
    jobs += [(KINDS, name, 1) for name in sorted(large, key=lambda name: -kinds[name].ranks)]
    for seed in range(1, max(seeds, healthy) + 1):
        if seed <= seeds:
            jobs += [(KINDS, name, seed) for name in kinds if name not in large]
            jobs += [(GATES, name, seed) for name in COMPARED]
            jobs += [(SAMPLED, name, seed) for name in sampled]
        if seed <= healthy:
            jobs += [
                (HEALTHY_JOBS, name, HEALTHY_SEED - 1 + seed)
                for name, kind in kinds.items()
                if not kind.faults and kind.ranks <= HEALTHY_RANKS
            ]
    jobs += [(RANDOM, RANDOM, seed) for seed in random]
    jobs += [(REAL_PROCESSES, name, 1) for name in process_kinds()]
    return [job for job in jobs if job[0] in parts and all(word in job[1] for word in words)]
