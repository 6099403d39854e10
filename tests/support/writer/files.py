"""A process's folder as the plugin makes it: who it is, file headers, log segments and metadata."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope import __version__
from ncclscope.capture import header, layout
from ncclscope.private_directory import make_private_directory

Slots = npt.NDArray[np.void]

SEGMENT_BYTES = 256 << 20
NS = 1_000_000_000


@dataclass(frozen=True)
class Who:
    """A process as its file headers describe it. Its counter is CLOCK_MONOTONIC in ns."""

    host: str
    pid: int
    boot_id: str
    start_ns: int  # CLOCK_MONOTONIC at the first init
    realtime_offset_ns: int  # CLOCK_REALTIME minus CLOCK_MONOTONIC
    mode: str
    nonce: int
    environment: dict[str, str]
    more: dict[str, str] = field(default_factory=dict)  # further keys of the identity

    @property
    def start_ticks(self) -> int:
        """When the process began, in hundredths of a second since boot."""
        return max(self.start_ns // 10_000_000 - 100, 1)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        host = self.host.replace("/", "_").replace(".", "_")
        return f"{host}.{self.pid}.{self.start_ticks}"


def nonce_of(number: int) -> int:
    """A nonce that no other process of the capture has, for up to 32512 processes."""
    return 0x8000 + number * 20011 % 0x7F00


def _identity(who: Who, capture: Path) -> bytes:
    pairs = {
        "plugin_version": __version__,
        "mode": who.mode,
        "host": who.host,
        "pid": str(who.pid),
        "start_ticks": str(who.start_ticks),
        "uid": str(os.getuid()),
        "boot_id": who.boot_id,
        "pid_namespace": "4026531836",
        "time_namespace": "4026531834",
        "kernel": "6.8.0",
        "machine": "x86_64",
        "capture": str(capture.resolve()),
        "folder": who.folder,
        "arena": f"/dev/shm/ncclscope-{os.getuid()}/{who.folder}",
        **who.more,
        **{f"env.{name}": value for name, value in who.environment.items()},
    }
    return "".join(f"{key}\0{value}\0" for key, value in pairs.items()).encode()


def _header(who: Who, capture: Path, file_kind: int, segment: int) -> bytes:
    schema, identity = layout.SCHEMA.encode(), _identity(who, capture)
    texts = header.BYTES + len(schema) + len(identity)
    length = -(-texts // layout.SLOT_BYTES) * layout.SLOT_BYTES
    values = dict.fromkeys(header.PLACES, 0) | {
        "magic": layout.MAGIC,
        "endian": layout.ENDIAN,
        "major": layout.MAJOR,
        "minor": layout.MINOR,
        "file_kind": file_kind,
        "header_bytes": length,
        "slot_bytes": layout.SLOT_BYTES,
        "schema_offset": header.BYTES,
        "schema_bytes": len(schema),
        "identity_offset": header.BYTES + len(schema),
        "identity_bytes": len(identity),
        "nonce": who.nonce,
        "clock_kind": layout.CLOCK_IS_MONOTONIC,
        "clock_hz": NS,
        "start_ticks": who.start_ns,
        "start_monotonic_ns": who.start_ns,
        "start_realtime_ns": who.start_ns + who.realtime_offset_ns,
        "pid": who.pid,
        "segment": segment,
    }
    return (header.STRUCT.pack(*values.values()) + schema + identity).ljust(length, b"\0")


class ProcessFolder:
    """The files of one process, written from front to back."""

    def __init__(self, capture: Path, who: Who) -> None:
        self.who = who
        self.slots_written = 0
        self._capture = capture
        self._path = capture / who.folder
        self._segment = 0
        self._log_fd = -1
        self._log_bytes = 0
        make_private_directory(self._path)

    def _create(self, name: str, file_kind: int, segment: int = 0) -> tuple[int, int]:
        """Descriptor and length of a new file with its header."""
        fd = os.open(self._path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return fd, os.write(fd, _header(self.who, self._capture, file_kind, segment))

    def append(self, slots: Slots) -> None:
        """Appends runs of slots, block heads included, to the log."""
        if self._log_fd < 0:
            name = f"log.{self._segment:06}"
            self._log_fd, self._log_bytes = self._create(name, layout.FILE_LOG, self._segment)
        data = memoryview(np.ascontiguousarray(slots)).cast("B")
        while len(data):
            written = os.write(self._log_fd, data)
            data, self._log_bytes = data[written:], self._log_bytes + written
        self.slots_written += len(slots)
        if self._log_bytes >= SEGMENT_BYTES:
            self.close()
            self._segment += 1

    def close(self) -> None:
        """Ends the segment."""
        if self._log_fd >= 0:
            os.close(self._log_fd)
        self._log_fd = -1

    def write(self, name: str, file_kind: int, slots: Slots) -> None:
        """A whole file: meta or tally."""
        fd, _ = self._create(name, file_kind)
        with open(fd, "wb") as file:
            file.write(slots.tobytes())
