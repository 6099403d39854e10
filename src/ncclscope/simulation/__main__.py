"""`python -m ncclscope.simulation SCENARIO` runs a simulated job; `ncclscope run --` records it.

With `--to-toml` before the scenario, it is printed as TOML instead.
"""

import shlex
import signal
import sys
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.simulation.job import job_environment, run_job
from ncclscope.simulation.scenario_files import is_toml, read_scenario, toml_text

_TO_TOML = "--to-toml"
_OLD = (
    "hint: scenarios are TOML files now; files like {0} are still read. "
    f"`python -m ncclscope.simulation {_TO_TOML} {{0}}` prints it as TOML"
)
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
    *options, file = sys.argv[1:] or [""]
    if not file or file.startswith("-") or options not in ([], [_TO_TOML]):
        print(f"usage: python -m ncclscope.simulation [{_TO_TOML}] SCENARIO", file=sys.stderr)
        return 2
    signals = _catch_signals()
    try:
        scenario = read_scenario(Path(file))
        if options:
            print(toml_text(scenario), end="")
            return 0
        if not is_toml(Path(file)):
            print(_OLD.format(shlex.quote(file)), file=sys.stderr)
        code = run_job(scenario, job_environment(), lambda: bool(signals))
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return error.exit_code
    return 128 + signals[0] if signals else code


if __name__ == "__main__":
    sys.exit(main())
