"""Mutated captures over all verbs: no crash, no hang, no traceback, memory below 2 GB.

`python -m benchmarks.mutations --count 100000 --processes 16 --minutes 8 -o FILE.json` needs numpy
and duckdb, the compiled files of the package, and no network. It uses all processors, and ends when
its time is up. Problems are printed with the seed that shows them; `--seed N --count 1` shows one
again, `--kind dataset` only those that damage in that way. `--publish FILE.json …` writes the table
of one or more results into docs/measurements/promises.md.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: threads reserve addresses, and do nothing

import argparse
import gc
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import ncclscope.capture.salvage
import ncclscope.cli.top
from benchmarks.results import ROOT, machine, publish, table
from ncclscope.capture.salvage import arena_dir
from tests.support.mutation_subjects import CAPTURES, DATASETS, IMPORTS, PACKS, make_subjects
from tests.support.mutations import KINDS, has_kind, leave_in_shared_memory, mutated_copy
from tests.support.verb_runs import VerbLimits, VerbRun, import_modules, run_verbs

# DuckDB's threads and allocator reserve 2 GB of addresses and use a tenth of that: the bar is for
# what is used.
LIMITS = VerbLimits(wall_s=120.0, cpu_s=30.0, address_space=8 << 30)
MEMORY_BAR = 2 << 30
COUNT = 2_000  # of `python -m benchmarks mutations`
_FOLDERS = {"dataset": DATASETS, "archive": PACKS, "other tools' files": IMPORTS}
_EXPORTS = {"csv": 4, "jsonl": 4, "perfetto": 4, "chrome": 4, "inspector": 4, "callbacks": 4,
            "parquet": 1}  # fmt: skip
# Verbs that read a capture, and how often of 100; slow ones less.
_VERBS = {"report": 5, "diagnose": 9, "status": 17, "whatif": 4, "compare": 4, "timeline": 2,
          "export": 6, "dump": 13, "pack": 9, "ls": 5, "prune": 3, "serve": 9, "top": 9, "ctl": 3,
          "decode": 1, "history": 3}  # fmt: skip
_OF_DATASETS = ("report", "diagnose", "whatif", "compare", "timeline", "export", "ls", "dump")
_CHEAP = ("status", "dump", "pack", "ls", "prune", "serve", "top", "ctl")  # two of them each
_PROBLEMS = ("crash", "hang", "traceback", "memory", "other")
_HEADER = ("runs of verbs", "refused", "crashes", "hangs", "tracebacks", "memory", "other")
_MOST_EXAMPLES = 300  # of problems that are kept
_REPORT_EVERY_S = 15.0
_SALVAGED = 0.3  # of damaged arenas; the others are in their capture already
_IN_ONE_CHILD = 8  # captures: a process's first use of a library takes as long as a verb


# ---- one capture ----
def _words(verb: str, subject: Path, whole: Path, out: Path, draw: random.Random) -> list[str]:
    """A verb's command line, with one of its outputs."""
    path, form = str(subject), draw.choices(list(_EXPORTS), list(_EXPORTS.values()))[0]
    make: dict[str, Callable[[], list[str]]] = {
        "report": lambda: draw.choice(([], ["--json"], ["--csv"], ["--html", f"{out}/r.html"])),
        "diagnose": lambda: draw.choice(([], ["--json"])),
        "status": lambda: draw.choice(([], ["--json"])),
        "compare": lambda: [str(whole)],
        "timeline": lambda: ["--html", f"{out}/t.html"],
        "export": lambda: ["--to", form, "-o", f"{out}/x.{form}"],
        "dump": lambda: draw.choice(([], ["--json"])),
        "pack": lambda: ["-o", f"{out}/p.tar.gz"],
        "serve": lambda: ["--all-hosts", "--once"],
        "top": lambda: ["--once"],
        "ctl": lambda: ["--mode", "trace"],
    }
    if verb == "history":
        return [verb, "add", f"{out}/history", path]
    if verb in ("ls", "prune"):
        more = ["--keep", "0", "--dry-run"] if verb == "prune" else draw.choice(([], ["--json"]))
        return [verb, str(subject.parent), *more]
    return [verb, path, *make.get(verb, list)()]


