"""The sampler: writes samples into a capture until its standard input ends."""

import hashlib
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from ncclscope.humanize import plural
from ncclscope.private_directory import make_private_directory
from ncclscope.system.host import text_of
from ncclscope.system.sample import SystemReader, device_counts
from ncclscope.system.sample_writer import SampleWriter


def _lock(capture: Path) -> socket.socket | None:
    """A lock that one sampler of a capture holds on this host; None while another one has it.

    It is an abstract socket address, not a file lock: some shared file systems have no locks, and
    the kernel frees the address when its owner dies.
    """
    digest = hashlib.sha256(os.fsencode(os.path.realpath(capture))).hexdigest()[:32]
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0ncclscope-system-{os.getuid()}-{digest}")
    except OSError:
        lock.close()
        return None
    return lock


def _about(interval_s: float, machine: SystemReader) -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "boot_id": text_of(Path("/proc/sys/kernel/random/boot_id")).strip(),
        "pid": os.getpid(),
        "interval_ms": round(interval_s * 1000),
        "notes": list(machine.notes),
    }


def _job_is_over(until: float) -> bool:
    """Waits until a time, or until standard input ends; returns whether it ended."""
    readable, _, _ = select.select([0], [], [], max(until - time.monotonic(), 0.0))
    return bool(readable) and not os.read(0, 4096)


def run_sampler(capture: Path, interval_s: float, root: Path) -> int:
    """Samples until standard input ends; returns the exit code."""
    # Signals are meant for the job; the end of standard input says that it is over.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while (lock := _lock(capture)) is None:  # the other sampler's job may end before this one
        if _job_is_over(time.monotonic() + interval_s):
            return 0
    with lock:
        try:
            make_private_directory(capture)
        except OSError as error:
            cause = f"cannot create {capture}: {error.strerror}"
            print(f"ncclscope: no system counters: {cause}", file=sys.stderr)
            return 1
        machine = SystemReader(root)
        writer = SampleWriter(capture, _about(interval_s, machine))
        due, over = time.monotonic(), False
        while True:
            with suppress(OSError):  # the writer counts it; the next sample is tried again
                writer.write(machine.read())
            if over:
                break
            due = max(due + interval_s, time.monotonic())
            over = _job_is_over(due)
        writer.close()
        print(_summary(writer, machine))
    return 0


def _summary(writer: SampleWriter, machine: SystemReader) -> str:
    gpus, links = device_counts(writer.devices)
    parts = [plural(writer.samples, "sample"), plural(gpus, "GPU"), plural(links, "network link")]
    if writer.lost:
        parts.append(f"{writer.lost:,} could not be written")
    return "; ".join(["system counters: " + ", ".join(parts), *machine.notes])
