"""NCCL's releases: the profiler interface each speaks, and what is known to go wrong in it.

One line of `_DEFECTS` is one fact: `doctor` prints its text, other code asks for it by its name
(`applies`, `loses_kernel_events_after`).
"""

from dataclasses import dataclass

Release = tuple[int, int, int]

# First release that speaks an interface version.
_INTERFACES: tuple[tuple[Release, int], ...] = (
    ((2, 31, 0), 7),
    ((2, 29, 0), 6),
    ((2, 28, 0), 5),
    ((2, 27, 0), 4),
    ((2, 26, 0), 3),
    ((2, 24, 0), 2),
    ((2, 23, 4), 1),
)
OLDEST_RELEASE = _INTERFACES[-1][0]  # with a profiler interface
STALE_AFTER_SELF_SEND = "stale stamps after a send to self"
STALE_AFTER_BROADCAST = "stale stamps after a Broadcast"
_ANY = (99, 99, 99)


@dataclass(frozen=True, slots=True)
class Defect:
    """What a profile of some releases cannot show or must correct."""

    first: Release
    last: Release
    text: str  # for users
    name: str = ""  # for code that must act on it
    after: str = ""  # the function that brings it on


_DEFECTS = (
    Defect((2, 23, 0), (2, 25, 99), "no GPU kernel times; only host and proxy times"),
    Defect((2, 26, 0), (2, 26, 99), "kernel events carry no GPU times; only host times"),
    Defect(
        (2, 26, 2),
        (2, 26, 2),
        "kernel events are counted wrongly with CUDA graphs and Send/Recv",
    ),
    Defect(
        (2, 23, 0),
        (2, 26, 99),
        "mode full: the idle proxy thread reports millions of events a second; --events 0x7FDF "
        "leaves them out",
    ),
    Defect((2, 27, 0), (2, 27, 7), "proxy events of most Send/Recv over the network are missing"),
    Defect((2, 27, 0), (2, 27, 99), "symmetric-memory collectives are invisible"),
    Defect(
        (2, 28, 0),
        (2, 30, 7),
        "symmetric-memory collectives show as calls only, without times",
    ),
    Defect((2, 28, 0), (2, 28, 99), "copy-engine collectives are invisible"),
    Defect(
        (2, 26, 0),
        (2, 30, 99),
        "after an AlltoAll, Gather or Scatter, kernel times on its channel are those of an earlier "
        "operation",
        STALE_AFTER_SELF_SEND,
        after="Send",
    ),
    Defect(
        (2, 29, 2),
        _ANY,
        "Broadcast shows as a call only, without times, unless NCCL_ALLGATHERV_ENABLE=0",
    ),
    Defect(
        (2, 31, 0),
        (2, 32, 99),
        "after a Broadcast, kernel times on its channel are those of an earlier operation; "
        "NCCL_ALLGATHERV_ENABLE=0 avoids it",
        STALE_AFTER_BROADCAST,
        after="Broadcast",
    ),
    Defect(
        (2, 31, 2),
        (2, 31, 2),
        "any profiler costs 4 to 13 % on messages of 128 KB to 4 MB, by a public report",
    ),
    Defect((2, 28, 3), (2, 32, 99), "AlltoAll, Gather and Scatter show as sends and receives"),
)


def text_of(release: Release) -> str:
    """2.28.9"""
    return ".".join(map(str, release))


def release_of_code(code: int) -> Release:
    """22809 -> (2, 28, 9); up to 2.8 the code was made of smaller numbers."""
    scale = 10_000 if code >= 10_000 else 1_000
    return code // scale, code % scale // 100, code % 100


def parse_release(text: str) -> Release | None:
    """A release out of "2.28.9+cuda13.0"; None when it is none."""
    numbers = text.partition("+")[0].split(".")
    if len(numbers) < 3 or not all(number.isdigit() for number in numbers[:3]):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def interface_of(release: Release) -> int | None:
    """The interface version NCCL looks for first; None: no profiler interface yet."""
    return next((version for first, version in _INTERFACES if release >= first), None)


def known_defects(release: Release) -> list[str]:
    """What a user of this release should know about its profiles."""
    return [defect.text for defect in _DEFECTS if defect.first <= release <= defect.last]


def applies(name: str, release: Release) -> bool:
    """Whether a release has the defect of that name."""
    return any(d.name == name and d.first <= release <= d.last for d in _DEFECTS)


def loses_kernel_events_after(interface: int) -> str:
    """The function after which NCCL's host and device count works differently, so that kernel
    events are lost or carry the stamps of earlier works. Captures know their interface version,
    not always their release.
    """
    named = [d for d in _DEFECTS if d.after and (interface_of(d.first) or 0) <= interface]
    return named[-1].after if named else "Send"
