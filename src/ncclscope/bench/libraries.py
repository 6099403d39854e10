"""Paths of NCCL and of CUDA's runtime: named by the user, simulated, or the likeliest here."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ncclscope.errors import UsageError
from ncclscope.native import simulated_nccl_path
from ncclscope.nccl.libraries import SONAMES, installed_paths, python_package_folders

NCCL_VARIABLE, CUDART_VARIABLE = "NCCLSCOPE_BENCH_NCCL", "NCCLSCOPE_BENCH_CUDART"


@dataclass(frozen=True, slots=True)
class Libraries:
    """The libraries that a rank loads. NCCL itself tells whether it is simulated."""

    nccl: str
    cudart: str


def _nccl(environment: Mapping[str, str]) -> str:
    """The first NCCL that is installed, in the order in which `doctor` looks; it is not opened."""
    paths = [path for path, _ in installed_paths(environment)]
    libraries = (path for path in paths if path.name in SONAMES and path.is_file())
    return str(next(libraries, SONAMES[0]))  # a name without a directory: the linker looks for it


def _cudart_next_to(nccl: Path) -> list[Path]:
    """CUDA's runtime in the Python packages that NCCL is installed with, the newest first."""
    packages = nccl.resolve().parents[2:3]  # site-packages/nvidia of nvidia/nccl/lib/libnccl.so.2
    return [path for folder in packages for path in sorted(folder.glob("**/libcudart.so*"))[::-1]]


def _cudart(nccl: str, environment: Mapping[str, str]) -> str:
    paths = _cudart_next_to(Path(nccl)) if "nvidia" in Path(nccl).parts else []
    for folder in python_package_folders():
        paths += sorted(folder.glob("nvidia/*/lib/libcudart.so*"))[::-1]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(variable):
            paths += sorted(Path(environment[variable]).glob("lib64/libcudart.so*"))[::-1]
    paths += sorted(Path("/usr/local/cuda/lib64").glob("libcudart.so*"))[::-1]
    return str(paths[0]) if paths else "libcudart.so"


def _checked_path(path: str, option: str) -> str:
    if os.sep in path and not Path(path).is_file():
        raise UsageError(f"cannot load {path}: no such file", f"Name a library with {option}")
    return path


def find_libraries(
    nccl: str | None, cudart: str | None, simulate: bool, environment: Mapping[str, str]
) -> Libraries:
    """The libraries that the user names, by option or variable; else the ones installed here."""
    nccl = nccl or environment.get(NCCL_VARIABLE)
    cudart = cudart or environment.get(CUDART_VARIABLE)
    if simulate:
        if nccl or cudart:
            message = "cannot simulate and use a library of yours at once"
            raise UsageError(message, "Leave out --simulate, or --nccl and --cudart")
        path = str(simulated_nccl_path())  # contains the functions of CUDA, too
        return Libraries(path, path)
    nccl = _checked_path(nccl, "--nccl") if nccl else _nccl(environment)
    cudart = _checked_path(cudart, "--cudart") if cudart else _cudart(nccl, environment)
    return Libraries(nccl, cudart)
