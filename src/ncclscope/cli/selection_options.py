"""The selection of operations that options describe."""

import argparse
from datetime import datetime

from ncclscope.analysis.measures import extent
from ncclscope.analysis.selection import (
    Selection,
    check_ranks,
    communicator_rows,
    function_names,
)
from ncclscope.cli.rank_arguments import ranks_of_options
from ncclscope.cli.time_arguments import is_length, parse_moment
from ncclscope.errors import UsageError
from ncclscope.model.model import Model


def selection_of(model: Model, arguments: argparse.Namespace) -> Selection:
    """The selection that these options describe."""
    return Selection(
        communicator_rows(model, arguments.comm) if arguments.comm else None,
        function_names(model.words["function"], arguments.op) if arguments.op else None,
        existing_ranks(model, arguments.rank),
        *_window(model, arguments),
    )


def time_selection_of(model: Model, arguments: argparse.Namespace) -> Selection:
    """The selection of --since, --until and --last alone."""
    return Selection(None, None, None, *_window(model, arguments))


def check_operations_for_time(model: Model, arguments: argparse.Namespace) -> None:
    """Raises if a time was chosen of a capture that has totals only."""
    for option in ("since", "until", "last"):
        if getattr(arguments, option) is not None and not len(model.tables["operations"]["event"]):
            message = f"cannot choose --{option} of {model.path}: it has totals only"
            raise UsageError(message, "Record with --mode trace to be able to")


def existing_ranks(model: Model, options: list[str] | None) -> tuple[int, ...] | None:
    """The ranks of --rank. Raises if the capture has none of them."""
    ranks = ranks_of_options(options)
    return None if ranks is None else check_ranks(model, ranks)


def _window(model: Model, arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The times of --since and --until on the model's clock."""
    since, until = arguments.since, arguments.until
    if arguments.last is not None:
        if since is not None:
            raise UsageError("cannot choose by --since and --last at once", "Leave one out")
        if not is_length(arguments.last.removeprefix("-")):
            message = f"cannot understand --last {arguments.last}"
            raise UsageError(message, "Write a number and a unit: 500ms, 30s, 5m, 2h, 1d")
        since = "-" + arguments.last.removeprefix("-")
        if not any(digit in since for digit in "123456789"):
            raise UsageError(f"nothing lies within --last {arguments.last}", "Give a longer time")
    if since is None and until is None:
        return None, None
    first, last = extent(model.tables["operations"]) or (0, 0)
    moments = [
        None if text is None else parse_moment(text, first, last, model.realtime_offset_ns)
        for text in (since, until)
    ]
    if moments[0] is not None and moments[1] is not None and moments[0] >= moments[1]:
        raise UsageError("nothing lies between --since and --until", "Swap them")
    _check_reach(model, moments, first, last)
    return moments[0], moments[1]


def _check_reach(model: Model, moments: list[int | None], first: int, last: int) -> None:
    """Raises if the capture has nothing in that time: an empty answer looks like an idle job."""
    since, until = moments
    after = since is not None and since > last
    if not last or not (after or (until is not None and until <= first)):
        return
    began, ended = (
        datetime.fromtimestamp((at + model.realtime_offset_ns) / 1e9).strftime("%Y-%m-%d %H:%M:%S")
        for at in (first, last)
    )
    raise UsageError(
        f"nothing is on record {'from --since on' if after else 'before --until'} in {model.path}",
        f"Its operations are from {began} to {ended}, which is {(last - first) / 1e9:,.1f} s",
    )
