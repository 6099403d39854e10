"""NCCL releases: the profiler interface they speak, and what is known to go wrong in them."""

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

# (first, last, what a profile of that release cannot show or must correct)
_DEFECTS: tuple[tuple[Release, Release, str], ...] = (
    ((2, 23, 0), (2, 25, 99), "no GPU kernel times; only host and proxy times"),
    ((2, 26, 0), (2, 26, 99), "kernel events carry no GPU times; only host times"),
    ((2, 26, 2), (2, 26, 2), "kernel events are counted wrongly with CUDA graphs and Send/Recv"),
    (
        (2, 23, 0),
        (2, 26, 99),
        "mode full: the idle proxy thread reports millions of events a second; --events 0x7FDF "
        "leaves them out",
    ),
    ((2, 27, 0), (2, 27, 7), "proxy events of most Send/Recv over the network are missing"),
    ((2, 27, 0), (2, 27, 99), "symmetric-memory collectives are invisible"),
    ((2, 28, 0), (2, 30, 7), "symmetric-memory collectives show as calls only, without times"),
    ((2, 28, 0), (2, 28, 99), "copy-engine collectives are invisible"),
    (
        (2, 26, 0),
        (2, 30, 7),
        "after an AlltoAll, Gather or Scatter, kernel times on its channel are those of an earlier "
        "operation",
    ),
    (
        (2, 29, 2),
        (2, 99, 99),
        "Broadcast shows as a call only, without times, unless NCCL_ALLGATHERV_ENABLE=0",
    ),
    (
        (2, 31, 0),
        (2, 32, 99),
        "after a Broadcast, kernel times on its channel are those of an earlier operation; "
        "NCCL_ALLGATHERV_ENABLE=0 avoids it",
    ),
    (
        (2, 31, 2),
        (2, 31, 2),
        "any profiler costs 4 to 13 % on messages of 128 KB to 4 MB, by a public report",
    ),
    ((2, 28, 3), (2, 32, 99), "AlltoAll, Gather and Scatter show as sends and receives"),
)


def text_of(release: Release) -> str:
    """2.28.9"""
    return ".".join(map(str, release))


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
    return [text for first, last, text in _DEFECTS if first <= release <= last]
