"""Sizes that no job has: what says more is damage or a mistake, and no memory is taken for it."""

MOST_RANKS = 1 << 20  # of a communicator
LARGEST_BYTES = 1 << 42  # of one operation; sums of more would not fit
