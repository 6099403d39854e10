"""`ncclscope diagnose`."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from ncclscope.analysis.baseline import Baseline, read_baseline
from ncclscope.analysis.run import Run
from ncclscope.analysis.time_selection import model_between
from ncclscope.arrays.freed_memory import keep_freed_memory
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli import suggested_commands
from ncclscope.cli.arguments.equal_jobs import check_equal_jobs
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.rank_arguments import ranks_of_options
from ncclscope.cli.selection_options import (
    check_operations_for_time,
    time_selection_of,
)
from ncclscope.cli.terminal import output_width, paint
from ncclscope.diagnose.diagnosis import Diagnosis, about, diagnose
from ncclscope.diagnose.finding import at_least, sort_findings
from ncclscope.humanize import plural
from ncclscope.model.model import Model
from ncclscope.report.diagnosis import as_json, lines
from ncclscope.snapshot.process import unfinished_snapshots

_FOUND = 3  # exit code
_WIDEST = 120


def _diagnosis(model: Model, arguments: argparse.Namespace, baseline: Baseline | None) -> Diagnosis:
    """All findings about the chosen time."""
    check_operations_for_time(model, arguments)
    time = time_selection_of(model, arguments)
    # Snapshots show the last moment, which is not in a time that ends before it.
    snapshots = unfinished_snapshots(model) if time.until_ns is None else None
    chosen = model_between(model, time)
    diagnosis = diagnose(chosen, snapshots, baseline)
    return _with_history(diagnosis, chosen, arguments) if arguments.history else diagnosis


def _with_history(diagnosis: Diagnosis, model: Model, arguments: argparse.Namespace) -> Diagnosis:
    """The diagnosis with what earlier jobs of a history say."""
    # Late: only with --history.
    from ncclscope.history.findings import history_findings
    from ncclscope.history.place import history_directory
    from ncclscope.history.sums import sums_of

    ranks_of: dict[str, tuple[int, ...]] = {}
    for rank, host in sorted(Run(model).host_of.items()):
        ranks_of[host] = (*ranks_of.get(host, ()), rank)
    directory, equal_jobs = history_directory(arguments.history), arguments.equal_jobs
    past = history_findings(directory, sums_of(model), ranks_of, model.path, equal_jobs)
    return replace(diagnosis, findings=sort_findings((*diagnosis.findings, *past)))


def run(arguments: argparse.Namespace) -> int:
    """Prints findings, the worst first."""
    check_equal_jobs(arguments)
    baseline = read_baseline(Path(arguments.baseline)) if arguments.baseline else None
    model = open_model_with_progress(resolve_capture(arguments.capture), arguments.on)
    keep_freed_memory()
    all_found = _diagnosis(model, arguments, baseline)
    found = about(model, all_found, ranks_of_options(arguments.rank), arguments.comm)
    left_out = len(all_found.findings) - len(found.findings)
    if arguments.json:
        answer = as_json(model, found, left_out if arguments.rank or arguments.comm else None)
        print(json.dumps(answer, indent=2, allow_nan=False))
    else:
        for line in lines(model, found, output_width(_WIDEST), suggested_commands.command()):
            print(paint(line))
        if left_out:
            print(f"\n{plural(left_out, 'finding')} about others left out: --rank, --comm")
    bar = arguments.fail_on
    failed = bar and any(at_least(finding.severity, bar) for finding in found.findings)
    return _FOUND if failed else 0
