"""How true verdicts are: jobs of the laboratory, held against what was planted in them.

tests/support/laboratory has the jobs, their truth and the score. Rows are kept in .bench until the
code changes, so a run that was stopped goes on where it was. A part of it, without the page:

    python -m benchmarks.verdict_quality --only "mesh 4" --seeds 2
    python -m benchmarks.verdict_quality --fast
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import traceback
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ncclscope
from benchmarks.results import ROOT, publish, table
from tests.support.laboratory.kinds import FAST, all_kinds
from tests.support.laboratory.process_kinds import process_kinds
from tests.support.laboratory.score import NEAR, compare_exit_codes, score_capture
from tests.support.laboratory.shapes import HEALTHY

SEEDS, HEALTHY_SEEDS, PROCESS_RUNS = 2, 7, 1
LARGE = 200  # ranks: jobs from here on are made once
BAR, KIND_BAR, ATTRIBUTED_BAR = 0.98, 0.90, 0.90
WHATIF_MEDIAN, WHATIF_WORST, IDENTITY = 0.02, 0.05, 0.01
# Jobs whose gates are tried: two healthy ones of other seeds, and a faulty one.
COMPARED = (
    ("ddp 4", "late rank"),
    ("ddp 8 on 2 hosts", "slow link between hosts"),
    ("fsdp 2 x tp 2", "slow GPU"),
    ("dp 8 x tp 2", "late rank"),
    ("mesh 2 x 2 x 2", "slow GPU"),
    ("pipeline 4", "slow stage"),
    ("experts 8, even", "late rank"),
    ("ring 8", "slow GPU"),
    ("serving tp 4 x 2", "slow GPU"),
)
KEPT = ROOT / ".bench" / "verdict-quality.json"
Row = dict[str, Any]


def code() -> str:
    """What the results depend on."""
    made = hashlib.sha256()
    package = Path(ncclscope.__file__).parent
    laboratory = ROOT / "tests" / "support" / "laboratory"
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.sql"), *laboratory.glob("*.py")]):
        made.update(path.read_bytes())
    return made.hexdigest()


def score_job(name: str, seed: int) -> Row:
    """One job, made, asked about and taken away again."""
    kind = all_kinds().get(name) or process_kinds()[name]
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        capture = Path(directory) / "capture"
        truth = kind.write(capture, seed)
        try:
            row = score_capture(capture, truth).row()
        except Exception:
            reason = traceback.format_exc().strip().splitlines()[-1]
            row = {"kind": name, "seed": seed, "ranks": truth.ranks, "crash": reason}
    planted = [(one.kind, one.ranks, round(one.lost_share, 3)) for one in truth.origins]
    hangs = bool(truth.status.exit_code)
    return row | {"truth": planted, "must": [one.must for one in truth.origins], "hangs": hangs}


def score_compare(name: str, fault: str) -> Row:
    """Whether gates pass equal jobs and stop a slower one."""
    kinds = all_kinds()
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        jobs = [Path(directory) / word for word in ("first", "second", "faulty")]
        kinds[f"{name}, {HEALTHY}"].write(jobs[0], 11)
        kinds[f"{name}, {HEALTHY}"].write(jobs[1], 12)
        kinds[f"{name}, {fault}"].write(jobs[2], 13)
        equal = compare_exit_codes(jobs[0], jobs[1])
        slower = compare_exit_codes(jobs[0], jobs[2])
    right = equal == (0, 0) and slower == (3, 0)
    return {"job": f"{name}, {fault}", "equal": equal, "slower": slower, "right": right}


def _scratch() -> Path:
    path = ROOT / ".bench"
    path.mkdir(exist_ok=True)
    return path


def jobs_of(
    words: list[str], seeds: int, fast: bool, processes: bool, largest: int = 1 << 20
) -> list[tuple[str, int]]:
    """Names and seeds of the jobs to score."""
    jobs = []
    for name, kind in all_kinds().items():
        left_out = (fast and name not in FAST) or kind.ranks > largest
        if left_out or not all(word in name for word in words):
            continue
        many = HEALTHY_SEEDS if not kind.faults and not seeds else seeds or SEEDS
        jobs += [(name, seed) for seed in range(1, 1 + (1 if kind.ranks >= LARGE else many))]
    if processes and not fast:
        jobs += [(name, 1) for name in process_kinds() if all(word in name for word in words)]
    return jobs


def measure(jobs: list[tuple[str, int]], workers: int) -> list[Row]:
    """All jobs that are not there yet; those of real processes one after the other."""
    made_by = code()
    kept: dict[str, Row] = {}
    if KEPT.exists() and (found := json.loads(KEPT.read_text())).get("code") == made_by:
        kept = found["rows"]
    missing = [job for job in jobs if f"{job[0]} {job[1]}" not in kept]

    def keep(row: Row, name: str, seed: int) -> None:
        kept[f"{name} {seed}"] = row
        KEPT.write_text(json.dumps({"code": made_by, "rows": kept}))
        said = row.get("crash") or "; ".join(row["failures"]) or "right"
        print(f"{name}, seed {seed}: {said}", file=sys.stderr, flush=True)

    written = [job for job in missing if job[0] in all_kinds()]
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        answers = [(job, pool.submit(score_job, *job)) for job in written]
        for job, answer in answers:
            keep(answer.result(), *job)
    for job in missing:
        if job[0] in process_kinds():
            keep(score_job(*job), *job)
    return [kept[f"{name} {seed}"] for name, seed in jobs]


def _sum(rows: list[Row], key: str) -> int:
    return sum(int(row.get(key) or 0) for row in rows)


def _alarms(rows: list[Row]) -> int:
    return sum(len(row.get("false_alarms", ())) for row in rows)


def _near(rows: list[Row], key: str) -> str:
    shares = [row[key] for row in rows if row.get(key) is not None and row["faults"]]
    near = sum(abs(share - 1) <= NEAR for share in shares)
    return f"{near} of {len(shares)}" if shares else "–"


def _errors(rows: list[Row]) -> list[float]:
    return [abs(error) for row in rows for error in row.get("whatif_errors", ())]


def _is_off(row: Row) -> bool:
    """Whether anything of a job was judged wrong, or attributed or predicted badly."""
    if row.get("crash") or row["failures"]:
        return True
    shares = [row.get(key) for key in ("delay_share", "waiting_share", "path_share")]
    far = any(share is not None and abs(share - 1) > NEAR for share in shares)
    return (far and bool(row["faults"])) or any(e > WHATIF_WORST for e in _errors([row]))


def kind_rows(rows: list[Row]) -> list[list[object]]:
    """A line for each kind of which something is off."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
    lines: list[list[object]] = []
    for name, own in groups.items():
        if not any(_is_off(row) for row in own):
            continue
        faults = _sum(own, "faults")
        errors = _errors(own)
        lines.append(
            [
                name,
                own[0]["ranks"],
                len(own),
                f"{_sum(own, 'named')} of {faults}" if faults else "–",
                f"{_sum(own, 'first')} of {len(own)}" if faults else "–",
                _alarms(own),
                _near(own, "delay_share"),
                _near(own, "waiting_share"),
                _near(own, "path_share"),
                f"{100 * max(errors):.1f} %" if errors else "–",
                sum(bool(row.get("crash") or row["failures"]) for row in own),
            ]
        )
    return lines


