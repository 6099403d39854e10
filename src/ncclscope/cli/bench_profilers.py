"""`ncclscope bench --profiler`, `--compare-profilers`: the options, and what they do."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ncclscope.cli.terminal import output_width
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.output_files import write_text

if TYPE_CHECKING:  # `bench --help` takes the options from here, and does without numpy
    from ncclscope.bench.plan import Plan
    from ncclscope.bench.profilers.comparison_files import ComparisonRun
    from ncclscope.bench.session import LaunchOptions
    from ncclscope.bench.training.files import TrainingRun

_WIDEST = 200


def run_training_comparison(arguments: argparse.Namespace) -> int:
    """Trains below each profiler, and shows the comparison."""
    from ncclscope.bench.profilers.selection import select_profilers
    from ncclscope.bench.training import files, trials

    trials.check_torch()
    for value, option in (
        (arguments.rounds, "--rounds"),
        (arguments.steps, "--steps"),
        (arguments.batch, "--batch"),
        (arguments.ranks or 1, "--ranks"),
    ):
        if value < 1:
            raise UsageError(f"{option} {value} makes no sense", f"Give {option} 1 or more")
    selection = select_profilers(arguments.profiler, os.environ, training=True)
    devices = trials.visible_gpus()
    settings = trials.TrainingSettings(
        arguments.train, arguments.ranks or max(devices, 2), devices, arguments.steps,
        batch=arguments.batch, rounds=arguments.rounds, share=arguments.share_gpu,
        timeout_s=arguments.timeout,
        output=Path(arguments.profiler_output).resolve() if arguments.profiler_output else None,
    )  # fmt: skip
    if 0 < devices < settings.ranks and not settings.share:
        message = f"cannot start {settings.ranks} ranks: there are {devices} GPUs"
        raise UsageError(message, "Use fewer --ranks, or --share-gpu to put several on one")
    began, finished = time.time(), list[trials.TrainingTrial]()

    def show_progress(trial: trials.TrainingTrial) -> None:
        finished.append(trial)
        what = trial.profiler + (f": {trial.failure}" if trial.failure else "")
        planned = len(selection.profilers) * settings.rounds
        print(f"ncclscope: {len(finished)} of {planned}: {what}", file=sys.stderr, flush=True)

    trials.run_training(selection.profilers, settings, show_progress)
    run = files.TrainingRun(
        files.settings_json(settings), selection.profilers, selection.absent, tuple(finished), began
    )
    return show_training(arguments, run)


def show_training(arguments: argparse.Namespace, run: "TrainingRun") -> int:
    """Prints and writes a comparison of training runs."""
    from ncclscope.bench.training.files import as_csv, as_json, text_lines
    from ncclscope.bench.training.page import as_html

    if arguments.json:
        print(json.dumps(as_json(run)))
    else:
        print("\n".join(text_lines(run, output_width(_WIDEST))))
    if arguments.save:
        write_text(Path(arguments.save), json.dumps(as_json(run)) + "\n")
    if arguments.csv:
        write_text(Path(arguments.csv), as_csv(run))
    if arguments.plot and arguments.plot != "-":
        write_text(Path(arguments.plot), as_html(run))
    return 0


def is_comparison(arguments: argparse.Namespace) -> bool:
    """Whether profilers are compared."""
    asked = (arguments.compare_profilers, arguments.profiler, arguments.comparison, arguments.train)
    return any(asked)


def list_profilers() -> int:
    """Prints the known profilers, and whether each can be used here."""
    from ncclscope.bench.profilers.profiler_table import known_profilers

    for profiler in known_profilers().values():
        absent = profiler.why_absent(os.environ)
        print(f"{profiler.name:<26} {profiler.title}" + (f" (absent: {absent})" if absent else ""))
    return 0


def check_comparison(arguments: argparse.Namespace, options: "LaunchOptions", plan: "Plan") -> None:
    """Raises if profilers cannot be compared in this way."""
    from ncclscope.bench.profilers.trials import check_comparable, check_output

    check_comparable(plan)
    if arguments.profiler_output and options.placement.leads:
        check_output(Path(arguments.profiler_output))
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds} makes no sense", "Give --rounds 1 or more")
    placement = options.placement
    if len(placement.local_ranks) < placement.ranks and not arguments.profiler_output:
        message = "ranks on several hosts write their profilers' files in several places"
        raise UsageError(message, "Give --profiler-output a directory that all hosts share")


def run_comparison(arguments: argparse.Namespace, options: "LaunchOptions", plan: "Plan") -> int:
    """Runs every profiler's trials, and shows the comparison."""
    from ncclscope.bench.profilers.comparison_files import ComparisonRun, machine_of, settings_of
    from ncclscope.bench.profilers.selection import select_profilers
    from ncclscope.bench.profilers.trials import (
        ProfilerTrial,
        TrialSettings,
        order_of_trials,
        run_trials,
    )

    check_comparison(arguments, options, plan)
    selection = select_profilers(arguments.profiler, options.environment)
    output = Path(arguments.profiler_output).resolve() if arguments.profiler_output else None
    settings = TrialSettings(plan, options, arguments.rounds, output)
    began, trials = time.time(), list[ProfilerTrial]()
    planned = len(list(order_of_trials(selection.profilers, settings.rounds, settings.kinds)))

    def show_progress(trial: ProfilerTrial) -> None:
        trials.append(trial)
        what = f"{trial.profiler}, {trial.kind}" + (f": {trial.failure}" if trial.failure else "")
        if options.placement.leads:
            print(f"ncclscope: {len(trials)} of {planned}: {what}", file=sys.stderr, flush=True)

    run_trials(selection.profilers, settings, show_progress)
    if not options.placement.leads:
        return 0
    if not settings.sessions:
        raise NcclscopeError(f"cannot compare profilers: no run began. {trials[0].failure}")
    run = ComparisonRun(
        machine_of(settings.sessions[0]), settings_of(plan, arguments.rounds),
        selection.profilers, selection.absent, tuple(trials), began,
    )  # fmt: skip
    return show_run(arguments, run)


def show_saved(arguments: argparse.Namespace) -> int:
    """Shows a comparison that was measured before, of calls or of training."""
    from ncclscope.bench.profilers.comparison_files import read_run
    from ncclscope.bench.training import files

    path = Path(arguments.comparison)
    try:
        return show_training(arguments, files.read_run(path))
    except UsageError:
        return show_run(arguments, read_run(path))


def show_run(arguments: argparse.Namespace, run: "ComparisonRun") -> int:
    """Prints and writes a comparison in all forms that were asked for."""
    from ncclscope.bench.profilers.comparison_files import as_csv, as_json
    from ncclscope.bench.profilers.comparison_page import as_html
    from ncclscope.bench.profilers.comparison_tables import text_lines

    if arguments.json:
        print(json.dumps(as_json(run)))
    else:
        width = output_width(_WIDEST)
        print("\n".join(text_lines(run.comparison, run.heading, dict(run.absent), width)))
    if arguments.save:
        write_text(Path(arguments.save), json.dumps(as_json(run)) + "\n")
    if arguments.csv:
        write_text(Path(arguments.csv), as_csv(run))
    if arguments.plot and arguments.plot != "-":
        write_text(Path(arguments.plot), as_html(run))
    return 0
