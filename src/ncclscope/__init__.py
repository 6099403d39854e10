"""ncclscope: see every NCCL call."""

from ncclscope._version import __version__

__all__ = ["__version__"]
