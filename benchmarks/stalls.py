"""The longest callbacks over 100 M records with the disk busy, beside those of an empty plugin."""

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.loads import Shape, callbacks_made, holds, run_load, scratch, the_process
from benchmarks.results import publish, table
from ncclscope.capture.layout import SLOT_BYTES
from ncclscope.native import empty_plugin_path
from tests.support.player import recording

RECORDS = 100_000_000
SLICES = 10
CALLBACKS_PER_S = 2_000_000
SHAPE = Shape(channels=2, steps=1)
COLLECTIVES = 630_000  # a slice, of 16 records each
NOISE_MB = 512
HELPER_NICENESS = 5
FREE_BYTES = 8 << 30  # a slice leaves 0.7 GB, the noise its file
EMPTY = "empty"
EMPTY_AND_WRITER = "empty, and a process that writes what ours would"
OURS = "ncclscope, full mode"
KINDS = ("blocked", "preempted", "neither")


@dataclass(frozen=True, slots=True)
class Stalls:
    """One slice, or several together; long callbacks took 100 us or more."""

    callbacks: int
    longest_us: float
    long_count: tuple[int, ...]  # by KINDS
    long_longest_us: tuple[float, ...]
    page_faults: int
    records: int = 0
    lost: int = 0  # events dropped, and slots that the disk refused or rotation took


def parse(printed: str) -> Stalls:
    """What the player said."""
    longest = re.search(r"longest callback ([\d.]+) us", printed)
    faults = re.search(r"page faults (\d+)", printed)
    long = [
        re.search(rf"{kind} (\d+) callbacks of 100 us or more, longest ([\d.]+) us", printed)
        for kind in KINDS
    ]
    assert longest
    assert faults
    assert all(long), printed
    return Stalls(
        callbacks=callbacks_made(printed),
        longest_us=float(longest[1]),
        long_count=tuple(int(found[1]) for found in long if found),
        long_longest_us=tuple(float(found[2]) for found in long if found),
        page_faults=int(faults[1]),
    )


def together(slices: list[Stalls]) -> Stalls:
    """All slices of one plugin."""
    return Stalls(
        callbacks=sum(one.callbacks for one in slices),
        longest_us=max(one.longest_us for one in slices),
        long_count=tuple(map(sum, zip(*(one.long_count for one in slices), strict=True))),
        long_longest_us=tuple(map(max, zip(*(one.long_longest_us for one in slices), strict=True))),
        page_faults=sum(one.page_faults for one in slices),
        records=sum(one.records for one in slices),
        lost=sum(one.lost for one in slices),
    )


