"""Captures as tests read them."""

from pathlib import Path

from ncclscope.capture.process import Process
from ncclscope.capture.reader import open_capture


def undamaged_processes(capture: Path) -> list[Process]:
    """All processes, none of them damaged, by rank."""
    opened = open_capture(capture)
    assert not opened.unreadable
    for process in opened.processes:
        damage = process.damage
        assert (damage.torn_bytes, damage.bad_slots, damage.unreadable) == (0, 0, [])
        assert not process.counters
    return sorted(opened.processes, key=lambda process: process.rank or 0)
