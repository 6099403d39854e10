"""How much a page holds."""

MOST_BARS = 100_000  # of a single file
