"""The header of every capture file: magic, version, clock, schema and who wrote it."""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from ncclscope import launchers
from ncclscope.capture import layout
from ncclscope.errors import FormatError, NewerFormatError

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


# Fields of the header as they are stored, and their places in the struct.
_KEPT = [(name, at) for at, name in enumerate(PLACES) if name in {f.name for f in fields(Header)}]


@lru_cache(maxsize=1024)  # a process's files have the same one, and many threads read at once
def _identity_pieces(raw: bytes) -> tuple[tuple[str, str], ...]:
    pieces = raw.decode("utf-8", "replace").split("\0")
    return tuple(zip(pieces[0::2], pieces[1::2], strict=False))


def _identity(raw: bytes) -> dict[str, str]:
    return dict(_identity_pieces(raw))


@lru_cache(maxsize=64)
def _schema(raw: bytes) -> str:
    return raw.decode("ascii", "replace")


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
    unpacked = STRUCT.unpack_from(data)
    values = dict(zip(PLACES, unpacked, strict=True))
    if values["magic"] != layout.MAGIC or values["endian"] != layout.ENDIAN:
        raise FormatError(
            f"cannot read {path}: it is not a capture file", "Give a directory that ncclscope wrote"
        )
    if values["major"] > layout.MAJOR:
        raise NewerFormatError(
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
    return Header(
        **{name: unpacked[place] for name, place in _KEPT},
        clock=_CLOCKS.get(values["clock_kind"], "unknown"),
        schema=_schema(bytes(data[start : start + length])),
        identity=_identity(bytes(data[id_start : id_start + id_length])),
    )


def _writer(data: bytes | memoryview, values: dict[str, int]) -> str:
    raw = bytes(
        data[values["identity_offset"] : values["identity_offset"] + values["identity_bytes"]]
    )
    return f"ncclscope {_identity(raw).get('plugin_version', 'of an unknown version')}"
