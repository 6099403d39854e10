"""The comparison as JSON, which holds every trial and can be read again, and as CSV."""

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncclscope._version import __version__
from ncclscope.bench.plan import Plan
from ncclscope.bench.profilers.comparison import ProfilerComparison, compare
from ncclscope.bench.profilers.intervals import ResampledValue
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.profilers.trials import COST, ProfilerTrial, trial_from_json
from ncclscope.bench.results import Session
from ncclscope.bench.table import SIMULATED
from ncclscope.errors import UsageError
from ncclscope.humanize import plural, printable
from ncclscope.json_answers import version_of
from ncclscope.nccl.releases import release_of_code, text_of

FORM, FORM_VERSION = "ncclscope-profiler-comparison", 1


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """A finished comparison: what ran where, and every trial."""

    machine: Mapping[str, Any]  # releases, GPUs, ranks, whether simulated
    settings: Mapping[str, Any]
    profilers: tuple[Profiler, ...]
    absent: Mapping[str, str]
    trials: tuple[ProfilerTrial, ...]
    started: float  # seconds since 1970

    @property
    def comparison(self) -> ProfilerComparison:
        """The tables."""
        return compare(self.trials, self.profilers)

    @property
    def heading(self) -> list[str]:
        """Who and what was measured."""
        machine = self.machine
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.started))
        runs = Counter(trial.profiler for trial in self.trials if trial.kind == COST)
        posed = machine.get("posed_hosts", machine["hosts"])
        posing = f", posing as {posed}" if posed != machine["hosts"] else ""
        lines = [
            f"comparison of NCCL profilers, ncclscope {machine['ncclscope']}, "
            f"NCCL {machine['nccl']}, {date}",
            f"{plural(machine['ranks'], 'rank')} on {plural(machine['hosts'], 'host')}{posing}: "
            f"{', '.join(machine['gpus'])}; {rounds_text(runs.values())}, each profiler in "
            "processes of its own",
        ]
        return [*([SIMULATED] if machine["simulated"] else []), *map(printable, lines)]


def rounds_text(runs: Collection[int]) -> str:
    """How many rounds there were, by the runs of each profiler. 3 to 5 rounds of each profiler"""
    fewest, most = min(runs, default=1), max(runs, default=1)
    if fewest == most:
        return plural(most, "round")
    return f"{fewest} to {plural(most, 'round')} of each profiler"


def machine_of(session: Session) -> dict[str, Any]:
    """What a reader must know of the machine."""
    return {
        "ncclscope": __version__,
        "nccl": text_of(release_of_code(session.nccl)),
        "cuda": session.cuda,
        "ranks": session.ranks,
        "hosts": len({device.host for device in session.devices}),
        "posed_hosts": len({(own.host, own.posed_host) for own in session.devices}),
        "gpus": sorted({device.name for device in session.devices}),
        "simulated": bool(session.simulation),
    }


def settings_of(plan: Plan, rounds: int) -> dict[str, Any]:
    """What was measured."""
    return {**plan.as_json(), "rounds": rounds}


def as_json(run: ComparisonRun, tables: bool = True) -> dict[str, Any]:
    """The whole comparison: trials, so that it can be read again, and the tables."""
    return {
        "form": FORM,
        "version": FORM_VERSION,
        "started": run.started,
        "machine": dict(run.machine),
        "settings": dict(run.settings),
        "profilers": [
            {
                "name": profiler.name,
                "title": profiler.title,
                "variables": dict(profiler.variables),
                "prefix": list(profiler.prefix),
                "reader": profiler.reader,
                "limits": list(profiler.limits),
            }
            for profiler in run.profilers
        ],
        "absent": dict(run.absent),
        "tables": dict(_tables(run.comparison)) if tables else {},
        "trials": [trial.as_json() for trial in run.trials],
    }


def _tables(comparison: ProfilerComparison) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name in ("coverage", "times", "cost", "loss"):
        yield name, [asdict(row) for row in getattr(comparison, name)]


def read_run(path: Path) -> ComparisonRun:
    """The comparison that a file holds."""
    try:
        content = json.loads(path.read_bytes())
        if content["form"] != FORM or version_of(content) != FORM_VERSION:
            raise ValueError("it is of another form")
        profilers = tuple(
            Profiler(
                own["name"], own["title"], own["variables"], prefix=tuple(own["prefix"]),
                reader=own["reader"], limits=tuple(own["limits"]),
            )
            for own in content["profilers"]
        )  # fmt: skip
        return ComparisonRun(
            content["machine"], content["settings"], profilers, content["absent"],
            tuple(map(trial_from_json, content["trials"])), float(content["started"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "Give a file that --compare-profilers --save wrote"
        raise UsageError(f"cannot read {path}: {error}", hint) from None


def as_csv(run: ComparisonRun) -> str:
    """All tables as rows of one kind: table, profiler, operation, size, rank, quantity, value."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ["table", "profiler", "operation", "size_bytes", "rank", "quantity", "value", "low", "high",
         "simulated"]
    )  # fmt: skip
    simulated = str(bool(run.machine["simulated"])).lower()
    for table, values in _tables(run.comparison):
        for row in values:
            key = [table, row["profiler"], row.get("operation", ""), row.get("size_bytes", "")]
            for quantity, numbers in quantities(row):
                rows.writerow([*key, row.get("rank", ""), quantity, *numbers, simulated])
    return text.getvalue()


_KEYS = ("profiler", "operation", "size_bytes", "rank")


def quantities(row: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Each number of a row: value, low and high where it has an interval."""
    for name, value in row.items():
        if name in _KEYS or value is None:
            continue
        if isinstance(value, dict) and value.keys() == set(ResampledValue.__slots__):
            yield name, [value["value"], value["low"], value["high"]]
        elif isinstance(value, dict):
            for part, number in value.items():
                yield f"{name}_{part}", [number, "", ""]
        elif isinstance(value, (list, tuple)):
            yield name, [len(value), "", ""]
        else:
            yield name, [value, "", ""]
