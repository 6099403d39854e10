"""The host's own counters: CPU, memory and pressure, from /proc and the control group."""

import os
from collections.abc import Callable
from pathlib import Path

from ncclscope.system.counters import HOST, THE_HOST, Device

Numbers = dict[str, int]
_LONGEST_FILE = 1 << 20
_MS_PER_TICK = 1000 // (os.sysconf("SC_CLK_TCK") or 100)


def text_of(path: Path) -> str:
    """A small file; "" where there is none, or none for us."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def number_in(path: Path) -> int | None:
    """A file with one number; None where there is none, or it is negative (an unknown speed)."""
    text = text_of(path).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _words(text: str) -> dict[str, list[str]]:
    """Lines by their first word."""
    lines = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): words[1:] for words in lines if words}


def _cpu(root: Path) -> Numbers:
    text = text_of(root / "proc/stat")
    times = [int(word) for word in _words(text).get("cpu", ()) if word.isdigit()]
    if len(times) < 8:
        return {}
    user, nice, system, _, _, irq, softirq, steal = times[:8]
    return {
        "cpus": sum(line[3:4].isdigit() for line in text.splitlines() if line.startswith("cpu")),
        "cpu_busy_ms": (user + nice + system + irq + softirq) * _MS_PER_TICK,
        "cpu_steal_ms": steal * _MS_PER_TICK,
    }


def _memory(root: Path) -> Numbers:
    lines = _words(text_of(root / "proc/meminfo"))
    kib = {name: int(words[0]) for name, words in lines.items() if words and words[0].isdigit()}
    found = {}
    for counter, name in (("memory_available_bytes", "MemAvailable"), ("memory_bytes", "MemTotal")):
        if name in kib:
            found[counter] = kib[name] * 1024
    if "SwapTotal" in kib and "SwapFree" in kib:
        found["swap_used_bytes"] = max(kib["SwapTotal"] - kib["SwapFree"], 0) * 1024
    return found


def _out_of_memory(root: Path) -> Numbers:
    kills = _words(text_of(root / "proc/vmstat")).get("oom_kill")
    return {"oom_kills": int(kills[0])} if kills and kills[0].isdigit() else {}


def _pressure(root: Path) -> Numbers:
    found = {}
    for resource, some, full in (
        ("cpu", "cpu_pressure_us", ""),
        ("memory", "memory_pressure_us", "memory_full_us"),
        ("io", "io_pressure_us", "io_full_us"),
    ):
        lines = _words(text_of(root / "proc/pressure" / resource))
        for counter, who in ((some, "some"), (full, "full")):
            total = next((w[6:] for w in lines.get(who, ()) if w.startswith("total=")), "")
            if counter and total.isdigit():
                found[counter] = int(total)
    return found


def _throttled(root: Path) -> Numbers:
    """Of the control group that a container sees as its root."""
    lines = _words(text_of(root / "sys/fs/cgroup/cpu.stat"))
    micros = lines.get("throttled_usec")
    return {"cpu_throttled_us": int(micros[0])} if micros and micros[0].isdigit() else {}


_PARTS: tuple[Callable[[Path], Numbers], ...] = (
    _cpu, _memory, _out_of_memory, _pressure, _throttled,
)  # fmt: skip


def read_host(root: Path) -> dict[Device, Numbers]:
    """The host, as far as its files say; nothing where they say nothing."""
    numbers: Numbers = {}
    for part in _PARTS:
        numbers |= part(root)
    return {Device(HOST, THE_HOST): numbers} if numbers else {}
