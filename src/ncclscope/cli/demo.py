"""`ncclscope demo`."""

import argparse
import importlib.util
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from ncclscope.capture.contents import ProcessContents, contents_of_capture
from ncclscope.cli import suggested_commands
from ncclscope.errors import NcclscopeError
from ncclscope.launch.child import run_command
from ncclscope.simulation.scenario import Scenario, read_scenario

_SCENARIO = "late_rank.scenario"  # comes with the package
_NEEDED_BY_REPORT = ("numpy", "duckdb")
_ENDED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the capture goes, and what the job does."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the capture (default: ./ncclscope-demo-<time>)"
    )
    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="another job: docs/simulation.md says how to write one (default: a late rank)",
    )


def table_lines(tallies: list[ProcessContents]) -> list[str]:
    """Events by type, a column per rank."""
    ranks = [tally.identity.get("env.RANK", "?") for tally in tallies]
    kinds = [kind for kind in tallies[0].kinds if any(tally.kinds[kind] for tally in tallies)]
    lines = [f"  {'event':<14}" + "".join(f"{'rank ' + rank:>10}" for rank in ranks)]
    for kind in kinds:
        lines.append(f"  {kind:<14}" + "".join(f"{tally.kinds[kind]:>10,}" for tally in tallies))
    lines.append(f"  {'all':<14}" + "".join(f"{tally.events:>10,}" for tally in tallies))
    lines.append(f"  {'dropped':<14}" + "".join(f"{tally.dropped:>10,}" for tally in tallies))
    return lines


def _this_program(*words: str | Path) -> int:
    """Runs another verb, as the user would; signals reach it."""
    sys.stdout.flush()
    return run_command([*suggested_commands.own_words(), *map(str, words)], os.environ)


def _show(directory: Path) -> None:
    """The report; where what it needs is not installed, what was recorded."""
    if all(importlib.util.find_spec(name) for name in _NEEDED_BY_REPORT):
        if _this_program("report", directory):
            raise NcclscopeError("the report of the demo failed")
        return
    tallies = sorted(
        contents_of_capture(directory), key=lambda one: one.identity.get("env.RANK", "")
    )
    needs = "report and diagnose need numpy and duckdb: pip install numpy duckdb"
    print("\n".join([*table_lines(tallies), "", needs]))


def _must_end(scenario: Scenario) -> bool:
    """Whether no rank is meant to hang or die."""
    faults = (scenario.never, scenario.wrong, scenario.dies, scenario.stuck, scenario.never_joins)
    return not any(faults)


def next_lines(directory: Path) -> list[str]:
    """What to try now: commands to copy."""
    lines = [
        "",
        f"next: {suggested_commands.command('diagnose', directory)}",
        f"      {suggested_commands.command('timeline', directory)}",
        f"      {suggested_commands.command('dump', directory)}",
        "On a machine with GPUs: `ncclscope run --` in front of your job's own command.",
    ]
    program = Path(suggested_commands.own_words()[0])
    activate = program.with_name("activate")
    if len(program.parts) > 1 and activate.is_file():
        lines.append(f"(`ncclscope` alone is found after: . {shlex.quote(str(activate))})")
    return lines


def run(arguments: argparse.Namespace) -> int:
    """Runs a simulated job through `ncclscope run`, shows the report and what to try next."""
    directory = Path(arguments.output or time.strftime("ncclscope-demo-%Y%m%d-%H%M%S"))
    file = arguments.scenario or _SCENARIO
    scenario = read_scenario(Path(file))
    job = [*suggested_commands.python_words(), "-m", "ncclscope.simulation", file]
    print("$", suggested_commands.command("run", "-o", directory, "--", *job))
    print(f"({scenario.ranks} processes; NCCL and GPUs are simulated, the recorder is real)")
    code = _this_program("run", "-o", directory, "--", *job)
    if code in _ENDED:
        return code
    if code and _must_end(scenario):
        raise NcclscopeError(f"the simulated job failed with exit code {code}")
    print("\n$", suggested_commands.command("report", directory))
    _show(directory)
    print("\n".join(next_lines(directory)))
    return 0
