"""The options that select operations."""

import argparse
import re
from collections.abc import Sequence

_TIME_OPTIONS = ("--since", "--until", "--last")
_NEGATIVE_TIME = re.compile(r"-\d.*")


def join_negative_times(words: Sequence[str]) -> list[str]:
    """The words with `--since -5m` changed to `--since=-5m`: argparse takes -5m for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _TIME_OPTIONS and _NEGATIVE_TIME.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --comm, --op, --rank and the options for times."""
    parser.add_argument(
        "--comm", action="append", metavar="NAME", help="only this communicator; tp* works, too"
    )
    parser.add_argument(
        "--op", action="append", metavar="NAME",
        help="only this function; for several, repeat the option, as with --comm",
    )  # fmt: skip
    parser.add_argument(
        "--rank", action="append", metavar="RANKS", help="only these global ranks, as in 0,4-7"
    )
    add_time_arguments(parser)


def add_time_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --since, --until and --last."""
    moment = "14:05:30, 2026-11-15T14:05:30, -5m (before the end) or 12.5 (s from the start)"
    parser.add_argument("--since", metavar="TIME", help=f"only what began then or later: {moment}")
    parser.add_argument("--until", metavar="TIME", help="only what began earlier")
    parser.add_argument(
        "--last", metavar="LENGTH", help="only the last 30s, 5m, 2h …: the same as --since -LENGTH"
    )