@contextmanager
def busy_disk(directory: Path) -> Iterator[None]:
    """Somebody else writes and syncs all the time, over and over into one file."""
    target = directory / "noise"
    write = f"dd if=/dev/zero of={target} bs=1M count={NOISE_MB} conv=notrunc,fsync status=none"
    noise = subprocess.Popen(["sh", "-c", f"while :; do {write}; done"], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(noise.pid, signal.SIGKILL)
        noise.wait()
        target.unlink(missing_ok=True)


def write_steadily(target: Path, bytes_per_s: float) -> None:
    """As our helper thread does, for ever; the file is started over before it grows large."""
    os.nice(HELPER_NICENESS)
    block, written, started = bytes(1 << 20), 0, time.monotonic()
    with target.open("wb", buffering=0) as file:
        while True:
            file.seek(written % (NOISE_MB << 20))
            written += file.write(block)
            time.sleep(max(0.0, started + written / bytes_per_s - time.monotonic()))


@contextmanager
def writer(directory: Path) -> Iterator[None]:
    """Another process writes as many bytes as our plugin would."""
    target = directory / "steady"
    rate = CALLBACKS_PER_S / SHAPE.callbacks("full") * SHAPE.events("full") * SLOT_BYTES
    process = multiprocessing.Process(target=write_steadily, args=(target, rate))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
        target.unlink(missing_ok=True)


def written_bytes(directory: Path) -> int:
    """Bytes that went to the disk below a directory since the machine started."""
    device = directory.stat().st_dev
    sectors = [
        int(line.split()[9])
        for line in Path("/proc/diskstats").read_text().splitlines()
        if line.split()[:2] == [str(os.major(device)), str(os.minor(device))]
    ]
    return sum(sectors) * 512


def run_slice(capture: Path, plugin: Path | None = None) -> Stalls:
    """A slice of our plugin, or of another one."""
    # The player itself allocates inside a thread's first timed call; with an arena of malloc for
    # each thread that is an mmap, which waits while the helper populates memory.
    env = recording(capture, "full", NCCLSCOPE_DISK_LIMIT="4G", MALLOC_ARENA_MAX="1")
    if plugin:
        env |= {"NCCL_PROFILER_PLUGIN": str(plugin)}
    pace = ["--collectives", COLLECTIVES, "--rate", CALLBACKS_PER_S, "--stalls"]
    stalls = parse(run_load(env, *SHAPE.options(), *pace))
    assert stalls.callbacks == COLLECTIVES * SHAPE.callbacks("full")
    return stalls


def our_slice(capture: Path) -> Stalls:
    """A slice of our plugin, with what is on record of it."""
    stalls = run_slice(capture)
    process = the_process(capture)
    lost = sum(process.counters.get((name, 0), 0) for name in ("write_failed", "rotated_out"))
    records = len(process.slots)
    lost += process.dropped()
    del process
    shutil.rmtree(capture)
    return replace(stalls, records=records, lost=lost)


def row(name: str, stalls: Stalls) -> list[object]:
    """One line of the table."""
    long = [
        f"{count} ({longest_us / 1e3:.2f} ms)" if count else "0"
        for count, longest_us in zip(stalls.long_count, stalls.long_longest_us, strict=True)
    ]
    records = f"{stalls.records / 1e6:.1f} M" if stalls.records else "none"
    callbacks = f"{stalls.callbacks / 1e6:.0f} M"
    longest = f"{stalls.longest_us / 1e3:.2f} ms"
    return [name, callbacks, records, longest, *long, stalls.page_faults, stalls.lost]


def all_slices(directory: Path) -> dict[str, list[Stalls]]:
    """Ours and one of the two controls in turn."""
    slices: dict[str, list[Stalls]] = {name: [] for name in (EMPTY, EMPTY_AND_WRITER, OURS)}
    for number in range(SLICES):
        name = EMPTY_AND_WRITER if number % 2 else EMPTY
        with writer(directory) if number % 2 else nullcontext():
            slices[name].append(run_slice(directory / "none", empty_plugin_path()))
        slices[OURS].append(our_slice(directory / f"capture-{number}"))
    return slices


def main() -> None:
    """Alternates between the plugins and compares."""
    with scratch() as directory:
        if shutil.disk_usage(directory).free < FREE_BYTES:
            raise SystemExit(f"{directory} has less than {FREE_BYTES >> 30} GB left")
        written_before, before = written_bytes(directory), time.monotonic()
        with busy_disk(directory):
            slices = all_slices(directory)
        megabytes = (written_bytes(directory) - written_before) / 1e6
        disk_mb_per_s = megabytes / (time.monotonic() - before)
    report({name: together(many) for name, many in slices.items()}, disk_mb_per_s)


def report(found: dict[str, Stalls], disk_mb_per_s: float) -> None:
    """Publishes, and holds against the bar."""
    ours = found[OURS]
    header = ["plugin", "callbacks", "records", "longest callback", "blocked in the kernel"]
    header += ["preempted", "neither", "page faults", "lost"]
    fine = ours.long_count[0] == 0 and ours.lost == 0 and ours.records >= RECORDS
    body = (
        f"{table(header, [row(name, stalls) for name, stalls in found.items()])}\n\n"
        f"One thread at {CALLBACKS_PER_S / 1e6:.0f} M callbacks/s ({SHAPE.channels} channels, "
        f"{SHAPE.callbacks('full')} callbacks and {SHAPE.events('full')} records a collective), "
        f"{SLICES} slices of ours, each after one of a control, while dd writes {NOISE_MB} MB and "
        "syncs, over and over, to the file system that the capture is on: the disk wrote "
        f"{disk_mb_per_s:.0f} MB/s on average. Blocked, preempted, neither: callbacks of 100 µs or "
        "more, and the longest of them, by what the kernel did with their thread meanwhile. Only "
        "blocked ones waited for something; of the others, neither had no context switch at all. "
        "They happen with the empty plugin as well; what makes their number differ between plugins "
        "(time spent inside callbacks, other threads on the same "
        f"{os.cpu_count()} cores, interrupts, the hypervisor) is not told apart here, and the "
        "controls have half as many callbacks. Page faults: of the calling thread. Lost: events "
        "dropped, refused by the disk or rotated away.\n\n"
        "Bar: 100 M records, no callback blocked, nothing lost: "
        f"{holds(fine)}. Left out: the calling thread's own first malloc. It maps memory, and "
        "right after init, while the helper thread populates the arena, any mmap of the "
        "application can wait for milliseconds; MALLOC_ARENA_MAX=1 keeps that out of the player's "
        "timed calls."
    )
    publish("stalls", body)
    if not fine:
        raise SystemExit(f"a callback was blocked or something was lost: {ours}")
