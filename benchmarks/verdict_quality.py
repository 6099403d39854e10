"""How true verdicts are: jobs of the laboratory, held against what was planted in them.

tests/support/laboratory has the jobs, their truth and the score. Rows are kept in a file until the
code changes, so a run that was stopped goes on where it was. Everything but the jobs of real
processes, without the page:

    python -m benchmarks.verdict_quality --processes 16 --minutes 8 -o scores.json

and a part of it:

    python -m benchmarks.verdict_quality --parts kinds --only "mesh 4" --seeds 1
    python -m benchmarks.verdict_quality --parts random --random 10001 200

Rules may be made on random jobs of seeds below 10,000; those from there on show how they do on jobs
that nobody has looked at.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from multiprocessing import TimeoutError as PoolTimeoutError
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.pool import Pool
from pathlib import Path

import ncclscope
from benchmarks.results import ROOT, publish, table
from benchmarks.verdict_jobs import PARTS, REAL_PROCESSES, Row, all_jobs, key_of, score
from tests.support.laboratory.score import NEAR

BAR, KIND_BAR, ATTRIBUTED_BAR = 0.98, 0.90, 0.90
WHATIF_MEDIAN, WHATIF_WORST, IDENTITY = 0.02, 0.05, 0.01
LEAST_HEALTHY = 400  # jobs
_SAVE_EVERY_S = 5.0
_JOBS_A_WORKER = 40  # then a fresh one takes over: memory is given back
KEPT = ROOT / ".bench" / "verdict-quality.json"


class _Worker(ForkProcess):
    """A process of a pool that may have children: large captures are read by several."""

    @property
    def daemon(self) -> bool:
        return False

    @daemon.setter
    def daemon(self, value: bool) -> None:
        pass


class _Context(ForkContext):
    Process = _Worker


def code() -> str:
    """What the results depend on."""
    made = hashlib.sha256()
    package = Path(ncclscope.__file__).parent
    laboratory = ROOT / "tests" / "support" / "laboratory"
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.sql"), *laboratory.glob("*.py")]):
        made.update(path.read_bytes())
    return made.hexdigest()


def measure(
    jobs: list[tuple[str, str, int]], workers: int, minutes: float, kept_in: Path
) -> tuple[list[Row], int]:
    """Rows of all jobs that were scored in time, and how many were not."""
    made_by, until = code(), time.monotonic() + 60 * minutes
    kept: dict[str, Row] = {}
    if kept_in.exists() and (saved := json.loads(kept_in.read_text())).get("code") == made_by:
        kept = saved["rows"]
    missing = [job for job in jobs if key_of(*job) not in kept]

    def save() -> None:
        partial = kept_in.with_suffix(".partial")
        partial.write_text(json.dumps({"code": made_by, "rows": kept}, indent=1))
        partial.replace(kept_in)

    saved_at = time.monotonic()
    with Pool(workers, maxtasksperchild=_JOBS_A_WORKER, context=_Context()) as pool:
        answers = pool.imap_unordered(score, [job for job in missing if job[0] != REAL_PROCESSES])
        while (left_s := until - time.monotonic()) > 0:
            try:
                key, row = answers.next(left_s)
            except (StopIteration, PoolTimeoutError):
                break
            kept[key] = row
            if wrong := failures_of(row):
                print(f"{key}: {wrong}", file=sys.stderr, flush=True)
            if time.monotonic() - saved_at > _SAVE_EVERY_S:
                save()
                saved_at = time.monotonic()
    for job in missing:
        if job[0] == REAL_PROCESSES and time.monotonic() < until:
            key, kept[key] = score(job)
            save()
    save()
    rows = [kept[key_of(*job)] for job in jobs if key_of(*job) in kept]
    return rows, len(jobs) - len(rows)


def failures_of(row: Row) -> str:
    """What is wrong with the verdicts on a job, in words; "" where nothing is."""
    words = [row["crash"]] if row.get("crash") else list(row.get("failures", ()))
    for key in ("delay_share", "waiting_share", "path_share"):
        share = row.get(key)
        if share is not None and row.get("faults") and abs(share - 1) > NEAR:
            words.append(f"{key.removesuffix('_share')} {share:.2f}")
    words += [
        f"what-if {100 * error:+.1f} %"
        for error in row.get("whatif_errors", ())
        if abs(error) > WHATIF_WORST
    ]
    if row.get("right") is False:
        words.append(f"equal {row['equal']}, slower {row['slower']}")
    return "; ".join(words)


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


def kind_rows(rows: list[Row]) -> list[list[object]]:
    """A line for each kind of which something is off."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
    lines: list[list[object]] = []
    for name, own in groups.items():
        if not any(failures_of(row) for row in own):
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
                sum(bool(failures_of(row)) for row in own),
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


