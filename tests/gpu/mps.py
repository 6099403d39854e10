"""CUDA's multi-process service: kernels of several processes run side by side on one GPU."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mps() -> Iterator[None]:
    """The service, with directories of its own, for the processes started meanwhile."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{directory}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{directory}/log",
        }
        for path in settings.values():
            Path(path).mkdir()
        os.environ.update(settings)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)
            for name in settings:
                del os.environ[name]
