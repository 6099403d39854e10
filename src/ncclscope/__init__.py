"""ncclscope: see every NCCL call."""

from ncclscope._version import __version__

TYPE_CHECKING = False  # not typing's: `run` sits in front of every rank, and that import takes long
if TYPE_CHECKING:
    import os

    from ncclscope.api import Capture, Runs
    from ncclscope.notebook.answers import JobComparison
    from ncclscope.notebook.questions import Moment, Names

__all__ = ["__version__", "compare", "open"]


def open(path: "str | os.PathLike[str] | None" = None) -> "Capture":
    """Returns a capture for notebooks and programs: its tables, answers and plots.

    `path` is the capture's directory, or a glob of which the newest match is taken; without it,
    the newest capture right below the current directory is opened. Nothing is decoded before it is
    asked for:

    >>> capture = ncclscope.open("ncclscope-4711")          # doctest: +SKIP
    >>> capture.report()                                    # doctest: +SKIP
    >>> capture.diagnose().findings                         # doctest: +SKIP
    >>> capture.sql("select function, count(*) from operations group by 1")  # doctest: +SKIP
    >>> capture.to_pandas("operations")                     # doctest: +SKIP
    >>> capture.plot.bandwidth_by_size()                    # doctest: +SKIP
    """
    from ncclscope.api import open_capture

    return open_capture(path)


def compare(
    a: "Runs",
    b: "Runs",
    *,
    comm: "Names" = None,
    op: "Names" = None,
    since: "Moment" = None,
    until: "Moment" = None,
) -> "JobComparison":
    """Returns whether job B is slower or faster than job A, and what of it; each may be several
    runs. `comm` and `op` choose the kinds of calls that are listed, `since` and `until` a time of
    each run.
    """
    from ncclscope.api import compare as compare_runs

    return compare_runs(a, b, comm=comm, op=op, since=since, until=until)