Line = tuple[str, str, bool | None]  # what is promised, as measured, whether it holds


def summary(rows: list[Row]) -> list[Line]:
    """What is promised: in words, as measured, and whether it holds (None: not measured)."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["part"]].append(row)
    judged = parts["kinds"] + parts["processes"] + parts["random"]
    lines = _named(judged) + _healthy([*judged, *parts["healthy"]]) + _numbers(judged)
    if parts["gates"]:
        right = _sum(parts["gates"], "right")
        gates = len(parts["gates"])
        lines.append(("gates of compare right", f"{right} of {gates}", right == gates))
    return lines + _sampled(parts["sampled"])


def _named(rows: list[Row]) -> list[Line]:
    faults, named, alarms = _sum(rows, "faults"), _sum(rows, "named"), _alarms(rows)
    if not rows:
        return []
    recall, precision = named / max(faults, 1), named / max(named + alarms, 1)
    scored = [row for row in rows if row.get("faults")]
    weak, kinds = _weak_kinds(rows), len({row["kind"] for row in rows})
    right = _sum(rows, "status_right")
    return [
        ("faults named exactly", f"{named} of {faults}, {100 * recall:.1f} %", recall >= BAR),
        ("problems that are true", f"{100 * precision:.1f} %", precision >= BAR),
        ("kinds below 90 %", f"{len(weak)} of {kinds}", not weak),
        ("named first", f"{_sum(scored, 'first')} of {len(scored)}", None),
        ("status right", f"{right} of {len(rows)}", right == len(rows)),
    ]


def _healthy(rows: list[Row]) -> list[Line]:
    healthy = [row for row in rows if not row.get("truth") and not row.get("hangs")]
    alarms, crashes = _alarms(healthy), sum("crash" in row for row in healthy)
    holds = not alarms and not crashes and len(healthy) >= LEAST_HEALTHY
    words = f"{alarms} in {len(healthy)} jobs" + (f", {crashes} crashed" if crashes else "")
    return [("false warnings in healthy jobs", words, holds)] if healthy else []


def _numbers(rows: list[Row]) -> list[Line]:
    lines: list[Line] = []
    shares = [row["delay_share"] for row in rows if row.get("delay_share") and row["faults"]]
    if shares:
        near = sum(abs(share - 1) <= NEAR for share in shares)
        words = f"{near} of {len(shares)}, {100 * near / len(shares):.0f} %"
        holds = near >= ATTRIBUTED_BAR * len(shares)
        lines.append(("planted delay attributed within ±10 %", words, holds))
    if errors := _errors(rows):
        median, worst = statistics.median(errors), max(errors)
        far = sum(error > WHATIF_WORST for error in errors)
        words = f"median {100 * median:.1f} %, {far} of {len(errors)} above 5 %"
        words += f", worst {100 * worst:.1f} %"
        holds = median <= WHATIF_MEDIAN and worst <= WHATIF_WORST
        lines.append(("what-if against the healthy twin", words, holds))
        lines += _as_said(rows)
    identity = [abs(row["identity_error"]) for row in rows if row.get("identity_error") is not None]
    if identity:
        words = f"worst {100 * max(identity):.2f} %"
        lines.append(("what-if, nothing changed", words, max(identity) <= IDENTITY))
    return lines


def _as_said(rows: list[Row]) -> list[Line]:
    """What-ifs as users read them: a number where the error bar is at most 5 %, else a range."""
    pairs = [
        (abs(error), bar, bar <= WHATIF_WORST * (1 + error))
        for row in rows
        for error, bar in zip(row.get("whatif_errors", ()), row.get("whatif_bars", ()), strict=True)
    ]
    numbers = [error for error, _, is_number in pairs if is_number]
    ranges = [(error, bar) for error, bar, is_number in pairs if not is_number]
    lines: list[Line] = []
    if numbers:
        far = sum(error > WHATIF_WORST for error in numbers)
        words = f"{len(numbers)}, {far} of them above 5 %, worst {100 * max(numbers):.1f} %"
        lines.append(("what-ifs that are given as a number", words, not far))
    if ranges:
        outside = sum(error > bar for error, bar in ranges)
        words = f"{len(ranges)}, the truth is outside of {outside}"
        lines.append(("what-ifs that are given as a range", words, not outside))
    return lines


def _sampled(rows: list[Row]) -> list[Line]:
    """By timing and fault how many are named, and how much of what is said is true."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if "fault" in row:
            groups[row["timing"], row["fault"]].append(row)
    lines: list[Line] = []
    for (timing, fault), own in groups.items():
        named = sum(row["true"] > 0 for row in own)
        words = f"named in {named} of {len(own)}, {_sum(own, 'true')} of {_sum(own, 'said')} true"
        lines.append((f"{timing}, {fault}", words, None))
    return lines


