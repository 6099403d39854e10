"""Which NCCL a process uses, or would use: where it lies and which release it is."""

import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ncclscope.nccl.releases import Release, parse_release

_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda")
_NAME = "libnccl.so.2"


@dataclass(frozen=True, slots=True)
class Library:
    """One libnccl, or a library with NCCL linked into it."""

    path: Path
    found: str  # how
    release: Release | None


def release_in(path: Path) -> Release | None:
    """The release that a library says it is; it is read, not loaded."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _VERSION.search(data)
            return parse_release(match[1].decode()) if match else None
    except (OSError, ValueError):
        return None


def mapped_by(pid: int) -> list[Library]:
    """NCCL in a running process: libnccl itself, or PyTorch with NCCL linked in."""
    found: dict[Path, Library] = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[5]) if line.count("/") else Path()
        if path.name.startswith(("libnccl.so", "libnccl-2", "libtorch_cuda")) and path not in found:
            release = release_in(path)
            if release or path.name.startswith("libnccl"):
                found[path] = Library(path, f"mapped by process {pid}", release)
    return list(found.values())


def _site_packages() -> Iterator[Path]:
    for entry in sys.path:
        if entry and Path(entry).name in ("site-packages", "dist-packages"):
            yield Path(entry)


def _linker_cache() -> list[Path]:
    for program in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            answer = subprocess.run(
                [program, "-p"], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = [line for line in answer.stdout.splitlines() if line.strip().startswith(_NAME)]
        return [Path(line.rpartition("=> ")[2]) for line in lines]
    return []


def candidates(environment: Mapping[str, str]) -> list[Library]:
    """Every NCCL a program started here might load, the likeliest first."""
    places: list[tuple[Path, str]] = []
    for directory in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if directory:
            places.append((Path(directory) / _NAME, "LD_LIBRARY_PATH"))
    for site in _site_packages():
        places.append((site / "nvidia" / "nccl" / "lib" / _NAME, "Python package nvidia-nccl"))
        places.append((site / "torch" / "lib" / "libtorch_cuda.so", "linked into PyTorch"))
    if "CONDA_PREFIX" in environment:
        places.append((Path(environment["CONDA_PREFIX"]) / "lib" / _NAME, "conda environment"))
    places += [(path, "the system's linker cache") for path in _linker_cache()]
    found: dict[str, Library] = {}
    for path, how in places:
        real = os.path.realpath(path)
        if real not in found and Path(real).is_file():
            release = release_in(Path(real))
            if release or path.name == _NAME:
                found[real] = Library(path, how, release)
    return list(found.values())
