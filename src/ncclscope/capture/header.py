"""The header of every capture file: magic, version, clock, schema and who wrote it."""

from dataclasses import dataclass
from pathlib import Path

from ncclscope import launchers
from ncclscope.capture import layout
from ncclscope.errors import FormatError

# Files are read up to here for their headers; an arena's has MAX_HEADER_BYTES, others need less.
LARGEST_HEADER_BYTES = 1 << 16
PLACES = layout.places(layout.HEADER.split(" "))
STRUCT = layout.struct_of(PLACES, *PLACES)
BYTES = STRUCT.size
_CLOCKS = {
    layout.CLOCK_IS_TSC: "tsc",
    layout.CLOCK_IS_CNTVCT: "cntvct",
    layout.CLOCK_IS_MONOTONIC: "monotonic",
}


@dataclass(frozen=True, slots=True)
class Header:
    """One file's header; the fields from counters_offset on are zero outside an arena."""

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


def parse_header(data: bytes | memoryview, path: Path) -> Header:
    """The header at the start of `data`; a FormatError names the file and what to do."""
    if len(data) < BYTES:
        raise FormatError(
            f"cannot read {path}: {len(data)} bytes are too few for a capture file",
            "The file was cut off; the other processes' files can still be read without it",
        )
    values = dict(zip(PLACES, STRUCT.unpack_from(data), strict=True))
    if values["magic"] != layout.MAGIC or values["endian"] != layout.ENDIAN:
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
