"""`python -m ncclscope.simulation SCENARIO` runs a simulated job; `ncclscope run --` records it."""

import signal
import sys
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.simulation.job import environment_here, run_job
from ncclscope.simulation.scenario import read_scenario

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _heard() -> list[int]:
    """A list that gets the number of each signal that asks the job to end."""
    heard: list[int] = []
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, lambda number, _: heard.append(number))
    return heard


def main() -> int:
    """Runs the scenario that the command line names; 128 + n when signal n ended it."""
    if len(sys.argv) != 2:
        print("usage: python -m ncclscope.simulation SCENARIO", file=sys.stderr)
        return 2
    heard = _heard()
    try:
        scenario = read_scenario(Path(sys.argv[1]))
        code = run_job(scenario, environment_here(), lambda: bool(heard))
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return error.exit_code
    return 128 + heard[0] if heard else code


if __name__ == "__main__":
    sys.exit(main())
