"""Python finds every field where C has it, and refuses schemas that say otherwise."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ncclscope.capture import dtypes, header, layout
from ncclscope.capture.call_counts import RECORD, bucket_bounds_ns, read_call_counts
from ncclscope.errors import FormatError
from ncclscope.native import player_path
from ncclscope.nccl.events import EVENTS
from tests.support.writer.files import ProcessFolder, Who, nonce_of

TYPES = {"u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64", "i4": "i32", "i8": "i64"}
Fields = list[list[object]]  # name, type, offset, bytes


@pytest.fixture(scope="module")
def native() -> dict:
    return json.loads(subprocess.check_output([player_path(), "layout"]))


def in_numpy(dtype: np.dtype) -> Fields:
    fields = []
    for name in dtype.names or ():
        item, offset = dtype.fields[name][:2]
        fields.append([name, TYPES[item.base.str.lstrip("<|")], offset, item.itemsize])
    return fields


def in_structs(places: dict[str, layout.Place]) -> Fields:
    """As the readers without numpy have them."""
    fields = []
    for name, place in places.items():
        assert layout.struct_of(places, name).size == place.end
        fields.append([name, place.type, place.offset, place.end - place.offset])
    return fields


def without_char(fields: Fields) -> Fields:
    return [[name, "u8" if kind == "char" else kind, *place] for name, kind, *place in fields]


def test_slots_have_their_fields_where_c_has_them(native: dict) -> None:
    assert {name: slot["kind"] for name, slot in native["slots"].items()} == layout.KINDS
    for name, slot in native["slots"].items():
        fields = native["head"] + slot["fields"]
        assert in_numpy(dtypes.OURS.dtypes[name]) == without_char(fields)
        assert in_structs(layout.slot_places(name)) == fields


def test_the_file_header_is_that_of_c(native: dict) -> None:
    assert in_structs(header.PLACES) == native["header"]
    assert sum(size for *_, size in native["header"]) == header.BYTES


def test_times_are_those_of_c(native: dict) -> None:
    assert in_numpy(dtypes.OURS.times) == native["times"]
    record = layout.SLOT_BYTES + dtypes.OURS.times.itemsize
    assert layout.tally_record_bytes() == record


def test_some_fields_of_a_slot_are_read_by_their_names() -> None:
    slot = bytearray(range(layout.SLOT_BYTES))
    reader = layout.slot_struct("Text", "what", "offset", "length")
    assert reader.unpack_from(slot) == (0x0908, 0x0D0C, 0x0F0E)
    assert layout.slot_struct("Live", "realtime_ns", "phase").unpack_from(slot) == (
        int.from_bytes(slot[24:32], "little"),
        57,
    )


def test_event_kinds_are_nccl_bits() -> None:
    kinds = {name: kind for name, kind in layout.KINDS.items() if kind <= layout.EVENT_KINDS}
    assert kinds == {name: bit + 1 for bit, name in enumerate(EVENTS)}


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


def test_what_was_spare_in_an_earlier_file_may_have_a_name_now(tmp_path: Path) -> None:
    """Files of 1.4 from before `timing_off` had a spare number in its place."""
    earlier = layout.SCHEMA.replace("timing_off:u64", "spare_0000:u64")
    assert "timing_off" not in (dtypes.check_schema(earlier).times.names or ())
    record = np.zeros(1, RECORD)
    record["tally"]["kind"], record["tally"]["calls"] = layout.KINDS["Tally"], 7
    record["times"]["event_count"], record["times"]["event_histogram"][0, 9] = 3, 3
    who = Who("h", 7, "boot", 10**9, 0, "profile", nonce_of(0), {})
    ProcessFolder(tmp_path, who).write("tally", layout.FILE_TALLY, record)
    path = tmp_path / who.folder / "tally"
    path.write_bytes(path.read_bytes().replace(b"timing_off:u64", b"spare_0000:u64"))
    (read,) = read_call_counts(path)
    assert (int(read["tally"]["calls"]), int(read["times"]["event_count"])) == (7, 3)
    assert int(read["times"]["event_histogram"][9]) == 3
    assert int(read["times"]["timing_off"]) == 0


def test_buckets_of_the_recorder_are_between_the_bounds_of_readers() -> None:
    """Every bound, the ns around it, and times by chance in every octave."""
    bounds = bucket_bounds_ns()
    assert len(bounds) == layout.TIME_BUCKETS
    near = (bounds.astype(np.uint64)[:, None] + np.arange(3, dtype=np.uint64)).ravel()
    near = np.unique(np.maximum(near, np.uint64(1)) - np.uint64(1))
    draw = np.random.default_rng(8)
    spread = 2.0 ** draw.uniform(0, 63.9, 20_000)
    times = np.concatenate([near, spread.astype(np.uint64)])
    text = "\n".join(map(str, times.tolist()))
    printed = subprocess.run(
        [player_path(), "buckets"], input=text, capture_output=True, text=True, check=True
    )
    buckets = np.array(printed.stdout.split(), np.int64)
    # Times below 2^53 are exact as doubles; larger ones are all in the last bucket.
    expected = np.searchsorted(bounds, times.astype(np.float64), side="right") - 1
    assert len(buckets) == len(times)
    assert (buckets == expected).all()
    assert len(np.unique(buckets)) == layout.TIME_BUCKETS
