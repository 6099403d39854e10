"""Which NCCL a process uses, or would use: its path and its release."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ncclscope.nccl.libraries import (
    FILE_PREFIXES,
    HOST_PREFIXES,
    SONAMES,
    installed_paths,
    release_in,
)
from ncclscope.nccl.releases import Release


@dataclass(frozen=True, slots=True)
class Library:
    """One NCCL library, or a library with NCCL linked into it."""

    path: Path
    origin: str  # where it was looked for
    release: Release | None


def mapped_by(pid: int) -> list[Library]:
    """NCCL in a running process: the library itself, or PyTorch with NCCL linked in."""
    libraries: dict[Path, Library] = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[5]) if line.count("/") else Path()
        if path.name.startswith((*FILE_PREFIXES, *HOST_PREFIXES)) and path not in libraries:
            release = release_in(path)
            if release or path.name.startswith(FILE_PREFIXES):
                libraries[path] = Library(path, f"mapped by process {pid}", release)
    return list(libraries.values())


def _linker_cache() -> list[Path]:
    for program in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            answer = subprocess.run(
                [program, "-p"], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = [line for line in answer.stdout.splitlines() if line.strip().startswith(SONAMES)]
        return [Path(line.rpartition("=> ")[2]) for line in lines]
    return []


def candidates(environment: Mapping[str, str]) -> list[Library]:
    """Every NCCL that a program started here might load, the likeliest first."""
    places = installed_paths(environment)
    places += [(path, "the system's linker cache") for path in _linker_cache()]
    libraries: dict[str, Library] = {}
    for path, origin in places:
        real = os.path.realpath(path)
        if real not in libraries and Path(real).is_file():
            release = release_in(Path(real))
            if release or path.name in SONAMES:
                libraries[real] = Library(path, origin, release)
    return list(libraries.values())
