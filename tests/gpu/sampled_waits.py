"""Waiting in sampled captures of real NCCL beside captures with the times of all kernels.

`python -m tests.gpu.sampled_waits DIR` runs a job of many steps four times and packs its captures
into DIR: one rank late to every step, or none, and sampled GPU times, or KernelCh's. `… --read DIR`
compares them where duckdb is: who waited how long for whom, and what diagnose says.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ncclscope.native import plugin_path
from tests.gpu.mps import mps
from tests.gpu.ranks import Job, run_job

RANKS, STEPS = 4, 400
LATE_MS = (0.0, 3.0)
POLICIES = ("sampled", "kernel")


def record(directory: Path) -> None:
    """Runs the jobs."""
    for late_ms in LATE_MS:
        for policy in POLICIES:
            name = f"{policy}-{late_ms:g}ms"
            variables = {
                "NCCL_PROFILER_PLUGIN": str(plugin_path()),
                "NCCLSCOPE_MODE": "trace",
                "NCCLSCOPE_GPU_TIMING": policy,
                "ITERATIONS": str(STEPS),
                "LATE_MS": str(late_ms),
            }
            with tempfile.TemporaryDirectory() as scratch:
                run_job(Job(("steps",), RANKS), variables | {"NCCLSCOPE_DIR": f"{scratch}/{name}"})
                shutil.make_archive(str(directory / name), "gztar", scratch, name)


def ask(verb: str, capture: Path) -> dict[str, object]:
    """A verb's JSON."""
    command = [sys.executable, "-m", "ncclscope", verb, str(capture), "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(json.loads(printed.stdout))


def read(directory: Path) -> None:
    """Compares the captures."""
    for packed in sorted(directory.glob("*.tar.gz")):
        with tempfile.TemporaryDirectory() as scratch:
            shutil.unpack_archive(packed, scratch, filter="data")
            capture = Path(scratch) / packed.name.removesuffix(".tar.gz")
            print(f"---- {capture.name}")
            print(json.dumps(ask("diagnose", capture), indent=1)[:6000])
            for verb in ("report", "diagnose"):
                subprocess.run([sys.executable, "-m", "ncclscope", verb, capture], check=False)


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(Path(sys.argv[2]))
    else:
        with mps():
            record(Path(sys.argv[1]))