def body_of(rows: list[Row], left_out: int) -> tuple[str, bool]:
    """Tables in Markdown, and whether all bars hold."""
    words = {True: "holds", False: "**does not hold**", None: ""}
    lines = summary(rows)
    head = table(["", "measured", "bar"], [[what, said, words[ok]] for what, said, ok in lines])
    header = [
        "job", "ranks", "jobs", "named exactly", "first", "false alarms", "delay ±10 %",
        "waiting ±10 %", "path ±10 %", "what-if, worst", "with a failure",
    ]  # fmt: skip
    kinds = table(header, kind_rows([row for row in rows if "named" in row]))
    text = f"{head}\n\nKinds of which something is off:\n\n{kinds}"
    if left_out:
        text += f"\n\n{left_out} jobs were not scored."
    return text, not left_out and all(ok is not False for *_, ok in lines)


def misses(rows: list[Row]) -> str:
    """A line for each job of which something is off: what was planted, and what was said."""
    lines = []
    for row in rows:
        if wrong := failures_of(row):
            planted = "; ".join(
                f"{kind}{tuple(ranks)} {100 * share:.0f}%"
                for kind, ranks, share in row.get("truth", ())
            )
            lines.append(f"- {key_of(row['part'], row['kind'], row['seed'])} [{planted}]: {wrong}")
    return "\n".join(lines)


def main() -> None:
    """Measures everything and publishes."""
    jobs = all_jobs(PARTS, [], 2, 6, 1 << 20)
    rows, left_out = measure(jobs, os.cpu_count() or 1, 24 * 60, KEPT)
    body, holds = body_of(rows, left_out)
    publish("verdict-quality", body)
    if not holds:
        raise SystemExit("a bar does not hold")


def in_parts() -> None:
    """Some jobs; the page is left alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_quality")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="not: real processes")
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[], help="names with all")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each kind")
    parser.add_argument("--healthy", type=int, default=6, help="more seeds of healthy kinds")
    parser.add_argument("--largest", type=int, default=1 << 20, help="ranks of a job, at most")
    parser.add_argument("--sample", type=int, default=1, help="only every n-th job")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that score")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="then the rest is left out")
    parser.add_argument("-o", metavar="FILE", dest="output", type=Path, default=KEPT)
    parser.add_argument(
        "--random", nargs=2, type=int, metavar=("FIRST", "JOBS"), default=(1, 400),
        help="the first seed of random jobs, and how many",
    )  # fmt: skip
    given = parser.parse_args()
    parts = given.parts or [part for part in PARTS if part != REAL_PROCESSES]
    first, count = given.random
    random = range(first, first + count)
    jobs = all_jobs(parts, given.only, given.seeds, given.healthy, given.largest, random)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    rows, left_out = measure(jobs[:: given.sample], given.processes, given.minutes, given.output)
    print(f"{misses(rows)}\n\n{body_of(rows, left_out)[0]}")


if __name__ == "__main__":
    in_parts()
