"""README's lines that record a job, with real launchers: is every rank and call on record?

    python -m benchmarks.launch_lines

The job is `ncclscope bench` on the simulated NCCL, two ranks that move data between each other;
each is the rank that its launcher made it. Needs Open MPI, PyTorch's torchrun, and what slurm.py
needs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, publish, table
from tests.support.slurm_cluster import slurm_cluster, why_not

_BIN = Path(sys.executable).parent
_CALLS = 20
_RANKS = 2
_WARM_UP = 1
_JOB = f"ncclscope bench --simulate -b 1M -n {_CALLS} -w {_WARM_UP} -c 0 --place out"
_RUN = "ncclscope run -o CAPTURE --"
_MPIRUN = "mpirun --allow-run-as-root --oversubscribe -np 2"
_SRUN = "srun -N 2 -n 2"
_HERE = "--address 127.0.0.1"  # the names of these nodes are in no DNS
# As README has them; the job's own words and what root and two cores need are put in.
_LINES = {
    "ncclscope run -- torchrun": f"{_RUN} torchrun --nproc-per-node 2 --no-python {_JOB}",
    "ncclscope run -- mpirun": f"{_RUN} {_MPIRUN} {_JOB}",
    "mpirun ncclscope run --": f"{_MPIRUN} {_RUN} {_JOB}",
    "ncclscope run -- srun": f"{_RUN} {_SRUN} {_JOB} {_HERE}",
    "ncclscope run -- srun --export=PATH,HOME": f"{_RUN} {_SRUN} --export=PATH,HOME {_JOB} {_HERE}",
    "srun ncclscope run --": f"{_SRUN} {_RUN} {_JOB} {_HERE}",
    "srun, with the TaskProlog of the page": f"{_SRUN} {_JOB} {_HERE}",
    "ncclscope run --": f"{_RUN} {_JOB} --ranks 2",
}


def _task_prolog(folder: Path) -> Path:
    """The file of docs/deploy/slurm.md with this tree's plugin, and captures in the folder."""
    page = (ROOT / "docs" / "deploy" / "slurm.md").read_text()
    text = page.partition("```sh file=task_prolog.sh\n")[2].partition("```")[0]
    plugin = subprocess.check_output([_BIN / "ncclscope", "plugin-path"], text=True).strip()
    text = text.replace("/opt/ncclscope/libnccl-profiler-ncclscope.so", plugin)
    file = folder / "task_prolog.sh"
    file.write_text(text.replace("/scratch/", f"{folder}/scratch/"))
    file.chmod(0o755)
    return file


def _tried(name: str, line: str, folder: Path) -> list[object]:
    """A row: exit code, processes, calls."""
    capture = folder / "captures" / name.replace(" ", "-").replace("=", "")
    environment = os.environ | {"PATH": f"{_BIN}:{os.environ['PATH']}"}
    words = line.replace("CAPTURE", str(capture)).split()
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        print(done.stdout, done.stderr)
    if "CAPTURE" not in line:
        (capture,) = (folder / "scratch").glob("*/ncclscope-*")
    report = json.loads(
        subprocess.check_output([_BIN / "ncclscope", "report", "--json", capture], text=True)
    )
    complete = report["completeness"]
    found = complete["processes"]["found"]
    return [f"`{name} …`", done.returncode, found, complete["calls"]]


def main() -> None:
    """All lines, one after the other."""
    if reason := why_not():
        raise SystemExit(f"launch_lines: {reason}")
    with tempfile.TemporaryDirectory(prefix="launch-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cluster").mkdir()
        extra = f"TaskProlog={_task_prolog(folder)}\n"
        with slurm_cluster(folder / "cluster", extra):
            rows = [_tried(name, line, folder) for name, line in _LINES.items()]
    expected = [0, _RANKS, _RANKS * (_CALLS + _WARM_UP)]
    note = f"Two nodes of Slurm on one host. {expected[2]} calls were made. Bar: all on record."
    publish("launch-lines", f"{table(['line', 'exit code', 'processes', 'calls'], rows)}\n\n{note}")
    if wrong := [row for row in rows if row[1:] != expected]:
        raise SystemExit(f"not as expected: {wrong}")


if __name__ == "__main__":
    main()
