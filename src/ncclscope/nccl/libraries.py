"""NCCL's shared library: its names, where it is installed, and the release it says it is.

A library with NCCL's interface under another name, such as RCCL's librccl.so, is one more entry in
`LIBRARIES`.
"""

import mmap
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ncclscope.nccl.releases import Release, parse_release


@dataclass(frozen=True, slots=True)
class LibraryNames:
    """What one vendor's library is called."""

    soname: str
    file_prefixes: tuple[str, ...]  # of files that processes map
    package_folder: Path  # below site-packages
    package: str  # how doctor names it
    release_text: str  # in the file: a pattern whose group is the release


LIBRARIES = (
    LibraryNames(
        "libnccl.so.2",
        ("libnccl.so", "libnccl-2"),
        Path("nvidia/nccl/lib"),
        "Python package nvidia-nccl",
        r"NCCL version (\d+\.\d+\.\d+)\+cuda",
    ),
)
SONAMES = tuple(names.soname for names in LIBRARIES)
FILE_PREFIXES = tuple(prefix for names in LIBRARIES for prefix in names.file_prefixes)
# PyTorch's own builds have NCCL linked in.
HOST_PREFIXES = ("libtorch_cuda",)
_HOST = Path("torch/lib/libtorch_cuda.so")
_RELEASE = re.compile("|".join(names.release_text for names in LIBRARIES).encode())


def python_package_folders() -> Iterator[Path]:
    """The site-packages of this interpreter."""
    for entry in sys.path:
        if entry and Path(entry).name in ("site-packages", "dist-packages"):
            yield Path(entry)


def installed_paths(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Where a program started here finds NCCL, the likeliest place first, and what that place is
    called. The linker's cache, which comes last, is not in the list.
    """
    places = [
        (Path(folder) / soname, "LD_LIBRARY_PATH")
        for folder in environment.get("LD_LIBRARY_PATH", "").split(":")
        if folder
        for soname in SONAMES
    ]
    for site in python_package_folders():
        places += [
            (site / names.package_folder / names.soname, names.package) for names in LIBRARIES
        ]
        places.append((site / _HOST, "linked into PyTorch"))
    if environment.get("CONDA_PREFIX"):
        lib = Path(environment["CONDA_PREFIX"]) / "lib"
        places += [(lib / soname, "conda environment") for soname in SONAMES]
    return places


def release_in(path: Path) -> Release | None:
    """The release that a library says it is; it is read, not loaded."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _RELEASE.search(data)
            return parse_release(match[match.lastindex or 0].decode()) if match else None
    except (OSError, ValueError):
        return None
