"""Python's mirror of the format is the C structs' layout, to the byte."""

import json
import struct
import subprocess

import pytest

from ncclscope.capture import contents, dtypes, header, layout
from ncclscope.errors import FormatError
from ncclscope.native import player_path

TYPES = {"u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64", "i4": "i32", "i8": "i64"}


@pytest.fixture(scope="module")
def native() -> dict:
    return json.loads(subprocess.check_output([player_path(), "layout"]))


def test_slots(native: dict) -> None:
    assert set(native["slots"]) == set(layout.KINDS)
    for name, described in native["slots"].items():
        assert described["kind"] == layout.KINDS[name]
        dtype = dtypes.OURS.dtypes[name]
        ours = []
        for field in dtype.names:
            item, offset = dtype.fields[field][:2]
            ours.append([field, TYPES[item.base.str.lstrip("<|")], offset, item.itemsize])
        theirs = [
            [field, "u8" if kind == "char" else kind, *place]
            for field, kind, *place in described["fields"]
        ]
        assert ours == theirs


def test_file_header(native: dict) -> None:
    offset, ours = 0, []
    for name, code in header.FIELDS:
        size = struct.calcsize("<" + code)
        ours.append([name, offset, size])
        offset += size
    assert ours == [[name, *place] for name, _, *place in native["header"]]
    assert offset == header.BYTES


def test_times(native: dict) -> None:
    times = dtypes.OURS.times
    ours = [[name, times.fields[name][1], times.fields[name][0].itemsize] for name in times.names]
    assert ours == [[name, *place] for name, _, *place in native["times"]]


def test_version_and_counters(native: dict) -> None:
    assert native["version"] == [layout.MAJOR, layout.MINOR]
    assert tuple(native["counters"]) == layout.COUNTERS == dtypes.OURS.counters


def test_event_kinds_are_nccl_bits(native: dict) -> None:
    events = [
        name for name, kind in sorted(layout.KINDS.items(), key=lambda item: item[1]) if kind <= 16
    ]
    assert events == [
        "Group", "Coll", "P2p", "ProxyOp", "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin", "GroupApi", "CollApi",
        "P2pApi", "KernelLaunch", "CeColl", "CeSync", "CeBatch", "KernelPhase",
    ]  # fmt: skip


def test_fields_lie_where_duckdb_can_scan_them() -> None:
    for dtype in dtypes.OURS.dtypes.values():
        for item, offset, *_ in dtype.fields.values():
            assert offset % item.base.itemsize == 0
            assert layout.SLOT_BYTES % item.base.itemsize == 0


def test_a_newer_minor_may_add_kinds_and_use_spare_bytes() -> None:
    newer = layout.SCHEMA.replace("comm:u16 spare:u8:26", "comm:u16 colour:u16 spare:u8:24")
    schema = dtypes.check_schema(
        newer.replace("counters ", "90 Novel a:u64 spare:u8:48\ncounters ")
    )
    assert schema.kinds["Novel"] == 90


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seq:u64 count:u64", "count:u64 seq:u64"),
        ("2 Coll ", "99 Coll "),
        ("comm:u16 spare:u8:26", "comm:u16 spare:u8:27"),
        ("comm:u16 spare:u8:26", "spare:u8:1 comm:u16 spare2:u8:25"),
        ("u64", "f128"),
        ("2 Coll", "two Coll"),
        ("spare:u8:26", "spare:u8:-3"),
    ],
)
def test_a_schema_that_says_something_else_is_refused(before: str, after: str) -> None:
    with pytest.raises(FormatError):
        dtypes.check_schema(layout.SCHEMA.replace(before, after, 1))


def test_the_size_of_a_tally_record() -> None:
    """What counts without numpy knows the size by heart."""
    assert layout.SLOT_BYTES + dtypes.OURS.times.itemsize == contents._RECORD
    fields = dtypes.OURS.dtypes["Tally"].fields
    assert (fields["calls"][1], fields["level"][1]) == (16, 34)
