"""`ncclscope demo`."""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from ncclscope.capture.tally import ProcessTally, tally_capture
from ncclscope.errors import NcclscopeError
from ncclscope.simulation.scenario import read_scenario

_SCENARIO = Path(__file__).parents[1] / "simulation" / "late_rank.scenario"
_NEEDED_BY_REPORT = ("numpy", "duckdb")


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


def table_lines(tallies: list[ProcessTally]) -> list[str]:
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
    """Runs another verb, as the user would."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "ncclscope", *words], check=False).returncode


def _show(directory: Path) -> None:
    """The report; where what it needs is not installed, what was recorded."""
    if all(importlib.util.find_spec(name) for name in _NEEDED_BY_REPORT):
        if _this_program("report", directory):
            raise NcclscopeError("the report of the demo failed")
        return
    tallies = sorted(tally_capture(directory), key=lambda one: one.identity.get("env.RANK", ""))
    print(
        "\n".join(
            [*table_lines(tallies), "", "report needs numpy and duckdb: pip install numpy duckdb"]
        )
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs a simulated job through `ncclscope run`, shows the report and what to try next."""
    directory = Path(arguments.output or time.strftime("ncclscope-demo-%Y%m%d-%H%M%S"))
    file = Path(arguments.scenario or _SCENARIO)
    scenario = read_scenario(file)
    job: list[str | Path] = [sys.executable, "-m", "ncclscope.simulation", file]
    print(f"$ ncclscope run -o {directory} -- python -m ncclscope.simulation {file.name}")
    print(f"({scenario.ranks} processes; NCCL and GPUs are simulated, the recorder is real)")
    code = _this_program("run", "-o", directory, "--", *job)
    if code and not (scenario.never or scenario.wrong or scenario.dies):
        raise NcclscopeError(f"the simulated job failed with exit code {code}")
    print(f"\n$ ncclscope report {directory}")
    _show(directory)
    print(f"\nnext: ncclscope diagnose {directory}")
    print(f"      ncclscope dump {directory}")
    print("      ncclscope run -- torchrun train.py    (on a machine with GPUs)")
    return 0
