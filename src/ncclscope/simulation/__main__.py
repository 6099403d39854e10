"""`python -m ncclscope.simulation SCENARIO` runs a simulated job; `ncclscope run --` records it."""

import signal
import sys
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.simulation.job import job_environment, run_job
from ncclscope.simulation.scenario import read_scenario

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _catch_signals() -> list[int]:
    """A list that handlers append to: the number of each signal that asks the job to end."""
    signals: list[int] = []
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, lambda number, _: signals.append(number))
    return signals


def main() -> int:
    """Runs the scenario that the command line names; 128 + n when signal n ended it."""
    if len(sys.argv) != 2:
        print("usage: python -m ncclscope.simulation SCENARIO", file=sys.stderr)
        return 2
    signals = _catch_signals()
    try:
        scenario = read_scenario(Path(sys.argv[1]))
        code = run_job(scenario, job_environment(), lambda: bool(signals))
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return error.exit_code
    return 128 + signals[0] if signals else code


if __name__ == "__main__":
    sys.exit(main())
