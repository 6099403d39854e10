"""A finished comparison of training runs: heading, JSON that can be read again, CSV, text."""

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncclscope._version import __version__
from ncclscope.bench.profilers.comparison_files import quantities, rounds_text
from ncclscope.bench.profilers.profiler_table import Profiler
from ncclscope.bench.training.comparison import (
    TrainingRow,
    function_table,
    rows_as_json,
    training_rows,
    training_table,
)
from ncclscope.bench.training.trials import (
    TrainingSettings,
    TrainingTrial,
    training_trial_from_json,
)
from ncclscope.errors import UsageError
from ncclscope.humanize import plural, printable, wrapped
from ncclscope.json_answers import version_of
from ncclscope.report.tables import Table, plain_lines

FORM, FORM_VERSION = "ncclscope-training-comparison", 1
NO_NCCL = "backend {}: no call of NCCL's is made, so there is nothing for a profiler to record"
_STRATEGIES = {"densenet121": "DistributedDataParallel", "gpt": "FSDP2"}


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Every run of one model."""

    settings: Mapping[str, Any]
    profilers: tuple[Profiler, ...]
    absent: Mapping[str, str]
    trials: tuple[TrainingTrial, ...]
    started: float

    @property
    def rows(self) -> list[TrainingRow]:
        """The table's rows."""
        return training_rows(self.profilers, self.trials, int(self.settings["warm_up"]))

    @property
    def machine(self) -> Mapping[str, Any]:
        """Where it ran, as the ranks tell."""
        return next((trial.machine for trial in self.trials if trial.machine), {})

    @property
    def heading(self) -> list[str]:
        """Who and what was measured."""
        own, machine = self.settings, self.machine
        runs = Counter(trial.profiler for trial in self.trials)
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.started))
        lines = [
            f"training of {own['model']} below NCCL profilers, ncclscope {__version__}, {date}",
            f"{_STRATEGIES[str(own['model'])]}, {plural(int(own['ranks']), 'rank')}, "
            f"{machine.get('device', 'no rank came to its end')}, PyTorch "
            f"{machine.get('torch', '?')}, NCCL {machine.get('nccl') or 'none'}; "
            f"{rounds_text(runs.values())}, {plural(int(own['steps']), 'step')} in each",
        ]
        if machine and machine["backend"] != "nccl":
            lines.append(NO_NCCL.format(machine["backend"]))
        return list(map(printable, lines))

    @property
    def tables(self) -> list[Table]:
        """The tables that have rows."""
        tables = [training_table("steps, calls, communication", self.rows)]
        tables.append(function_table(self.rows))
        return [table for table in tables if table.rows]


def settings_json(settings: TrainingSettings) -> dict[str, Any]:
    """What a reader must know of the settings."""
    names = ("model", "ranks", "steps", "warm_up", "batch", "image", "length", "rounds", "share")
    return {name: getattr(settings, name) for name in names}


def as_json(run: TrainingRun) -> dict[str, Any]:
    """The whole comparison."""
    return {
        "form": FORM,
        "version": FORM_VERSION,
        "started": run.started,
        "settings": dict(run.settings),
        "machine": dict(run.machine),
        "profilers": [
            {
                "name": profiler.name,
                "title": profiler.title,
                "reader": profiler.reader,
                "limits": list(profiler.limits),
            }
            for profiler in run.profilers
        ],
        "absent": dict(run.absent),
        "rows": rows_as_json(run.rows),
        "trials": [asdict(trial) for trial in run.trials],
    }


def as_csv(run: TrainingRun) -> str:
    """The rows as CSV, a line for each number: profiler, quantity, value, low, high."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["profiler", "quantity", "value", "low", "high"])
    for row in rows_as_json(run.rows):
        for quantity, numbers in quantities(row):
            lines.writerow([row["profiler"], quantity, *numbers])
    return text.getvalue()


def read_run(path: Path) -> TrainingRun:
    """The comparison that a file holds."""
    try:
        content = json.loads(path.read_bytes())
        if content["form"] != FORM or version_of(content) != FORM_VERSION:
            raise ValueError("it is of another form")
        profilers = tuple(
            Profiler(own["name"], own["title"], reader=own["reader"], limits=tuple(own["limits"]))
            for own in content["profilers"]
        )
        trials = tuple(map(training_trial_from_json, content["trials"]))
        return TrainingRun(
            content["settings"], profilers, content["absent"], trials, float(content["started"])
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "Give a file that --save wrote") from None


def text_lines(run: TrainingRun, width: int) -> Iterator[str]:
    """The comparison for the terminal."""
    yield from run.heading
    for name, reason in run.absent.items():
        yield f"left out: {name}: {reason}"
    for table in run.tables:
        titles, lines, _ = plain_lines(table, width)
        yield from ("", table.title, titles, *lines)
        for note in table.notes:
            yield from wrapped(note, width, "  ")
    yield from ("", "what cannot be compared")
    for profiler in run.profilers:
        if profiler.limits:
            yield from wrapped(f"{profiler.name}: {'; '.join(profiler.limits)}", width, "  ")
