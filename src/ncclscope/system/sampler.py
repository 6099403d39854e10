"""The sampler: samples into a capture until its standard input ends."""

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
from ncclscope.system.sample import SystemReader, amounts
from ncclscope.system.sample_files import SampleWriter


def _alone(capture: Path) -> socket.socket | None:
    """The right to sample for this capture on this host; None while another process has it.

    A name in the kernel rather than a lock in the capture: not every shared file system has locks,
    and this one goes with its owner.
    """
    digest = hashlib.sha256(os.fsencode(os.path.realpath(capture))).hexdigest()[:32]
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0ncclscope-system-{os.getuid()}-{digest}")
    except OSError:
        held.close()
        return None
    return held


def _about(interval_s: float, machine: SystemReader) -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "boot_id": text_of(Path("/proc/sys/kernel/random/boot_id")).strip(),
        "pid": os.getpid(),
        "interval_ms": round(interval_s * 1000),
        "notes": list(machine.notes),
    }


def _job_is_over(until: float) -> bool:
    """Waits for a time, or for the end of standard input."""
    readable, _, _ = select.select([0], [], [], max(until - time.monotonic(), 0.0))
    return bool(readable) and not os.read(0, 4096)


def sample_beside(capture: Path, interval_s: float, root: Path) -> int:
    """Samples until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the job's; it says when it ends
        signal.signal(number, signal.SIG_IGN)
    while (held := _alone(capture)) is None:  # who has it may end before this job does
        if _job_is_over(time.monotonic() + interval_s):
            return 0
    with held:
        try:
            make_private_directory(capture)
        except OSError as error:
            said = f"cannot create {capture}: {error.strerror}"
            print(f"ncclscope: no system counters: {said}", file=sys.stderr)
            return 1
        machine = SystemReader(root)
        writer = SampleWriter(capture, _about(interval_s, machine))
        due, over = time.monotonic(), False
        while True:
            with suppress(OSError):  # counted, and tried again
                writer.write(machine.read())
            if over:
                break
            due = max(due + interval_s, time.monotonic())
            over = _job_is_over(due)
        writer.close()
        print(_in_words(writer, machine))
    return 0


def _in_words(writer: SampleWriter, machine: SystemReader) -> str:
    gpus, links = amounts(writer.devices)
    parts = [plural(writer.samples, "sample"), plural(gpus, "GPU"), plural(links, "network link")]
    if writer.lost:
        parts.append(f"{writer.lost:,} could not be written")
    return "; ".join(["system counters: " + ", ".join(parts), *machine.notes])
