"""The head of every capture file: magic, version, clock, schema and who wrote it."""

import struct
from dataclasses import dataclass
from pathlib import Path

from ncclscope import launchers
from ncclscope.capture import layout
from ncclscope.errors import FormatError

MAGIC = b"\x89NCCLSC\n"
_ENDIAN = 0x1234
# name, struct code; in file order
FIELDS = (
    ("magic", "8s"), ("endian", "H"), ("major", "H"), ("minor", "H"), ("file_kind", "H"),
    ("header_bytes", "I"), ("slot_bytes", "I"), ("schema_offset", "I"), ("schema_bytes", "I"),
    ("identity_offset", "I"), ("identity_bytes", "I"), ("nonce", "Q"), ("clock_kind", "Q"),
    ("clock_hz", "Q"), ("start_ticks", "Q"), ("start_monotonic_ns", "Q"),
    ("start_realtime_ns", "Q"), ("pid", "I"), ("segment", "I"), ("counters_offset", "Q"),
    ("meta_offset", "Q"), ("meta_slots", "Q"), ("meta_drained", "Q"), ("tally_offset", "Q"),
    ("tally_slots", "Q"), ("chunks_offset", "Q"), ("chunk_slots", "Q"), ("chunk_count", "Q"),
    ("heartbeat_ns", "Q"),
)  # fmt: skip
_STRUCT = struct.Struct("<" + "".join(code for _, code in FIELDS))
BYTES = _STRUCT.size
_CLOCKS = {1: "tsc", 2: "cntvct", 3: "monotonic"}


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header; the geometry fields are zero outside an arena."""

    file_kind: int
    major: int
    minor: int
    header_bytes: int
    nonce: int
    clock: str
    clock_hz: int
    start_ticks: int
    start_monotonic_ns: int
    start_realtime_ns: int
    pid: int
    segment: int
    counters_offset: int
    meta_offset: int
    meta_slots: int
    meta_drained: int
    tally_offset: int
    tally_slots: int
    chunks_offset: int
    chunk_slots: int
    chunk_count: int
    heartbeat_ns: int
    schema: str
    identity: dict[str, str]


def _identity(raw: bytes) -> dict[str, str]:
    pieces = raw.decode("utf-8", "replace").split("\0")
    return dict(zip(pieces[0::2], pieces[1::2], strict=False))


def number_in(identity: dict[str, str], *keys: str) -> int | None:
    """The first of these entries that is a number of at most nine digits, None where none is."""
    return launchers.first_number(identity, keys)


def launcher_rank(identity: dict[str, str]) -> int | None:
    """The global rank that a launcher gave the process, None where there was none."""
    return launchers.global_rank(identity, launchers.RECORDED)


def restarts_before(identity: dict[str, str]) -> int:
    """How often launchers had restarted the job before this process, as far as they say so."""
    return launchers.restarts(identity, launchers.RECORDED)


def parse_header(data: bytes | memoryview, path: Path) -> Header:
    """The header at the start of `data`; FormatError names the file and what to do."""
    if len(data) < BYTES:
        raise FormatError(
            f"cannot read {path}: {len(data)} bytes are too few for a capture file",
            "The file was cut off; the other processes' files can still be read without it",
        )
    values = dict(zip((name for name, _ in FIELDS), _STRUCT.unpack_from(data), strict=True))
    if values["magic"] != MAGIC or values["endian"] != _ENDIAN:
        raise FormatError(
            f"cannot read {path}: it is not a capture file", "Give a directory that ncclscope wrote"
        )
    if values["major"] > layout.MAJOR:
        raise FormatError(
            f"cannot read {path}: its format {values['major']}.{values['minor']} is newer than "
            f"this release reads ({layout.MAJOR}.{layout.MINOR})",
            f"Install a newer ncclscope (the writer was {_writer(data, values)})",
        )
    start, length = values["schema_offset"], values["schema_bytes"]
    id_start, id_length = values["identity_offset"], values["identity_bytes"]
    inside = max(start + length, id_start + id_length, BYTES) <= values["header_bytes"] <= len(data)
    if (
        not inside
        or values["slot_bytes"] != layout.SLOT_BYTES
        or values["header_bytes"] % layout.SLOT_BYTES
    ):
        raise FormatError(
            f"cannot read {path}: its header is damaged", "Restore the file or leave it out"
        )
    kept = {name: value for name, value in values.items() if name in Header.__slots__}
    return Header(
        **kept,
        clock=_CLOCKS.get(values["clock_kind"], "unknown"),
        schema=bytes(data[start : start + length]).decode("ascii", "replace"),
        identity=_identity(bytes(data[id_start : id_start + id_length])),
    )


def _writer(data: bytes | memoryview, values: dict[str, int]) -> str:
    raw = bytes(
        data[values["identity_offset"] : values["identity_offset"] + values["identity_bytes"]]
    )
    return f"ncclscope {_identity(raw).get('plugin_version', 'of an unknown version')}"
