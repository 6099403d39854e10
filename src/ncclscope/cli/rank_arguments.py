"""Ranks as users write them: numbers and ranges."""

import re

from ncclscope.errors import UsageError
from ncclscope.nccl.limits import MOST_RANKS


def parse_ranks(text: str) -> set[int]:
    """Ranks from numbers and ranges. 0,4-7 -> {0, 4, 5, 6, 7}"""
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if not match or not 0 <= int(match[2] or match[1]) - int(match[1]) <= MOST_RANKS:
            raise UsageError(f"{text} names no ranks", "Give numbers and ranges: 0,4-7")
        ranks |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return ranks


def ranks_of_options(options: list[str] | None) -> tuple[int, ...] | None:
    """The ranks of all --rank options together; None where there are none."""
    if not options:
        return None
    return tuple(sorted(set().union(*map(parse_ranks, options))))