def _commands(
    kind: str, subject: Path, whole: Path, out: Path, draw: random.Random
) -> list[list[str]]:
    """Command lines that read a damaged copy."""
    path, imported = str(subject), str(out / "imported")
    if kind == "archive":
        archive = str(next(subject.iterdir(), subject))
        return [["report", archive], ["import", archive, "-o", imported]]
    if kind == "other tools' files":
        convert = ["import", path, "-o", imported]
        then = draw.choice(([], ["diagnose"], ["report", "--json"]))
        return [convert, [then[0], imported, *then[1:]]] if then else [convert]
    names = [verb for verb in _VERBS if kind != "dataset" or verb in _OF_DATASETS]
    chosen = draw.choices(names, [_VERBS[name] for name in names])
    if chosen[0] == "decode":
        chosen.append("diagnose")  # reads what it wrote
    if chosen[0] in _CHEAP:
        chosen.append(draw.choice([verb for verb in _CHEAP if verb != chosen[0]]))
    return [_words(verb, subject, whole, out, draw) for verb in chosen]


def _problem(run: VerbRun) -> str:
    """One of _PROBLEMS, "" where all is well."""
    if run.peak_bytes > MEMORY_BAR:
        return "memory"
    if run.problem.startswith("signal"):
        return "crash"
    return run.problem if run.problem in ("", *_PROBLEMS) else "other"


@dataclass(frozen=True, slots=True)
class Subject:
    """A damaged copy, and the command lines that read it."""

    seed: int
    kind: str
    name: str  # of the whole one
    said: list[str]  # what was damaged
    commands: list[list[str]]

    def record(self, run: VerbRun) -> dict[str, Any]:
        """What is kept of a run."""
        record = {"seed": self.seed, "kind": self.kind, "verb": run.words[0], "code": run.code,
                  "took_s": run.took_s, "peak_bytes": run.peak_bytes, "cpu_s": run.cpu_s,
                  "problem": _problem(run)}  # fmt: skip
        if record["problem"]:
            record |= {"how": run.problem, "subject": self.name, "words": run.words,
                       "said": self.said,
                       "errors": run.errors.strip().splitlines()[-25:]}  # fmt: skip
        return record


def _kind(draw: random.Random) -> str:
    return draw.choices(list(KINDS), list(KINDS.values()))[0]


def damaged(seed: int, wholes: Path, place: Path) -> Subject:
    """Damages one copy."""
    draw = random.Random(seed)
    kind = _kind(draw)
    below = wholes / _FOLDERS.get(kind, CAPTURES)
    whole, copy, out = draw.choice(_subjects(below, kind)), place / "captures" / "c", place / "out"
    out.mkdir(parents=True)
    if kind == "arena" and draw.random() < _SALVAGED:
        return _left_behind(seed, whole, wholes, place)
    said = mutated_copy(whole, copy, kind, seed)
    return Subject(seed, kind, whole.name, said, _commands(kind, copy, whole, out, draw))


def _left_behind(seed: int, whole: Path, wholes: Path, place: Path) -> Subject:
    """A damaged arena in shared memory, of a killed process."""
    home = _home(seed, whole, wholes)
    said = mutated_copy(whole, home, "arena", seed)
    shared = arena_dir()
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in sorted(home.glob("*.*.*")):
        leave_in_shared_memory(folder, home, shared, seed)
    return Subject(seed, "arena", whole.name, said, [["salvage", str(home)], ["status", str(home)]])


def _home(seed: int, whole: Path, wholes: Path) -> Path:
    """A path as long as that of the whole one: an arena has it in a field of that length."""
    return wholes.parent / str(seed).zfill(len(str(whole)) - len(str(wholes.parent)) - 1)


@cache
def _subjects(below: Path, kind: str) -> list[Path]:
    return [path for path in sorted(below.iterdir()) if has_kind(path, kind)]


def read_some(seeds: Sequence[int], wholes: Path, place: Path) -> Iterator[list[dict[str, Any]]]:
    """Damages copies and has verbs read them in one process: records of the runs of each."""
    shutil.rmtree(place, ignore_errors=True)
    subjects = [damaged(seed, wholes, place / str(seed)) for seed in seeds]
    runs = iter(run_verbs([words for each in subjects for words in each.commands], LIMITS))
    for subject in subjects:
        yield [subject.record(next(runs)) for _ in subject.commands]
        for words in subject.commands:
            if words[0] == "salvage":
                shutil.rmtree(words[1], ignore_errors=True)


