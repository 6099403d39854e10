"""The examples start, train and end: two ranks on the CPU run them one after the other."""

import os
import subprocess
import sys

from tests.support.free_ports import free_port
from tests.support.packages import needs
from tests.support.paths import ROOT

pytestmark = needs("torch")

_EXAMPLES = ("ddp", "densenet", "fsdp2", "tensor_parallel", "pipeline", "graph_replay")
# PyTorch is imported once, which takes longer than all examples; the ranks are forks.
_DRIVER = """
import os, runpy, sys
import torch, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor.parallel
import torch.distributed.pipelining
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
rank = 0 if os.fork() else 1
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
for port, name in zip(os.environ["PORTS"].split(","), sys.argv[2:]):
    os.environ["MASTER_PORT"] = port
    runpy.run_path(f"{sys.argv[1]}/{name}.py", run_name="__main__")
    print(f"{name} {rank}\\n", end="", flush=True)
if rank == 0:
    sys.exit(os.wait()[1])
"""


def test_every_example_is_in_this_test_and_on_the_page() -> None:
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"common"}
    assert files == {*_EXAMPLES, "jax_data_parallel"}  # JAX needs GPUs to call NCCL
    page = (ROOT / "examples" / "README.md").read_text()
    assert all(f"[{name}.py]({name}.py)" in page for name in _EXAMPLES)


def test_the_examples_run_without_a_gpu() -> None:
    ports = ",".join(str(free_port()) for _ in _EXAMPLES)
    environment = os.environ | {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "PORTS": ports, "STEPS": "1",
        "IMAGE": "32", "BATCH": "2", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(ROOT / "examples"), *_EXAMPLES],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    both = [f"{name} {rank}" for name in _EXAMPLES for rank in range(2)]
    assert sorted(ran.stdout.splitlines()) == sorted(both)
