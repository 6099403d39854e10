"""Captures as arrays. In: files of a process. Out: its slots, counters, clock, metadata."""
