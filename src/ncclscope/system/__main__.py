"""`python -m ncclscope.system CAPTURE SECONDS ROOT`: samples until its standard input ends."""

import sys
from pathlib import Path

from ncclscope.system.sampler import sample_beside

if __name__ == "__main__":
    sys.exit(sample_beside(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
