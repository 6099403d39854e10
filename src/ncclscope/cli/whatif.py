"""`ncclscope whatif`: turns words (`--without rank 2`) into changes, and prints the predictions."""

import argparse
import json
import re

from ncclscope.analysis.link_changes import with_links_as_peers
from ncclscope.analysis.run import Run
from ncclscope.analysis.selection import communicator_rows
from ncclscope.analysis.time_selection import model_between, replayed_part
from ncclscope.analysis.waiting.origins import waiting_of
from ncclscope.analysis.waiting.what_if import Change, WhatIf
from ncclscope.arrays.freed_memory import keep_freed_memory
from ncclscope.capture.reader import resolve_capture
from ncclscope.cli.messages import print_message
from ncclscope.cli.progress import open_model_with_progress
from ncclscope.cli.rank_arguments import parse_ranks
from ncclscope.cli.selection_options import check_operations_for_time, time_selection_of
from ncclscope.cli.terminal import fit, output_width
from ncclscope.errors import NcclscopeError, UsageError
from ncclscope.model.model import Model
from ncclscope.report.what_if import as_json, limits_of, lines

_WIDEST = 100
_FORMS = "--without rank 2, --link 5-9 at median, --comm 'tp*' at 100 GB/s or at median, --free dp"


def run(arguments: argparse.Namespace) -> int:
    """Prints what the run and its steps would take."""
    path = resolve_capture(arguments.capture)
    whole = open_model_with_progress(path)
    keep_freed_memory()
    check_operations_for_time(whole, arguments)
    chosen = model_between(whole, time_selection_of(whole, arguments))
    replayed = replayed_part(chosen)
    model, limits = replayed.model, limits_of(chosen, replayed)
    waiting = waiting_of(Run(model))
    if waiting is None:
        raise NcclscopeError(
            f"cannot replay {path}: fewer than two ranks have GPU times",
            "Record with --mode trace; NCCL 2.27 and later give GPU times",
        )
    what_if = WhatIf(waiting)
    if what_if.why_not:
        raise NcclscopeError(
            f"cannot replay {path}: {what_if.why_not}",
            "Record all of them with --gpu-timing kernel; ncclscope report shows the waiting of "
            "those that were timed",
        )
    change = _change(arguments, model)
    what_if.check(change)
    prediction = what_if.predict(with_links_as_peers(change, waiting))
    if arguments.json:
        print(json.dumps(as_json(prediction, limits), indent=2, allow_nan=False))
        return 0
    for line in lines(model, waiting, change, prediction, limits, output_width(_WIDEST)):
        print("\n".join(fit(line)))
    if change == Change():
        print_message(f"nothing is changed; say what: {_FORMS}")
    return 0


def _change(arguments: argparse.Namespace, model: Model) -> Change:
    ranks: list[int] = []
    as_usual: list[int] = []
    for sort, named in arguments.without:
        if sort == "comm":
            as_usual += communicator_rows(model, _patterns(model.communicator_names, named))
        else:
            ranks += _ranks(sort, named)
    links = tuple(_link(words) for words in arguments.link)
    bandwidths: list[tuple[int, float]] = []
    for words in arguments.comm:
        name, speed = _speed(words)
        rows = communicator_rows(model, _patterns(model.communicator_names, name))
        if speed is None:
            as_usual += rows
        else:
            bandwidths += [(row, speed) for row in rows]
    free = [
        row
        for name in arguments.free
        for row in communicator_rows(model, _patterns(model.communicator_names, name))
    ]
    return Change(tuple(ranks), tuple(as_usual), links, tuple(free), tuple(bandwidths))


def _patterns(existing: list[str], name: str) -> list[str]:
    """A name, or all communicators of its class where none has it: `dp` is `dp:0,2` and more."""
    if name in existing:
        return [name]
    alike = [other for other in existing if re.split(r"[:#]", other)[0] == name]
    return alike or [name]


def _ranks(sort: str, listed: str) -> list[int]:
    """Ranks from `rank 2` or `ranks 2,5-7`."""
    if sort not in ("rank", "ranks"):
        raise UsageError(
            f"cannot leave out {sort} {listed}: no such thing",
            "Say --without rank 2, or --without comm tp",
        )
    return sorted(parse_ranks(listed))


def _link(words: list[str]) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)-(\d+)", words[0])
    if not match or words[1:] != ["at", "median"]:
        raise UsageError(
            f"cannot change link {' '.join(words)}: not understood", "Say --link 5-9 at median"
        )
    return int(match[1]), int(match[2])


def _speed(words: list[str]) -> tuple[str, float | None]:
    """A communicator's name and GB/s; None for `at median`."""
    text = " ".join(words)
    match = re.fullmatch(r"(.+) at (?:(median)|([\d.]+) ?GB/s)", text)
    if not match or (match[3] and not float(match[3])):
        raise UsageError(
            f"cannot change communicator {text}: not understood",
            "Say --comm tp at 100 GB/s, or --comm tp at median",
        )
    return match[1], None if match[2] else float(match[3])
