"""Reads the sample files of a capture, `system.<host>.<pid>.<number>.jsonl`; docs/format.md
describes them. Nothing in a file is trusted.
"""

import json
import os
import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ncclscope.regular_files import open_binary
from ncclscope.system.counters import Device
from ncclscope.system.sample import Sample

VERSION = 1
FILES = "system.*.jsonl"
NOT_THERE = -1  # stands for a missing value
MOST_FILE_BYTES = 64 << 20  # then the next file begins; the last two are kept
_MOST_READ_BYTES = 2 * MOST_FILE_BYTES
_LONGEST_LINE = 1 << 20
_HEAD_BYTES = 1 << 14  # contain a file's first line
_MOST_DEVICES, _MOST_FACTS, _LONGEST_NAME = 512, 32, 128
_MOST_COUNTERS = 4096  # of all devices of a file
_LARGEST = (1 << 63) - 1
_TOO_MANY_DIGITS = re.compile(rb"\d{300}")
_LATEST_NS = 1 << 62
Layout = list[tuple[Device, tuple[str, ...]]]


def sample_files_in(capture: Path) -> list[Path]:
    """The sample files of a capture, sorted by name; symbolic links are left out."""
    try:
        paths = sorted(capture.glob(FILES))
    except OSError:
        return []
    return [path for path in paths if path.is_file() and not path.is_symlink()]


@dataclass(slots=True)
class DeviceSpan:
    """Samples with the same devices and counters, one row each."""

    layout: Layout
    monotonic_ns: "array[int]" = field(default_factory=lambda: array("q"))
    realtime_ns: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[int]" = field(default_factory=lambda: array("q"))  # row after row

    @property
    def width(self) -> int:
        """Number of values in a row."""
        return sum(len(names) for _, names in self.layout)

    def sample(self, row: int) -> Sample:
        """The sample of a row."""
        values = iter(self.values[row * self.width : (row + 1) * self.width])
        numbers = {
            device: {name: v for name, v in zip(names, values, strict=False) if v != NOT_THERE}
            for device, names in self.layout
        }
        return Sample(self.monotonic_ns[row], self.realtime_ns[row], numbers)


@dataclass(slots=True)
class SampleFile:
    """The contents of one file, as far as it can be read."""

    path: Path
    host: str = ""
    boot_id: str = ""
    sampler: str = ""  # which sampler wrote it
    interval_ns: int = 0
    notes: tuple[str, ...] = ()
    lost: int = 0
    deleted: int = 0
    damaged: int = 0  # lines that cannot be read
    version: int = 0
    newer: bool = False  # written by a later release: nothing of it is read
    spans: list[DeviceSpan] = field(default_factory=list)
    _counters: set[tuple[Device, str]] = field(default_factory=set)

    @property
    def samples(self) -> int:
        """Number of samples that were read."""
        return sum(len(span.monotonic_ns) for span in self.spans)

    def in_order(self) -> Iterator[Sample]:
        """Its samples, in the order in which they were taken."""
        for span in self.spans:
            for row in range(len(span.monotonic_ns)):
                yield span.sample(row)

    def read_line(self, line: bytes) -> None:
        """Adds one line of the file, or counts it as damaged."""
        if not line.strip() or self.newer:
            return
        try:
            # Python takes minutes to convert a number of a million digits.
            fits = len(line) <= _LONGEST_LINE and not _TOO_MANY_DIGITS.search(line)
            content = json.loads(line) if fits else None
        except (ValueError, RecursionError):
            content = None
        valid = False
        if isinstance(content, list):
            valid = self._read_sample(content)
        elif isinstance(content, dict):
            valid = self._read_object(content)
        self.damaged += not valid

    def _read_object(self, content: dict[str, Any]) -> bool:
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
        return self._begin_span(_layout_of(content.get("devices")))

    def _begin_span(self, layout: Layout | None) -> bool:
        """Begins a span of samples with this layout; returns whether the layout is accepted."""
        if layout is None:
            return False
        counters = {(device, name) for device, names in layout for name in names}
        span = DeviceSpan(layout)
        accepted = max(span.width, len(self._counters | counters)) <= _MOST_COUNTERS
        if accepted:
            self._counters |= counters
        # Samples after a layout that is refused do not belong to the layout before it.
        self.spans.append(span if accepted else DeviceSpan([]))
        return accepted

    def _read_sample(self, content: list[Any]) -> bool:
        if not self.spans:
            return False
        span = self.spans[-1]
        if len(content) != 2 + span.width:
            return False
        times = content[:2]
        if any(type(time_ns) is not int or not 0 < time_ns < _LATEST_NS for time_ns in times):
            return False
        values = content[2:]
        if any(value is not None and type(value) is not int for value in values):
            return False
        span.monotonic_ns.append(times[0])
        span.realtime_ns.append(times[1])
        span.values.extend(
            NOT_THERE if value is None or not 0 <= value <= _LARGEST else value for value in values
        )
        return True


