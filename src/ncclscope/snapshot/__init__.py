"""One moment of each process: what it is doing, read from its live page or its last events."""
