"""`python -m ncclscope.system CAPTURE SECONDS ROOT`: samples until its standard input ends."""

import sys
from pathlib import Path

from ncclscope.system.sampler import run_sampler

if __name__ == "__main__":
    sys.exit(run_sampler(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
