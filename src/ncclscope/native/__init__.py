"""Compiled files. In: nothing. Out: paths of plugin, player, simulation and loops."""

from pathlib import Path

from ncclscope.errors import NcclscopeError

# NCCL copies the plugin's path into 255 bytes and cuts what is longer.
LONGEST_PLUGIN_PATH = 254


def _built(name: str) -> Path:
    path = Path(__file__).with_name(name)
    if not path.is_file():
        raise NcclscopeError(
            f"cannot find {name} in {Path(__file__).parent}",
            "The installation is incomplete. Install ncclscope again, from its wheel or a checkout",
        )
    return path


def plugin_path() -> Path:
    """The profiler plugin for NCCL_PROFILER_PLUGIN."""
    return _built("libnccl-profiler-ncclscope.so")


def empty_plugin_path() -> Path:
    """A plugin that asks for events and ignores them: what NCCL itself costs with any profiler."""
    return _built("libnccl-profiler-ncclscope-empty.so")


def player_path() -> Path:
    """The program that plays NCCL's part on machines without a GPU."""
    return _built("ncclscope-player")


def simulated_nccl_path() -> Path:
    """NCCL and CUDA's runtime in one library, simulated: for machines without a GPU."""
    return _built("libncclscope-simulated-nccl.so")


def fake_host_path() -> Path:
    """For LD_PRELOAD: makes a process believe that it runs on another host."""
    return _built("libncclscope-fake-host.so")


def arrays_library_path() -> Path:
    """The loops over slots and columns that read captures."""
    return _built("libncclscope-arrays.so")
