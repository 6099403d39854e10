"""Writes the sample files of a capture.

Each line is appended by one write, so a sampler that dies leaves at most its last line incomplete.
"""

import json
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from ncclscope.system.counters import COUNTERS, Device
from ncclscope.system.sample import Sample, counters_of_devices
from ncclscope.system.sample_files import MOST_FILE_BYTES, VERSION, Layout


def safe_host(host: str) -> str:
    """A host's name as it appears in file names, the same as in those of process folders."""
    return re.sub(r"[/.]", "_", host) or "unknown"


class SampleWriter:
    """Writes one sampler's files."""

    def __init__(
        self, capture: Path, about: dict[str, Any], most_bytes: int = MOST_FILE_BYTES
    ) -> None:
        self._capture, self._about, self._most_bytes = capture, about, most_bytes
        self._layout: Layout = []
        self._sampler = os.urandom(8).hex()  # two containers may share host name and process id
        self._number = -1  # of the last file
        self._descriptor = -1
        self._needs_head = False  # the file has no first line yet
        self._bytes = 0
        self._torn = False
        self._samples_in_file = 0
        self._lost_in_file = 0  # losses that the file reports
        self._files: list[Path] = []
        self.samples = 0
        self.deleted = 0  # samples in files that were removed to make room
        self.lost = 0  # samples that could not be written

    @property
    def devices(self) -> list[Device]:
        """Devices that have been sampled."""
        return [device for device, _ in self._layout]

    def path(self, number: int) -> Path:
        """The path of a file by its number."""
        host, pid = safe_host(str(self._about["host"])), self._about["pid"]
        return self._capture / f"system.{host}.{pid}.{number}.jsonl"

    def _open_next(self) -> None:
        """Creates the next file. Samplers of several containers may share host name and process id,
        so it must not exist yet.
        """
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        for number in count(self._number + 1):
            with suppress(FileExistsError):
                self._descriptor = os.open(self.path(number), flags, 0o600)
                self._number = number
                break
        self._needs_head, self._torn = True, False

    def _begin(self) -> None:
        """Begins the next file, and removes all earlier ones but the last."""
        if not self._needs_head:
            self._open_next()
        deleted = self.samples - self._samples_in_file if len(self._files) >= 2 else 0
        losses = {"samples_deleted": deleted} if deleted else {}
        about = {**self._about, "sampler": self._sampler, **losses}
        self._append({"ncclscope": "system", "version": VERSION, **about})
        self._needs_head, self.deleted = False, deleted
        self._bytes, self._layout, self._samples_in_file, self._lost_in_file = 0, [], 0, 0
        self._files.append(self.path(self._number))
        while len(self._files) > 2:
            self._files.pop(0).unlink(missing_ok=True)

    def _append(self, content: Any) -> None:
        """Appends a line; after one that was written in part, begins a new one first."""
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
        """Appends a sample. Raises OSError if it cannot; that is counted, and written later."""
        try:
            if self._descriptor < 0 or self._needs_head or self._bytes >= self._most_bytes:
                self._begin()
            self._extend_layout(sample)
            if self.lost > self._lost_in_file:
                self._append({"samples_lost": self.lost})
                self._lost_in_file = self.lost
            values = [
                sample.numbers.get(device, {}).get(name)
                for device, names in self._layout
                for name in names
            ]
            self._append([sample.monotonic_ns, sample.realtime_ns, *values])
        except OSError:
            self.lost += 1
            raise
        self.samples += 1
        self._samples_in_file += 1

    def _extend_layout(self, sample: Sample) -> None:
        """Gives every counter of a sample a place in the layout, which only grows."""
        current = dict(self._layout)
        merged = dict(current)
        for device, names in counters_of_devices(sample.numbers):
            all_names = {*names, *current.get(device, ())}
            merged[device] = tuple(c.name for c in COUNTERS[device.kind] if c.name in all_names)
        if merged != current:
            devices = [
                {"kind": d.kind, "name": d.name, "facts": d.facts, "counters": names}
                for d, names in merged.items()
            ]
            self._append({"devices": devices})
            self._layout = list(merged.items())

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._needs_head = -1, False
