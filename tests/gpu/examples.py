"""What ncclscope shows of the examples on a GPU: `python -m tests.gpu.examples FOLDER [NAME …]`.

Writes the report of each job, and the one by what its page suggests, into the folder; they are what
examples/README.md shows parts of. Ranks share one GPU.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gpu.mps import mps

RANK = Path(__file__).with_name("example_rank.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
# By example: ranks, options of `run`, and what to report by.
JOBS: dict[str, tuple[int, tuple[str, ...], str]] = {
    "ddp": (2, (), "module"),
    "densenet": (2, (), "module,size"),
    "fsdp2": (2, (), "module,phase"),
    "tensor_parallel": (4, ("--torch=modules",), "dimension,module"),
    "pipeline": (2, (), "phase,function"),
    "graph_replay": (2, ("--gpu-timing", "kernel"), "step"),
}


def run_example(name: str, capture: Path) -> str:
    """Runs an example recorded; what went wrong, or nothing."""
    ranks, options, _ = JOBS[name]
    command = [sys.executable, "-m", "ncclscope", "run", "-q", "-o", str(capture), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    command += [str(RANK), str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.stderr[-4000:] if ran.returncode else ""


def ncclscope(*arguments: object) -> str:
    command = [sys.executable, "-m", "ncclscope", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def main() -> None:
    """Runs the examples one after the other and keeps what it has."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or JOBS:
        with tempfile.TemporaryDirectory() as directory, mps():
            capture = Path(directory) / "capture"
            failure = run_example(name, capture)
            parts = [failure] if failure else []
            parts.append(ncclscope("report", capture))
            parts.append(ncclscope("report", capture, "--by", JOBS[name][2]))
            parts.append(ncclscope("diagnose", capture))
            (folder / f"{name}.txt").write_text("\n".join(parts))
            print(f"{name}: {'failed' if failure else 'ran'}", flush=True)


if __name__ == "__main__":
    main()
