"""Where libnccl and CUDA's runtime lie: named by the user, simulated, or the likeliest here."""

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
    """What a rank loads. Whether libnccl is a simulation, it says itself."""

    nccl: str
    cudart: str


def _nccl(environment: Mapping[str, str]) -> str:
    """The first there is, in the order in which `doctor` looks; unlike doctor, nothing is read."""
    found = [
        place
        for place, _ in installed_paths(environment)
        if place.name in SONAMES and place.is_file()
    ]
    return str(found[0]) if found else SONAMES[0]  # wherever the linker looks


def _cudart_beside(nccl: Path) -> list[Path]:
    """CUDA's runtime in the Python packages that libnccl came in, the newest first."""
    packages = nccl.resolve().parents[2:3]  # site-packages/nvidia of nvidia/nccl/lib/libnccl.so.2
    return [path for folder in packages for path in sorted(folder.glob("**/libcudart.so*"))[::-1]]


def _cudart(nccl: str, environment: Mapping[str, str]) -> str:
    places = _cudart_beside(Path(nccl)) if "nvidia" in Path(nccl).parts else []
    for folder in python_package_folders():
        places += sorted(folder.glob("nvidia/*/lib/libcudart.so*"))[::-1]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(variable):
            places += sorted(Path(environment[variable]).glob("lib64/libcudart.so*"))[::-1]
    places += sorted(Path("/usr/local/cuda/lib64").glob("libcudart.so*"))[::-1]
    return str(places[0]) if places else "libcudart.so"


def _named(path: str, option: str) -> str:
    if os.sep in path and not Path(path).is_file():
        raise UsageError(f"cannot load {path}: no such file", f"Name a library with {option}")
    return path


def find_libraries(
    nccl: str | None, cudart: str | None, simulate: bool, environment: Mapping[str, str]
) -> Libraries:
    """What the user named, by option or variable; else what is found here."""
    nccl = nccl or environment.get(NCCL_VARIABLE)
    cudart = cudart or environment.get(CUDART_VARIABLE)
    if simulate:
        if nccl or cudart:
            message = "cannot simulate and use a library of yours at once"
            raise UsageError(message, "Leave out --simulate, or --nccl and --cudart")
        path = str(simulated_nccl_path())  # brings the part of CUDA that it needs along
        return Libraries(path, path)
    nccl = _named(nccl, "--nccl") if nccl else _nccl(environment)
    cudart = _named(cudart, "--cudart") if cudart else _cudart(nccl, environment)
    return Libraries(nccl, cudart)