def _weak_kinds(rows: list[Row]) -> list[str]:
    """Kinds of which fewer than nine in ten faults are named, or that raise false alarms."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
    return [
        name
        for name, own in groups.items()
        if _sum(own, "named") < KIND_BAR * _sum(own, "faults")
        or _alarms(own) > (1 - KIND_BAR) * len(own)
        or any(row.get("crash") for row in own)
    ]


def summary(rows: list[Row], compared: list[Row]) -> list[tuple[str, str, bool | None]]:
    """What is promised: in words, as measured, and whether it holds (None: not there yet)."""
    faults, named, alarms = _sum(rows, "faults"), _sum(rows, "named"), _alarms(rows)
    healthy = [row for row in rows if not row.get("truth") and not row.get("hangs")]
    scored = [row for row in rows if row.get("faults")]
    recall = named / max(faults, 1)
    precision = named / max(named + alarms, 1)
    errors = _errors(rows)
    identity = [abs(row["identity_error"]) for row in rows if row.get("identity_error") is not None]
    shares = [row["delay_share"] for row in scored if row.get("delay_share") is not None]
    near = sum(abs(share - 1) <= NEAR for share in shares) / max(len(shares), 1)
    lines: list[tuple[str, str, bool | None]] = [
        ("faults named exactly", f"{named} of {faults}, {100 * recall:.1f} %", recall >= BAR),
        ("problems that are true", f"{100 * precision:.1f} %", precision >= BAR),
        (
            "false alarms in healthy jobs",
            f"{_alarms(healthy)} in {len(healthy)} jobs",
            not _alarms(healthy),
        ),
        (
            "kinds below 90 %",
            f"{len(_weak_kinds(rows))} of {len({row['kind'] for row in rows})}",
            not _weak_kinds(rows),
        ),
        ("named first", f"{_sum(scored, 'first')} of {len(scored)}", None),
        (
            "status right",
            f"{_sum(rows, 'status_right')} of {len(rows)}",
            all(row.get("status_right") for row in rows),
        ),
        (
            "planted delay attributed within ±10 %",
            f"{100 * near:.0f} % of {len(shares)}" if shares else "not there",
            near >= ATTRIBUTED_BAR if shares else None,
        ),
        (
            "what-if against the healthy twin",
            f"median {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"
            if errors
            else "not there",
            (statistics.median(errors) <= WHATIF_MEDIAN and max(errors) <= WHATIF_WORST)
            if errors
            else None,
        ),
        (
            "what-if, nothing changed",
            f"worst {100 * max(identity):.2f} %" if identity else "not there",
            max(identity) <= IDENTITY if identity else None,
        ),
    ]
    if compared:
        right = _sum(compared, "right")
        lines.append(
            ("gates of compare right", f"{right} of {len(compared)}", right == len(compared))
        )
    return lines


def body_of(rows: list[Row], compared: list[Row]) -> tuple[str, bool]:
    """Tables in Markdown, and whether all bars hold."""
    words = {True: "holds", False: "**does not hold**", None: ""}
    lines = summary(rows, compared)
    head = table(["", "measured", "bar"], [[what, said, words[ok]] for what, said, ok in lines])
    header = [
        "job", "ranks", "jobs", "named exactly", "first", "false alarms", "delay ±10 %",
        "waiting ±10 %", "path ±10 %", "what-if, worst", "with a failure",
    ]  # fmt: skip
    kinds = table(header, kind_rows(rows))
    return f"{head}\n\nKinds of which something is off:\n\n{kinds}", all(
        ok is not False for *_, ok in lines
    )


def main() -> None:
    """Measures everything and publishes."""
    workers = os.cpu_count() or 1
    rows = measure(jobs_of([], 0, fast=False, processes=True), workers)
    compared = [score_compare(*job) for job in COMPARED]
    body, holds = body_of(rows, compared)
    publish("verdict-quality", body)
    if not holds:
        raise SystemExit("a bar does not hold")


def in_parts() -> None:
    """Some jobs; the page is left alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_quality")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", default=[], help="kinds with all words"
    )
    parser.add_argument("--seeds", type=int, default=0, help="seeds of each kind")
    parser.add_argument("--largest", type=int, default=1 << 20, help="ranks of a job, at most")
    parser.add_argument("--sample", type=int, default=1, help="only every n-th job")
    parser.add_argument("--fast", action="store_true", help="the small part")
    parser.add_argument("--processes", action="store_true", help="jobs of real processes, too")
    parser.add_argument("--compare", action="store_true", help="gates, too")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", metavar="FILE", help="writes the scores there")
    given = parser.parse_args()
    jobs = jobs_of(given.only, given.seeds, given.fast, given.processes, given.largest)
    jobs = jobs[:: given.sample]
    rows = measure(jobs, given.workers)
    compared = [score_compare(*job) for job in COMPARED] if given.compare else []
    print(body_of(rows, compared)[0])
    if given.json:
        Path(given.json).write_text(json.dumps({"rows": rows, "compared": compared}, indent=1))


if __name__ == "__main__":
    in_parts()