def _text(value: Any) -> str:
    return value[:_LONGEST_NAME] if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= 1 << 40 else 0


def _layout_of(devices: Any) -> Layout | None:
    """The layout that a line of a file describes; None if it describes none.

    Counters that this release does not know are kept: they have places in the file's rows.
    """
    if not isinstance(devices, list) or len(devices) > _MOST_DEVICES:
        return None
    layout: Layout = []
    for entry in devices:
        if not isinstance(entry, dict) or not isinstance(entry.get("counters"), list):
            return None
        kind, names = _text(entry.get("kind")), entry["counters"]
        if not all(isinstance(name, str) for name in names) or len(names) > _MOST_DEVICES:
            return None
        device = Device(kind, _text(entry.get("name")), _facts_of(entry.get("facts")))
        layout.append((device, tuple(map(_text, names))))
    return layout


def _facts_of(facts: Any) -> dict[str, str | int]:
    pairs = list(facts.items())[:_MOST_FACTS] if isinstance(facts, dict) else []
    return {
        _text(key): _text(value) if isinstance(value, str) else value
        for key, value in pairs
        if isinstance(value, str) or (type(value) is int and 0 <= value <= _LARGEST)
    }


def _lines(path: Path, most_samples: int) -> Iterator[bytes]:
    """Lines of a file. Of a long file only every n-th sample: totals still count what was between
    them.
    """
    with open_binary(path) as file:
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
    """A file, as far as it can be read; an incomplete last line is left out."""
    file = SampleFile(path)
    try:
        for line in _lines(path, most_samples):
            if line.endswith(b"\n"):
                file.read_line(line)
    except OSError:
        pass
    return file


class SampleTail:
    """The last sample of a file that is being written."""

    def __init__(self, path: Path) -> None:
        self._file = SampleFile(path)
        self._offset = 0
        self._rest = b""
        self._last: Sample | None = None

    @property
    def host(self) -> str:
        """The host that the samples are of; "" before the first reading."""
        return self._file.host

    def interval_ns(self) -> int:
        """The time between two samples, from the head of the file; the rest is not read."""
        if not self._file.interval_ns:
            with suppress(OSError), open_binary(self._file.path) as file:
                head = SampleFile(self._file.path)
                for line in file.read(_HEAD_BYTES).split(b"\n"):
                    head.read_line(line)
                self._file.interval_ns = head.interval_ns
        return self._file.interval_ns

    def _skip_to_end(self, file: BinaryIO) -> bytes:
        """Moves close to the end of a long file; returns the objects that stand before."""
        size = os.fstat(file.fileno()).st_size
        if size <= 2 * _LONGEST_LINE:
            return b""
        objects = [line for line in _lines(self._file.path, 1) if line.startswith(b"{")]
        self._offset = size - _LONGEST_LINE // 2
        file.seek(self._offset)
        self._offset += len(file.readline(_LONGEST_LINE))
        return b"".join(objects)

    def read(self) -> Sample | None:
        """Reads what was added, and returns the last sample; None if there is none yet."""
        try:
            with open_binary(self._file.path) as file:
                data = self._rest + (self._skip_to_end(file) if not self._offset else b"")
                file.seek(self._offset)
                data += file.read(_MOST_READ_BYTES)
                self._offset = file.tell()
        except OSError:
            return None
        whole, _, rest = data.rpartition(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        for line in whole.split(b"\n"):
            self._file.read_line(line)
        for span in self._file.spans:
            if span.monotonic_ns:
                self._last = span.sample(len(span.monotonic_ns) - 1)
        # Only the last sample is ever asked for.
        self._file.spans = [DeviceSpan(span.layout) for span in self._file.spans[-1:]]
        return self._last
