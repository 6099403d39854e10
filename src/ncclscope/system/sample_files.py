"""Samples in a capture: `system.<host>.<pid>.<number>.jsonl`, as docs/format.md has it.

Lines are appended, each by one write, so a sampler that dies leaves at most its last line torn.
What is read is not trusted.
"""

import json
import os
import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from ncclscope.system.counters import COUNTERS, Device
from ncclscope.system.sample import Sample, in_order

VERSION = 1
FILES = "system.*.jsonl"
NOT_THERE = -1  # in place of a value
MOST_FILE_BYTES = 64 << 20  # then the next one begins; two are kept
_MOST_READ_BYTES = 2 * MOST_FILE_BYTES
_LONGEST_LINE = 1 << 20
_BEGINNING_BYTES = 1 << 14  # in which a file says what it is
_MOST_DEVICES, _MOST_FACTS, _LONGEST_NAME = 512, 32, 128
_MOST_COUNTERS = 4096  # of all devices of a file
_LARGEST = (1 << 63) - 1
_ENDLESS = re.compile(rb"\d{300}")
_LATEST_NS = 1 << 62
Layout = list[tuple[Device, tuple[str, ...]]]


def safe_host(host: str) -> str:
    """A host's name in a file's, as process folders have it."""
    return re.sub(r"[/.]", "_", host) or "unknown"


def sample_files_in(capture: Path) -> list[Path]:
    """The files that samplers wrote, in the order of their names; links are not followed."""
    try:
        found = sorted(capture.glob(FILES))
    except OSError:
        return []
    return [path for path in found if path.is_file() and not path.is_symlink()]


