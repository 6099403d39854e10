"""Formats counts, sizes, times and texts for messages of all verbs. Standard library only."""

NOTHING = "–"
_KIBI = ("B", "KiB", "MiB", "GiB", "TiB")
_MOST_RANGES = 8
AMOUNTS = ("B", "KB", "MB", "GB", "TB", "PB")
_UNITS = frozenset((*AMOUNTS, *_KIBI, "%", "ns", "µs", "ms", "s", "GB/s"))


def printable(text: str) -> str:
    """The text with control characters escaped: names come from the job, and are not trusted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, word: str, many: str = "") -> str:
    """A count and its noun. plural(2, "process", "processes") -> 2 processes"""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def three_digits(value: float) -> str:
    """A number with three digits or more: 1.23, 12.3, 123, 1,234"""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def scaled(value: float, units: tuple[str, ...], step: int) -> tuple[float, str]:
    """The value in the largest unit that makes it at least 1, and that unit."""
    place = 0
    while value >= step - 0.5 and place < len(units) - 1:
        value, place = value / step, place + 1
    return value, units[place]


def amount(size_bytes: int) -> str:
    """An amount of data, in powers of 1000 as bandwidths are. 1234567 -> 1.23 MB"""
    value, unit = scaled(size_bytes, AMOUNTS, 1000)
    return f"{size_bytes} B" if unit == "B" else f"{three_digits(value)} {unit}"


def duration(time_ns: float | None) -> str:
    """A time with its unit. 2360000000 -> 2.36 s"""
    if time_ns is None:
        return NOTHING
    value, unit = scaled(time_ns, ("ns", "µs", "ms", "s"), 1000)
    if unit == "ns":
        return f"{value:.0f} ns" if value else "0"
    return f"{three_digits(value)} {unit}"


def duration_range(least_ns: float, most_ns: float) -> str:
    """Two times with one unit where they share it. 85000000, 102000000 -> 85.0 to 102 ms"""
    least, most = duration(least_ns), duration(most_ns)
    value, _, unit = least.partition(" ")
    same = unit and unit == most.partition(" ")[2]
    return f"{value if same else least} to {most}"


def seconds(time_ns: int) -> str:
    """A time in seconds, or ms if it is short. 41000000000 -> 41 s"""
    value = time_ns / 1e9
    if value < 0.0995:
        return f"{value * 1e3:.2g} ms"
    return f"{value:.1f} s" if value < 9.95 else f"{value:,.0f} s"


def percent(share: float | None) -> str:
    """A share in percent. 0.374 -> 37 %"""
    if share is None:
        return NOTHING
    if 0 < share < 0.005:
        return "<1 %"
    return f"{100 * share:.0f} %"


def binary_size(size_bytes: int) -> str:
    """A message size: 67108864 -> 64 MiB"""
    value, unit = scaled(size_bytes, _KIBI, 1024)
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def ranks_in_words(ranks: tuple[int, ...]) -> str:
    """Ranks as a short list of numbers and ranges.

    "rank 2", "ranks 12, 13", "ranks 0-11, 14-511"; of many ranges, "… and 22 more".
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    # "12, 13" is easier to read than "12-13".
    ranges = [part for run in runs for part in ([run] if len(run) > 2 else [[r] for r in run])]
    listed = ranges[:_MOST_RANGES]
    more = len(ranks) - sum(map(len, listed))
    text = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in listed)
    return f"ranks {text}" + (f" and {more:,} more" if more > 0 else "")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width`, control characters escaped; a word that is longer than
    a line stays whole, and so does a number with its unit.
    """
    lines: list[str] = []
    for word in _with_units(printable(text).split(" ")):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append((indent if lines else "") + word)
    return lines


def _with_units(words: list[str]) -> list[str]:
    """The words, with units joined to the numbers before them. ["10", "%,"] -> ["10 %,"]"""
    joined: list[str] = []
    for word in words:
        if joined and word.rstrip(".,;:)") in _UNITS and joined[-1].lstrip("(±+-<")[:1].isdigit():
            joined[-1] += " " + word
        else:
            joined.append(word)
    return joined
