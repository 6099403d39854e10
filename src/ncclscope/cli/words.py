"""Numbers and foreign texts, as the command line shows them."""


def size_words(count: int) -> str:
    """1234567 -> 1.23 MB"""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def printable(text: str) -> str:
    """Names come from the job: control characters must not reach a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, word: str, many: str = "") -> str:
    """1 process, 2 processes"""
    return f"{count:,} {word if count == 1 else many or word + 's'}"