# ---- writing ----
class SampleWriter:
    """One sampler's files."""

    def __init__(
        self, capture: Path, about: dict[str, Any], most_bytes: int = MOST_FILE_BYTES
    ) -> None:
        self._capture, self._about, self._most_bytes = capture, about, most_bytes
        self._layout: Layout = []
        self._sampler = os.urandom(8).hex()  # host and process id may be another's as well
        self._number = -1  # of the last file
        self._descriptor = -1
        self._headless = False  # a file without its first line yet
        self._bytes = 0
        self._torn = False
        self._samples_here = 0
        self._lost_told = 0
        self._files: list[Path] = []
        self.samples = 0
        self.deleted = 0  # samples that made room for newer ones
        self.lost = 0  # samples that could not be written

    @property
    def devices(self) -> list[Device]:
        """Of which there are numbers."""
        return [device for device, _ in self._layout]

    def path(self, number: int) -> Path:
        """The file of a number."""
        host, pid = safe_host(str(self._about["host"])), self._about["pid"]
        return self._capture / f"system.{host}.{pid}.{number}.jsonl"

    def _open_next(self) -> None:
        """A file that nobody else has: samplers of several containers may share host and id."""
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        for number in count(self._number + 1):
            with suppress(FileExistsError):
                self._descriptor = os.open(self.path(number), flags, 0o600)
                self._number = number
                break
        self._headless, self._torn = True, False

    def _begin(self) -> None:
        """The next file; of those before it the last one stays."""
        if not self._headless:
            self._open_next()
        deleted = self.samples - self._samples_here if len(self._files) >= 2 else 0
        said = {"samples_deleted": deleted} if deleted else {}
        about = {**self._about, "sampler": self._sampler, **said}
        self._line({"ncclscope": "system", "version": VERSION, **about})
        self._headless, self.deleted = False, deleted
        self._bytes, self._layout, self._samples_here, self._lost_told = 0, [], 0, 0
        self._files.append(self.path(self._number))
        while len(self._files) > 2:
            self._files.pop(0).unlink(missing_ok=True)

    def _line(self, content: Any) -> None:
        """A line that is there as a whole, or is known not to be."""
        data = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        if self._torn:
            data = b"\n" + data
        self._torn = True
        written = os.write(self._descriptor, data)
        if written < len(data):
            raise OSError("the disk is full")
        self._torn = False
        self._bytes += written

    def write(self, sample: Sample) -> None:
        """Appends a sample; OSError where that fails, which is counted and written later."""
        try:
            if self._descriptor < 0 or self._headless or self._bytes >= self._most_bytes:
                self._begin()
            self._cover(sample)
            if self.lost > self._lost_told:
                self._line({"samples_lost": self.lost})
                self._lost_told = self.lost
            values = [
                sample.numbers.get(device, {}).get(name)
                for device, names in self._layout
                for name in names
            ]
            self._line([sample.monotonic_ns, sample.realtime_ns, *values])
        except OSError:
            self.lost += 1
            raise
        self.samples += 1
        self._samples_here += 1

    def _cover(self, sample: Sample) -> None:
        """Makes sure that the layout has a place for every number; it only grows."""
        known = dict(self._layout)
        merged = dict(known)
        for device, names in in_order(sample.numbers):
            mine = {*names, *known.get(device, ())}
            merged[device] = tuple(c.name for c in COUNTERS[device.kind] if c.name in mine)
        if merged != known:
            devices = [
                {"kind": d.kind, "name": d.name, "facts": d.facts, "counters": names}
                for d, names in merged.items()
            ]
            self._line({"devices": devices})
            self._layout = list(merged.items())

    def close(self) -> None:
        """Nothing more will come."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._headless = -1, False


# ---- reading ----
@dataclass(slots=True)
class DeviceSpan:
    """Samples with the same devices and counters, one row each."""

    layout: Layout
    monotonic_ns: "array[int]" = field(default_factory=lambda: array("q"))
    realtime_ns: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[int]" = field(default_factory=lambda: array("q"))  # rows behind each other

    @property
    def width(self) -> int:
        """Values of a row."""
        return sum(len(names) for _, names in self.layout)

    def sample(self, row: int) -> Sample:
        """One of them."""
        values = iter(self.values[row * self.width : (row + 1) * self.width])
        numbers = {
            device: {name: v for name, v in zip(names, values, strict=False) if v != NOT_THERE}
            for device, names in self.layout
        }
        return Sample(self.monotonic_ns[row], self.realtime_ns[row], numbers)


@dataclass(slots=True)
class SampleFile:
    """One file as far as it can be read."""

    path: Path
    host: str = ""
    boot_id: str = ""
    sampler: str = ""  # whose files this one is among
    interval_ns: int = 0
    notes: tuple[str, ...] = ()
    lost: int = 0
    deleted: int = 0
    damaged: int = 0  # lines that are none
    version: int = 0
    newer: bool = False  # of a later release: nothing of it is read
    stretches: list[DeviceSpan] = field(default_factory=list)
    _counters: set[tuple[Device, str]] = field(default_factory=set)

    @property
    def samples(self) -> int:
        """How many were read."""
        return sum(len(stretch.monotonic_ns) for stretch in self.stretches)

    def in_order(self) -> Iterator[Sample]:
        """Its samples, as they were taken."""
        for stretch in self.stretches:
            for row in range(len(stretch.monotonic_ns)):
                yield stretch.sample(row)

    def take(self, line: bytes) -> None:
        """Reads one line."""
        if not line.strip() or self.newer:
            return
        try:
            # Python takes minutes for a number of a million digits.
            fit = len(line) <= _LONGEST_LINE and not _ENDLESS.search(line)
            content = json.loads(line) if fit else None
        except (ValueError, RecursionError):
            content = None
        fine = False
        if isinstance(content, list):
            fine = self._sample(content)
        elif isinstance(content, dict):
            fine = self._about(content)
        self.damaged += not fine

    def _about(self, content: dict[str, Any]) -> bool:
        if content.get("ncclscope") == "system":
            self.version = _number(content.get("version"))
            self.newer = self.version > VERSION
            self.host, self.boot_id = _text(content.get("host")), _text(content.get("boot_id"))
            self.sampler = _text(content.get("sampler"))
            self.interval_ns = _number(content.get("interval_ms")) * 1_000_000
            notes = content.get("notes")
            self.notes = tuple(map(_text, notes[:8])) if isinstance(notes, list) else ()
            self.deleted = _number(content.get("samples_deleted"))
            return self.version > 0
        if "samples_lost" in content:
            self.lost = max(self.lost, _number(content["samples_lost"]))
            return True
        return self._begin(_layout_of(content.get("devices")))

    def _begin(self, layout: Layout | None) -> bool:
        """Other devices from here on."""
        if layout is None:
            return False
        counters = {(device, name) for device, names in layout for name in names}
        stretch = DeviceSpan(layout)
        fine = max(stretch.width, len(self._counters | counters)) <= _MOST_COUNTERS
        if fine:
            self._counters |= counters
        # Samples below a line that is refused are not those of the line before it.
        self.stretches.append(stretch if fine else DeviceSpan([]))
        return fine

    def _sample(self, content: list[Any]) -> bool:
        if not self.stretches:
            return False
        stretch = self.stretches[-1]
        if len(content) != 2 + stretch.width:
            return False
        times = content[:2]
        if any(type(one) is not int or not 0 < one < _LATEST_NS for one in times):
            return False
        values = content[2:]
        if any(one is not None and type(one) is not int for one in values):
            return False
        stretch.monotonic_ns.append(times[0])
        stretch.realtime_ns.append(times[1])
        stretch.values.extend(
            NOT_THERE if one is None or not 0 <= one <= _LARGEST else one for one in values
        )
        return True


def _text(value: Any) -> str:
    return value[:_LONGEST_NAME] if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= 1 << 40 else 0


def _layout_of(devices: Any) -> Layout | None:
    """Devices and counters that this release knows; None where that is no list of them.

    A counter that it does not know keeps its place.
    """
    if not isinstance(devices, list) or len(devices) > _MOST_DEVICES:
        return None
    layout: Layout = []
    for one in devices:
        if not isinstance(one, dict) or not isinstance(one.get("counters"), list):
            return None
        kind, names = _text(one.get("kind")), one["counters"]
        if not all(isinstance(name, str) for name in names) or len(names) > _MOST_DEVICES:
            return None
        facts = one.get("facts")
        kept = list(facts.items())[:_MOST_FACTS] if isinstance(facts, dict) else []
        known = {
            _text(key): _text(value) if isinstance(value, str) else value
            for key, value in kept
            if isinstance(value, str) or (type(value) is int and 0 <= value <= _LARGEST)
        }
        layout.append((Device(kind, _text(one.get("name")), known), tuple(map(_text, names))))
    return layout


def _lines(path: Path, most_samples: int) -> Iterator[bytes]:
    """Lines of a file; of a long one only some of the samples: totals say what was in between."""
    with path.open("rb") as file:
        size = min(os.fstat(file.fileno()).st_size, _MOST_READ_BYTES)
        read = samples = 0
        every = 1
        while read < size:
            line = file.readline(_LONGEST_LINE + 1)
            if not line:
                return
            read += len(line)
            if line.startswith(b"["):
                if samples == 0:
                    every = max(size // max(len(line), 1) // most_samples, 1)
                samples += 1
                if (samples - 1) % every:
                    continue
            yield line


def read_sample_file(path: Path, most_samples: int = 20_000) -> SampleFile:
    """Everything that can be read of a file; a torn last line is nothing."""
    journal = SampleFile(path)
    try:
        for line in _lines(path, most_samples):
            if line.endswith(b"\n"):
                journal.take(line)
    except OSError:
        pass
    return journal


class SampleTail:
    """A file that is still being written: its last sample."""

    def __init__(self, path: Path) -> None:
        self.journal = SampleFile(path)
        self._offset = 0
        self._rest = b""
        self._last: Sample | None = None

    def interval_ns(self) -> int:
        """How often there is a sample, as the beginning says; the rest of the file is not read."""
        if not self.journal.interval_ns:
            with suppress(OSError), self.journal.path.open("rb") as file:
                beginning = SampleFile(self.journal.path)
                for line in file.read(_BEGINNING_BYTES).split(b"\n"):
                    beginning.take(line)
                self.journal.interval_ns = beginning.interval_ns
        return self.journal.interval_ns

    def _beginning(self, file: BinaryIO) -> bytes:
        """Who and what the samples are; of a long file, most of them are left out."""
        size = os.fstat(file.fileno()).st_size
        if size <= 2 * _LONGEST_LINE:
            return b""
        lines = [line for line in _lines(self.journal.path, 1) if line.startswith(b"{")]
        self._offset = size - _LONGEST_LINE // 2
        file.seek(self._offset)
        self._offset += len(file.readline(_LONGEST_LINE))
        return b"".join(lines)

    def read(self) -> Sample | None:
        """Reads on, and returns the last sample there is."""
        try:
            with self.journal.path.open("rb") as file:
                data = self._rest + (self._beginning(file) if not self._offset else b"")
                file.seek(self._offset)
                data += file.read(_MOST_READ_BYTES)
                self._offset = file.tell()
        except OSError:
            return None
        whole, _, rest = data.rpartition(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        for line in whole.split(b"\n"):
            self.journal.take(line)
        for stretch in self.journal.stretches:
            if stretch.monotonic_ns:
                self._last = stretch.sample(len(stretch.monotonic_ns) - 1)
        # Nothing but the last one is ever asked for.
        self.journal.stretches = [DeviceSpan(one.layout) for one in self.journal.stretches[-1:]]
        return self._last
