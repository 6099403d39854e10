"""Counts, amounts and foreign texts in words, wherever they are shown. Standard library only."""

AMOUNTS = ("B", "KB", "MB", "GB", "TB", "PB")


def printable(text: str) -> str:
    """Names come from the job: control characters must not reach a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, word: str, many: str = "") -> str:
    """1 process, 2 processes"""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def three_digits(value: float) -> str:
    """1.23, 12.3, 123, 1,234"""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def scaled(value: float, units: tuple[str, ...], step: int) -> tuple[float, str]:
    """The value in the largest unit of which there is at least one."""
    place = 0
    while value >= step - 0.5 and place < len(units) - 1:
        value, place = value / step, place + 1
    return value, units[place]


def amount(size_bytes: int) -> str:
    """An amount of data, in powers of 1000 as bandwidths are. 1234567 -> 1.23 MB"""
    value, unit = scaled(size_bytes, AMOUNTS, 1000)
    return f"{size_bytes} B" if unit == "B" else f"{three_digits(value)} {unit}"