# ---- all of them ----
def _work(number: int, of: int, seeds: Sequence[int], wholes: Path, until: float) -> None:
    """Reads every `of`-th capture and writes a line for each."""
    if of <= len(processors := sorted(os.sched_getaffinity(0))):
        os.sched_setaffinity(0, {processors[number]})
    place = wholes.parent / f"place-{number}"
    place.mkdir()
    # Nothing of the machine's own is salvaged, and workers do not see each other's.
    ncclscope.capture.salvage.SHM_DIR = place / "shm"
    gc.collect()
    gc.freeze()  # children would copy the pages of every object that they look at
    os.environ["TMPDIR"] = tempfile.tempdir = str(place.parent / f"tmp-{number}")
    os.mkdir(os.environ["TMPDIR"])
    with (wholes.parent / f"{number}.jsonl").open("w", buffering=1) as lines:
        own = seeds[number::of]
        for first in range(0, len(own), _IN_ONE_CHILD):
            if time.monotonic() > until:
                break
            for records in read_some(own[first : first + _IN_ONE_CHILD], wholes, place / "some"):
                lines.write(json.dumps(records) + "\n")


def _fork(do: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        do(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _make_quietly(wholes: Path) -> None:
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        make_subjects(wholes)


def _add(result: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Adds the runs of one capture to the result."""
    kind, verbs = result["kinds"].setdefault(records[0]["kind"], Counter()), result["verbs"]
    kind["captures"] += 1
    for record in records:
        kind["runs"] += 1
        counts = verbs.setdefault(record["verb"], Counter())
        counts["runs"] += 1
        counts["cpu_s"] += record["cpu_s"]
        if record["code"] in (1, 2):
            kind["refused"] += 1
            counts["refused"] += 1
        for name in ("peak_bytes", "took_s"):
            result[name] = max(result[name], record[name])
        if record["problem"]:
            kind[record["problem"]] += 1
            counts[record["problem"]] += 1
            if len(result["problems"]) < _MOST_EXAMPLES:
                result["problems"].append(record)
                _print_problem(record)


def _print_problem(record: dict[str, Any]) -> None:
    words = " ".join(record["words"][:1] + record["words"][2:])
    print(f"seed {record['seed']} {record['subject']}, {words}: {record['how']}: {record['said']}")
    print("    " + "\n    ".join(record["errors"][-8:]), flush=True)


def _follow(files: list[TextIO], result: dict[str, Any]) -> None:
    """Adds what workers have written since the last time."""
    for file in files:
        while True:
            at = file.tell()
            line = file.readline()
            if not line.endswith("\n"):
                file.seek(at)
                break
            _add(result, json.loads(line))


def measure(seeds: Sequence[int], processes: int, seconds: float, scratch: Path) -> dict[str, Any]:
    """Mutates and reads with that many processes; returns what happened."""
    began = time.monotonic()
    result: dict[str, Any] = {"kinds": {}, "verbs": {}, "problems": [], "peak_bytes": 0,
                              "took_s": 0.0}  # fmt: skip
    import_modules()
    ncclscope.cli.top._ONCE_S = 0.0  # it would wait for a second heartbeat
    wholes = scratch / "wholes"
    # In a process of its own: forks of one in which DuckDB has run lack its threads.
    if os.waitstatus_to_exitcode(os.waitpid(_fork(_make_quietly, wholes), 0)[1]):
        raise SystemExit("the captures to be damaged cannot be made")
    until = began + seconds
    workers = {_fork(_work, n, processes, seeds, wholes, until) for n in range(processes)}
    names = [scratch / f"{number}.jsonl" for number in range(processes)]
    while not all(name.exists() for name in names):
        time.sleep(0.05)
    files, failed, said_at = [name.open() for name in names], 0, time.monotonic()
    while workers:
        for worker in list(workers):
            if os.waitpid(worker, os.WNOHANG)[0]:
                workers.remove(worker)
        _follow(files, result)
        if time.monotonic() - said_at > _REPORT_EVERY_S:
            said_at = time.monotonic()
            count = sum(kind["captures"] for kind in result["kinds"].values())
            pace = count / (said_at - began)
            print(f"{count:,} captures, {pace:.1f}/s", file=sys.stderr, flush=True)
        time.sleep(0.2)
    _follow(files, result)
    count = sum(kind["captures"] for kind in result["kinds"].values())
    if count < len(seeds) and time.monotonic() < until:
        failed = len(seeds) - count
    return result | {"first_seed": seeds[0], "captures": count, "failed": failed,
                     "processes": processes, "seconds": time.monotonic() - began,
                     "machine": machine(), "day": time.strftime("%Y-%m-%d")}  # fmt: skip


# ---- results ----
def _rows(counts: dict[str, dict[str, int]], with_captures: bool) -> list[list[object]]:
    rows: list[list[object]] = []
    total: Counter[str] = Counter()
    for numbers in counts.values():
        total.update(numbers)
    for name, numbers in [*sorted(counts.items()), ("**all**", total)]:
        captures = [f"{numbers.get('captures', 0):,}"] if with_captures else []
        problems = [numbers.get(problem, 0) for problem in _PROBLEMS]
        runs = [f"{numbers['runs']:,}", f"{numbers.get('refused', 0):,}"]
        rows.append([name, *captures, *runs, *problems])
    return rows


def _sum(results: Sequence[dict[str, Any]], part: str) -> dict[str, dict[str, int]]:
    summed: dict[str, Counter[str]] = {}
    for result in results:
        for name, numbers in result[part].items():
            summed.setdefault(name, Counter()).update(numbers)
    return {name: dict(numbers) for name, numbers in summed.items()}


def publish_results(results: Sequence[dict[str, Any]]) -> None:
    """Writes the table of all results into its page."""
    header = ["captures", *_HEADER]
    kinds = table(["damaged", *header], _rows(_sum(results, "kinds"), True))
    verbs = table(["verb", *header[1:]], _rows(_sum(results, "verbs"), False))
    seeds = ", ".join(f"{r['first_seed']:,} to {r['first_seed'] + r['captures'] - 1:,}"
                      for r in results)  # fmt: skip
    peak = max(result["peak_bytes"] for result in results) / 1e6
    slowest = max(result["took_s"] for result in results)
    seconds = sum(result["seconds"] for result in results)
    where = "; ".join(sorted({result["machine"] for result in results}))
    note = (
        f"Seeds {seeds}, in {seconds:,.0f} s. Each is a copy of a small whole one, "
        "damaged in up to four places: bytes, slots, headers, identities, schemas, words of texts, "
        "lengths, other kinds of file, and saved models whose seals fit. Some of the verbs read "
        f"each one, in a process with {LIMITS.address_space >> 30} GB of address space and "
        f"{LIMITS.cpu_s:.0f} s of CPU time; memory counts from {MEMORY_BAR >> 30} GB on. Most "
        f"memory: {peak:.0f} MB; the slowest run took {slowest:.0f} s. Refused: with a sentence "
        "and exit code 1 or 2. Other: control characters, errors that say they are a mistake in "
        "ncclscope."
    )
    publish("mutations", f"{kinds}\n\n{verbs}\n\n{note}", where)


def _is_clean(result: dict[str, Any]) -> bool:
    return not result["problems"] and not result["failed"]


def main(argv: Iterable[str] = ("--count", str(COUNT), "--publish-now")) -> None:
    """Measures, or publishes what was measured before."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="captures")
    parser.add_argument("--seed", type=int, default=0, help="of the first capture")
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), help="of these seeds, only those")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-o", "--output", type=Path, help="the result, as JSON")
    parser.add_argument("--publish", type=Path, nargs="+", metavar="FILE", help="results")
    parser.add_argument("--publish-now", action="store_true", help="into the page, too")
    arguments = parser.parse_args(list(argv))
    if arguments.publish:
        publish_results([json.loads(path.read_text()) for path in arguments.publish])
        return
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    if arguments.kind:
        seeds = [seed for seed in seeds if _kind(random.Random(seed)) in arguments.kind]
    with tempfile.TemporaryDirectory(dir=_scratch_place(), prefix="mutations-") as directory:
        result = measure(seeds, arguments.processes, arguments.minutes * 60, Path(directory))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1))
    if arguments.publish_now:
        publish_results([result])
    kinds = _rows(result["kinds"], True)
    print(table(["damaged", "captures", *_HEADER], kinds))
    count, seconds = result["captures"], result["seconds"]
    print(f"{count:,} captures in {seconds:,.0f} s, {count / seconds:.1f}/s")
    if result["failed"]:
        print(f"{result['failed']:,} captures were not read: a worker ended before its end")
    raise SystemExit(0 if _is_clean(result) else 1)


def _scratch_place() -> Path:
    """Shared memory: hundreds of small files are made and deleted a second."""
    shared = Path("/dev/shm")
    if os.access(shared, os.W_OK):
        return shared
    (ROOT / ".bench").mkdir(exist_ok=True)
    return ROOT / ".bench"


if __name__ == "__main__":
    main(sys.argv[1:])
