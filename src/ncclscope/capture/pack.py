"""One archive of a capture for a bug report, without what is nobody's business.

Command lines, paths and environment variables are removed from every file's header; host names are
replaced where asked. Events stay as they are: they hold sizes, times and addresses, no data.
"""

import io
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ncclscope.capture import layout
from ncclscope.capture.header import BYTES, FIELDS, Header, parse_header
from ncclscope.capture.inventory import process_folders
from ncclscope.errors import FormatError, UsageError

# What helps to understand a capture and says nothing about who made it.
_KEPT = (
    "plugin_version", "mode", "host", "pid", "start_ticks", "boot_id", "pid_namespace",
    "time_namespace", "kernel", "machine", "folder", "nccl_version",
)  # fmt: skip
_KEPT_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
    "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NODEID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
_PLACES = {
    name: struct.calcsize("<" + "".join(c for _, c in FIELDS[:n]))
    for n, (name, _) in enumerate(FIELDS)
}
_ARENA_HEADER_BYTES = 16384


class Redaction:
    """How names are replaced, the same in every file of an archive."""

    def __init__(self, replace_hosts: bool) -> None:
        self._replace = replace_hosts
        self.hosts: dict[str, str] = {}

    def host(self, name: str) -> str:
        """A host's name in the archive."""
        if not self._replace:
            return name
        return self.hosts.setdefault(name, f"host{len(self.hosts) + 1}")

    def folder(self, name: str, host: str) -> str:
        """A process folder's name: it begins with the host's."""
        plain = host.replace("/", "_").replace(".", "_")
        rest = name.removeprefix(plain)
        return self.host(host).replace(".", "_") + rest if rest != name else name

    def identity(self, identity: dict[str, str]) -> bytes:
        """A header's identity, cleaned."""
        host = identity.get("host", "")
        clean = {key: value for key, value in identity.items() if key in _KEPT}
        clean |= {
            f"env.{name}": identity[f"env.{name}"]
            for name in _KEPT_VARIABLES
            if f"env.{name}" in identity
        }
        clean |= {
            key: value
            for key, value in identity.items()
            if key.startswith(("env.NCCL_", "env.NCCLSCOPE_")) and not value.startswith("/")
        }
        clean["host"] = self.host(host)
        clean["folder"] = self.folder(identity.get("folder", ""), host)
        clean["redacted"] = "1"
        return "".join(f"{key}\0{value}\0" for key, value in clean.items()).encode()


def _clean_header(data: bytes, header: Header, redaction: Redaction) -> bytes:
    """A file's header with a cleaned identity."""
    values = {name: data[_PLACES[name] :] for name, _ in FIELDS}
    offset = int.from_bytes(values["identity_offset"][:4], "little")
    identity = redaction.identity(header.identity)
    size = -(-(offset + len(identity)) // layout.SLOT_BYTES) * layout.SLOT_BYTES
    if header.file_kind == layout.FILE_ARENA:
        size = header.header_bytes
        identity = identity[: size - offset]
    clean = bytearray(data[:offset] + identity)
    clean += bytes(size - len(clean))
    struct.pack_into("<I", clean, _PLACES["identity_bytes"], len(identity))
    struct.pack_into("<I", clean, _PLACES["header_bytes"], size)
    return bytes(clean)


def _clean_files(capture: Path, redaction: Redaction) -> Iterator[tuple[str, bytes]]:
    """Names and contents for the archive."""
    for folder in process_folders(capture):
        for path in sorted(folder.iterdir()):
            if not path.is_file() or path.name.startswith("new."):
                continue
            data = path.read_bytes()
            try:
                header = parse_header(memoryview(data), path)
            except FormatError:
                continue  # what cannot be read cannot be cleaned
            name = redaction.folder(folder.name, header.identity.get("host", ""))
            yield (
                f"{name}/{path.name}",
                _clean_header(data, header, redaction) + data[header.header_bytes :],
            )


def pack(capture: Path, archive: Path, replace_hosts: bool) -> int:
    """Writes the archive and returns how many files it holds."""
    assert BYTES <= _ARENA_HEADER_BYTES
    redaction = Redaction(replace_hosts)
    count = 0
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz") as tar:
        for name, data in _clean_files(capture, redaction):
            entry = tarfile.TarInfo(f"{archive.name.partition('.')[0]}/{name}")
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
            count += 1
    if not count:
        partial.unlink()
        raise UsageError(f"nothing to pack in {capture}", "Name the directory of a capture")
    partial.replace(archive)
    return count
