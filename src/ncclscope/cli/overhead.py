"""`ncclscope overhead`."""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from ncclscope.errors import UsageError
from ncclscope.launch.child import stopped_by_signals
from ncclscope.launch.environment import Settings, event_mask, reachable_plugin
from ncclscope.launch.setting_checks import check_settings, check_variables
from ncclscope.native import plugin_path
from ncclscope.overhead import summary_text
from ncclscope.overhead.statistics import FEWEST_ROUNDS, order_of_round
from ncclscope.overhead.trials import OverheadTrial, TrialResult, command_words, run_once


def _pattern(text: str | None) -> "re.Pattern[str] | None":
    if text is None:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        message = f"{text} is no regular expression: {error}"
        raise UsageError(message, "Put the number in ( )") from None
    if pattern.groups != 1:
        message = f"{text} has {pattern.groups} groups"
        raise UsageError(message, "Put the number, and nothing else, in ( )")
    return pattern


def _plugin(path: str | None, directory: Path) -> Path:
    if path is None:
        return reachable_plugin(plugin_path(), directory)
    if not Path(path).is_file():
        raise UsageError(f"cannot load {path}: no such file", "Name a plugin with --plugin")
    return Path(path).absolute()


def trial_of(arguments: argparse.Namespace) -> OverheadTrial:
    """The trial that the arguments describe, checked."""
    if arguments.rounds < FEWEST_ROUNDS:
        message = f"--rounds {arguments.rounds} are too few to know the noise"
        raise UsageError(message, f"Give it {FEWEST_ROUNDS} or more")
    for option in ("seconds", "timeout"):
        value = getattr(arguments, option)
        if value is not None and not value > 0:
            raise UsageError(f"--{option} {value:g} makes no sense", "Give it a time above 0")
    if arguments.plugin and arguments.seconds and not (arguments.rate or arguments.time):
        message = "cannot measure another plugin in a window: it does not count calls for us"
        raise UsageError(message, "Say with --rate or --time which number of the command to take")
    directory = Path(arguments.output or ".").absolute()
    if not directory.is_dir():
        raise UsageError(f"cannot write to {directory}: no such directory", "Make it, or change -o")
    settings = Settings(
        directory, arguments.mode, arguments.events, arguments.arena, arguments.ring,
        arguments.chain, arguments.disk_limit, arguments.gpu_timing,
        nvtx=arguments.nvtx, torch=arguments.torch,
    )  # fmt: skip
    check_settings(settings)
    check_variables(os.environ)
    return OverheadTrial(
        command_words(arguments.command),
        settings,
        _plugin(arguments.plugin, directory),
        arguments.seconds,
        arguments.timeout,
        _pattern(arguments.rate or arguments.time),
        arguments.rate is not None,
        arguments.plugin is None,
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs all rounds and prints what they show."""
    trial = trial_of(arguments)
    with stopped_by_signals():
        trials = _trial_results(trial, arguments)
    simulated = any(
        trial_result.simulated for results in trials.values() for trial_result in results
    )
    costs = {variant: [result.cost for result in results] for variant, results in trials.items()}
    cpu_costs = {
        variant: [result.cpu_s for result in results] for variant, results in trials.items()
    }
    result = summary_text.overhead_result(trial, event_mask(trial.settings), costs, cpu_costs)
    if arguments.json:
        print(json.dumps(summary_text.as_json(result) | {"simulation": simulated}, indent=1))
    else:
        note = ["! this is a simulation: these times mean nothing"] if simulated else []
        print("\n".join([*note, *summary_text.lines(result)]))
    return 0


def _trial_results(
    trial: OverheadTrial, arguments: argparse.Namespace
) -> dict[str, list[TrialResult]]:
    """The results of all rounds by variant; one round more, before, warms up."""
    trials: dict[str, list[TrialResult]] = {variant: [] for variant in trial.variants}
    for number in range(arguments.rounds + 1):
        for variant in order_of_round(trial.variants, number):
            result = run_once(trial, variant)
            if number:
                trials[variant].append(result)
            if not arguments.quiet:
                name = f"round {number} of {arguments.rounds}" if number else "warm-up"
                costs = f"{result.cost:.6g} s, CPU {result.cpu_s:.6g} s"
                print(f"ncclscope: {name}: {variant}: {costs}", file=sys.stderr)
    return trials
