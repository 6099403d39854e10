"""One archive of a capture for a bug report. redact.py says what is removed from it.

Identities in file headers, the recorder's notes and texts of ranges are cleaned. Events stay as
they are: they hold sizes, times and addresses of memory, no data.
"""

import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ncclscope.capture import layout
from ncclscope.capture.file_sizes import LARGEST_ARENA, LARGEST_META, check_log_size
from ncclscope.capture.header import (
    BYTES,
    LARGEST_HEADER_BYTES,
    PLACES,
    STRUCT,
    Header,
    parse_header,
)
from ncclscope.capture.housekeeping import process_folders
from ncclscope.capture.redact import Redaction, clean_context, clean_metadata, clean_slots
from ncclscope.errors import FormatError
from ncclscope.output_files import is_replaced, put_file, scratch_near
from ncclscope.regular_files import check_size, open_binary

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

Entry = tuple[str, int, BinaryIO]  # name in the archive, bytes, content


_LARGEST_CONTEXT = 16 << 20  # the recorder writes less
_AT_ONCE = 1 << 20  # bytes of slots that are cleaned together


class _Spliced(io.RawIOBase):
    """A file with another beginning, and its slots cleaned; log files are too large to be held in
    memory.
    """

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._ready, self._rest = io.BytesIO(beginning), rest

    def readable(self) -> bool:
        return True

    def _clean_some(self) -> io.BytesIO:
        try:
            slots = bytearray(self._rest.read(_AT_ONCE))
        except OSError as error:  # not to be taken for an error of the archive
            message = f"cannot read {self._rest.name}: {error.strerror}"
            raise FormatError(message, "Copy the capture to another disk") from None
        clean_slots(slots, 0, len(slots))
        return io.BytesIO(slots)

    def readinto(self, buffer: "Buffer") -> int:
        room = memoryview(buffer)
        data = self._ready.read(len(room))
        if not data:
            self._ready = self._clean_some()
            data = self._ready.read(len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._rest.close()
        super().close()


def _clean_header(data: bytes, header: Header, redaction: Redaction) -> bytes:
    """A file's header with a cleaned identity."""
    values = dict(zip(PLACES, STRUCT.unpack_from(data), strict=True))
    offset = values["identity_offset"]
    identity = redaction.identity(header.identity)
    size = -(-(offset + len(identity)) // layout.SLOT_BYTES) * layout.SLOT_BYTES
    if header.file_kind == layout.FILE_ARENA:
        size = header.header_bytes
        identity = identity[: size - offset]
    values |= {"identity_bytes": len(identity), "header_bytes": size}
    clean = STRUCT.pack(*values.values()) + data[BYTES:offset] + identity
    return clean.ljust(size, b"\0")


def _files(capture: Path) -> Iterator[tuple[Path, bytes, Header]]:
    """Capture files with their beginnings. A file that cannot be read cannot be cleaned, and is
    left out.
    """
    for folder in process_folders(capture):
        for path in sorted(folder.iterdir()):
            if not path.is_file() or path.name.startswith("new."):
                continue
            try:
                with open_binary(path) as file:
                    beginning = file.read(LARGEST_HEADER_BYTES)
                    header = parse_header(beginning, path)
                    _check_size(path, header, os.fstat(file.fileno()))
            except (FormatError, OSError):
                continue
            yield path, beginning, header


def _check_size(path: Path, header: Header, state: os.stat_result) -> None:
    """Raises NotRegularError for a file that is larger than its kind can be."""
    if header.file_kind in (layout.FILE_META, layout.FILE_ARENA):
        largest = LARGEST_META if header.file_kind == layout.FILE_META else LARGEST_ARENA
        check_size(path, state.st_size, largest)
    check_log_size(path, state)


def _entry(path: Path, head: bytes, header: Header, redaction: Redaction) -> tuple[int, BinaryIO]:
    """Size and content of one file, cleaned."""
    file = open_binary(path)
    file.seek(header.header_bytes)
    if header.file_kind not in (layout.FILE_META, layout.FILE_ARENA):
        size = max(os.fstat(file.fileno()).st_size - header.header_bytes, 0)
        return len(head) + size, io.BufferedReader(_Spliced(head, file))
    with file:
        data = bytearray(head + file.read(LARGEST_ARENA))
    start, end = len(head), len(data)
    if header.file_kind == layout.FILE_ARENA:
        start = header.meta_offset
        end = min(end, start + header.meta_slots * layout.SLOT_BYTES)
        clean_slots(data, min(header.chunks_offset, len(data)), len(data))
    clean_metadata(data, start, end, header.identity, redaction)
    return len(data), io.BytesIO(data)


def _clean_files(capture: Path, redaction: Redaction) -> Iterator[Entry]:
    """What goes into the archive."""
    for path, beginning, header in _files(capture):
        head = _clean_header(beginning, header, redaction)
        try:
            size, content = _entry(path, head, header, redaction)
        except OSError:
            continue
        folder = redaction.folder(path.parent.name, header.identity.get("host", ""))
        with content:
            yield f"{folder}/{path.name}", size, content


def _clean_lines(path: Path, redaction: Redaction) -> bytes:
    """What PyTorch said, line by line. Lines of any other form are left out."""
    lines = []
    with open_binary(path) as file:
        for line in file.read(_LARGEST_CONTEXT).splitlines():
            try:
                clean = clean_context(json.loads(line), redaction)
            except (ValueError, RecursionError):
                continue
            lines.append(json.dumps(clean, separators=(",", ":")).encode() + b"\n")
    return b"".join(lines)


def _contexts(capture: Path, redaction: Redaction, hosts: dict[str, str]) -> Iterator[Entry]:
    """`hosts`: by name of a process's folder."""
    for name, host in hosts.items():
        path = capture / name / "context.jsonl"
        if path.is_file() and not path.is_symlink():
            content = _clean_lines(path, redaction)
            folder = redaction.folder(name, host)
            yield f"{folder}/{path.name}", len(content), io.BytesIO(content)


def _clean_samples(path: Path, redaction: Redaction) -> tuple[str, bytes] | None:
    """A file of system samples: its name in the archive, and its lines with the host replaced.
    Lines and files of any other form are left out: they could hold anything.
    """
    host, lines = "", []
    with open_binary(path) as file:
        for line in file:
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(content, dict) and isinstance(content.get("host"), str):
                host = content["host"]
                content |= {"host": redaction.host(host), "redacted": 1}
                line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
            lines.append(line)
    if not host:
        return None
    return redaction.folder(path.name.removeprefix("system."), host), b"".join(lines)


def _samples(capture: Path, redaction: Redaction) -> Iterator[Entry]:
    for path in sorted(filter(Path.is_file, capture.glob("system.*.jsonl"))):
        clean = _clean_samples(path, redaction) if not path.is_symlink() else None
        if clean is not None:
            yield f"system.{clean[0]}", len(clean[1]), io.BytesIO(clean[1])


def _write(out: BinaryIO, folder: str, entries: Iterable[Entry]) -> int:
    """Writes the entries below a folder of that name; how many there were."""
    count = 0
    with tarfile.open(fileobj=out, mode="w|gz") as tar:
        for name, size, content in entries:
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = size, 0o600
            tar.addfile(entry, content)
            count += 1
    return count


def pack(capture: Path, archive: Path, replace_hosts: bool) -> int:
    """Writes the archive and returns how many files it holds."""
    identities = {path.parent.name: header.identity for path, _, header in _files(capture)}
    redaction = Redaction(identities.values(), replace_hosts)
    hosts = {folder: identity.get("host", "") for folder, identity in identities.items()}
    entries = chain(
        _clean_files(capture, redaction),
        _contexts(capture, redaction, hosts),
        _samples(capture, redaction),
    )
    with scratch_near(archive) as scratch:
        file = scratch / "archive"
        with file.open("xb") as out:
            count = _write(out, _top_folder(capture, archive), entries)
        if not count:
            raise FormatError(f"nothing to pack in {capture}: none of its files can be read")
        put_file(file, archive)
    return count


def _top_folder(capture: Path, archive: Path) -> str:
    """The name of the one folder in the archive."""
    named_by = archive if is_replaced(archive) else capture.resolve()
    return named_by.name.partition(".")[0] or "capture"
