"""Locates what is compiled: the plugin, an empty one, the player, a simulated NCCL, and the loops
by which captures are read.
"""

from pathlib import Path

from ncclscope.errors import NcclscopeError

# NCCL copies the plugin's path into 255 bytes and cuts what is longer.
LONGEST_PLUGIN_PATH = 254


def _built(name: str) -> Path:
    path = Path(__file__).with_name(name)
    if not path.is_file():
        raise NcclscopeError(
            f"cannot find {name}: it is not beside {__file__}",
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


def arrays_library_path(checkout: Path = Path(__file__).parents[3]) -> Path:
    """The loops over slots and columns by which captures are read.

    Python and they must agree on their arguments, which nothing checks when they are called: in a
    checkout, a library from before the last change to its sources is refused.
    """
    path = _built("libncclscope-arrays.so")
    built = path.stat().st_mtime_ns
    sources = [
        *checkout.glob("native/arrays/*.[ch]"),
        *checkout.glob("native/include/ncclscope/*.h"),
    ]
    newer = [source for source in sources if source.stat().st_mtime_ns > built]
    if newer:
        raise NcclscopeError(
            f"cannot use {path}: it is older than {newer[0]}",
            "Run `make demo` or `pip install -e .`",
        )
    return path
