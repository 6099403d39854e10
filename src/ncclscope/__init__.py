"""ncclscope: see every NCCL call."""

from ncclscope._version import __version__

TYPE_CHECKING = False  # not typing's: `run` sits in front of every rank, and that import takes long
if TYPE_CHECKING:
    import os

    from ncclscope.api import Capture

__all__ = ["__version__", "open"]


def open(path: "str | os.PathLike[str] | None" = None) -> "Capture":
    """Returns a capture for notebooks and programs: its operations and what belongs to them.

    `path` is the capture's directory, or a glob of which the newest match is taken; without it,
    the newest capture right below the current directory is opened. Nothing is decoded before it is
    asked for:

    >>> capture = ncclscope.open("ncclscope-4711")          # doctest: +SKIP
    >>> capture.completeness()                              # doctest: +SKIP
    >>> capture.sql("select function, count(*) from operations group by 1")  # doctest: +SKIP
    >>> capture.to_polars("operations")                     # doctest: +SKIP
    """
    from ncclscope.api import open_capture

    return open_capture(path)
