"""One rank of an example; ranks share a GPU as if they were hosts: `example_rank.py FILE`."""

import os
import runpy
import sys
from pathlib import Path

os.environ.update(
    NCCL_HOSTID=f"host{os.environ['RANK']}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1"
)
path = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(path.parent))
runpy.run_path(str(path), run_name="__main__")
