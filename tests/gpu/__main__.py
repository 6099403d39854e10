"""`python -m tests.gpu [coverage] [--nccl DIR] [--releases A,B] [--worlds 2,4]`: real NCCL, in slices of minutes.

DIR holds further NCCL releases as libnccl-<release>.so or .so.gz; without it only the one that
PyTorch brings is tried. Results go to docs/measurements.md.
"""

import argparse
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.results import publish, table
from tests.gpu.coverage import Row, coverage


def torch_release() -> str:
    """NCCL's release in the PyTorch that is installed."""
    code = "import torch; print('.'.join(map(str, torch.cuda.nccl.version())))"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def libraries(directory: Path | None, releases: str | None) -> dict[str, Path | None]:
    """NCCL libraries by release; None stands for PyTorch's own."""
    found: dict[str, Path | None] = {f"{torch_release()} (torch)": None}
    for packed in sorted(directory.glob("libnccl-*.so*")) if directory else []:
        path = packed.with_suffix("") if packed.suffix == ".gz" else packed
        if packed != path and not path.exists():
            with gzip.open(packed) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        found[path.name.removeprefix("libnccl-").removesuffix(".so")] = path.resolve()
    if releases:
        chosen = releases.split(",")
        found = {name: path for name, path in found.items() if name.split()[0] in chosen}
    return found


def percent(row: Row) -> str:
    """Share of calls on record; nothing where NCCL reports nothing."""
    return f"{100 * row.recorded / row.made:.4g} %" if row.made else "–"


def gpu_name() -> str:
    """The GPU and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.check_output(query, text=True).strip().split(", ")
    return f"{name}, driver {driver}"


def main() -> int:
    """Runs what was asked for and publishes it."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--nccl", type=Path, metavar="DIR")
    parser.add_argument("--releases", help="only these, comma-separated")
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks (default: 2,4)")
    arguments = parser.parse_args()
    worlds = tuple(int(world) for world in arguments.worlds.split(","))
    rows = coverage(libraries(arguments.nccl, arguments.releases), worlds)
    header = ["NCCL", "ranks", "case", "calls made", "on record", "", "NCCL reports nothing of"]
    cells: list[list[object]] = [
        [r.nccl, r.ranks, r.case, r.made, r.recorded, percent(r), r.invisible or ""] for r in rows
    ]
    note = (
        f"All ranks share one {gpu_name()}, each posing as a host of its own. Calls of all ranks "
        "together, graph replays and captured calls included. NCCL reports no event of "
        "communicators of one rank to any plugin: their calls stand in the last column."
    )
    publish("gpu-coverage", f"{table(header, cells)}\n\n{note}")
    wrong = [row for row in rows if row.differences]
    for row in wrong:
        print("DIFFERENT", row, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
