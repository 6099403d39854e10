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
from ncclscope.simulation.scenario import Scenario
from ncclscope.simulation.scenario_files import read_scenario

_SCENARIO = "late_rank.toml"  # comes with the package
_NEEDED_BY_REPORT = ("numpy", "duckdb")
_ENDED = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}


def table_lines(processes: list[ProcessContents]) -> list[str]:
    """A table of events by type, with a column for each rank."""
    ranks = [process.identity.get("env.RANK", "?") for process in processes]
    kinds = [kind for kind in processes[0].kinds if any(p.kinds[kind] for p in processes)]
    lines = [f"  {'event':<14}" + "".join(f"{'rank ' + rank:>10}" for rank in ranks)]
    for kind in kinds:
        lines.append(f"  {kind:<14}" + "".join(f"{p.kinds[kind]:>10,}" for p in processes))
    lines.append(f"  {'all':<14}" + "".join(f"{p.events:>10,}" for p in processes))
    lines.append(f"  {'dropped':<14}" + "".join(f"{p.dropped:>10,}" for p in processes))
    return lines


def _this_program(*words: str | Path) -> int:
    """Runs another verb, as the user would, and forwards signals to it."""
    sys.stdout.flush()
    return run_command([*suggested_commands.own_words(), *map(str, words)], os.environ)


def _show(directory: Path) -> None:
    """Shows the report, or if its packages are not installed, what was recorded."""
    if all(importlib.util.find_spec(name) for name in _NEEDED_BY_REPORT):
        if _this_program("report", directory):
            raise NcclscopeError("the report of the demo failed")
        return
    processes = sorted(
        contents_of_capture(directory), key=lambda process: process.identity.get("env.RANK", "")
    )
    needs = "report and diagnose need numpy and duckdb: pip install numpy duckdb"
    print("\n".join([*table_lines(processes), "", needs]))


def _ends_by_itself(scenario: Scenario) -> bool:
    """Whether the scenario has no rank that hangs or dies."""
    faults = (scenario.never, scenario.wrong, scenario.dies, scenario.stuck, scenario.never_joins)
    return not any(faults)


def next_lines(directory: Path) -> list[str]:
    """Commands to try next."""
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
    """Records a simulated job with `ncclscope run`, shows its report and what to try next."""
    directory = Path(arguments.output or time.strftime("ncclscope-demo-%Y%m%d-%H%M%S"))
    file = arguments.scenario or _SCENARIO
    scenario = read_scenario(Path(file))
    job = [*suggested_commands.python_words(), "-m", "ncclscope.simulation", file]
    print("$", suggested_commands.command("run", "-o", directory, "--", *job))
    print(f"({scenario.ranks} processes; NCCL and GPUs are simulated, the recorder is real)")
    code = _this_program("run", "-o", directory, "--", *job)
    if code in _ENDED:
        return code
    if code and _ends_by_itself(scenario):
        raise NcclscopeError(f"the simulated job failed with exit code {code}")
    print("\n$", suggested_commands.command("report", directory))
    _show(directory)
    print("\n".join(next_lines(directory)))
    return 0
