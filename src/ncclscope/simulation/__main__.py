"""`python -m ncclscope.simulation SCENARIO` runs a simulated job; `ncclscope run --` records it."""

import sys
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.simulation.job import environment_here, run_job
from ncclscope.simulation.scenario import read_scenario


def main() -> int:
    """Runs the scenario that the command line names."""
    if len(sys.argv) != 2:
        print("usage: python -m ncclscope.simulation SCENARIO", file=sys.stderr)
        return 2
    try:
        return run_job(read_scenario(Path(sys.argv[1])), environment_here())
    except NcclscopeError as error:
        print(f"ncclscope: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
