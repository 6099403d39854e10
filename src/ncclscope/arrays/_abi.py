"""The compiled loops' structs and functions.

Made by tools/generate.py from native/arrays/arrays.h: do not edit.
"""

# fmt: off
from ctypes import (
    POINTER,
    Structure,
    c_double,
    c_int,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

# Of the lists; a library that says another number was built from other sources.
VERSION = 0xA087CF6BDC210984


class Lines(Structure):
    _fields_ = (
        ("count", c_int64),
        ("x", c_void_p),
        ("y", c_void_p),
    )


class LinePiece(Structure):
    _fields_ = (
        ("low", c_double),
        ("high", c_double),
        ("y", c_double),
        ("slope", c_double),
    )


class Bound(Structure):
    _fields_ = (
        ("first_ns", c_int64),
        ("base_ns", c_int64),
        ("drift", c_double),
        ("line", Lines),
    )


class Column(Structure):
    _fields_ = (
        ("out", c_void_p),
        ("mask", c_uint32),
        ("want", c_uint32),
        ("offset", c_uint8),
        ("source", c_uint8),
        ("sink", c_uint8),
        ("meaning", c_uint8),
        ("keep", c_uint8),
        ("spare", c_uint8 * 7),
    )


class ColumnList(Structure):
    _fields_ = (
        ("count", c_int64),
        ("columns", POINTER(Column)),
    )


class TickConverter(Structure):
    _fields_ = (
        ("origin_ticks", c_int64),
        ("base_ns", c_int64),
        ("ns_per_tick", c_double),
        ("farthest_ns", c_double),
        ("nonce", c_uint64),
        ("line", Lines),
    )


class SlotLog(Structure):
    _fields_ = (
        ("segments", c_int64),
        ("base", c_void_p),
        ("first_row", c_void_p),
        ("blocks", c_int64),
        ("key", c_void_p),
        ("count", c_void_p),
        ("row", c_void_p),
        ("tid", c_void_p),
        ("low_ticks", c_uint64),
        ("high_ticks", c_uint64),
    )


class EventList(Structure):
    _fields_ = (
        ("slot", c_void_p),
        ("key", c_void_p),
        ("thread", c_void_p),
        ("extended", c_void_p),
        ("room", c_int64),
        ("count", c_int64),
        ("impossible", c_int64),
        ("extension", c_uint32),
        ("names", c_uint8),
        ("offset", c_uint8 * 7),
        ("seen", c_void_p),
        ("own", ColumnList),
        ("behind", ColumnList),
        ("read", c_int64),
        ("near", LinePiece),
    )


class Children(Structure):
    _fields_ = (
        ("count", c_int64),
        ("key", c_void_p),
        ("parent", c_void_p),
        ("comm", c_void_p),
    )


class ColumnPart(Structure):
    _fields_ = (
        ("values", c_void_p),
        ("places", c_void_p),
        ("count", c_int64),
    )


class IntervalUnion(Structure):
    _fields_ = (
        ("last_start", c_int64),
        ("until", c_int64),
        ("length", c_int64),
        ("disordered", c_int64),
    )


class Channels(Structure):
    _fields_ = (
        ("count", c_int64),
        ("work", c_void_p),
        ("comm", c_void_p),
        ("channel", c_void_p),
        ("gpu_start", c_void_p),
        ("gpu_stop", c_void_p),
        ("seen_start_ns", c_void_p),
        ("seen_end_ns", c_void_p),
        ("stamp", c_void_p),
        ("reason", c_void_p),
        ("gpu", c_void_p),
    )


class GpuClock(Structure):
    _fields_ = (
        ("lower", Bound),
        ("minus_upper", Bound),
        ("near_lower", LinePiece),
        ("near_upper", LinePiece),
    )


class GpuClocks(Structure):
    _fields_ = (
        ("count", c_int64),
        ("clock", POINTER(GpuClock)),
    )


class WorkTimes(Structure):
    _fields_ = (
        ("count", c_int64),
        ("start_ns", c_void_p),
        ("end_ns", c_void_p),
        ("seen_start_ns", c_void_p),
        ("seen_end_ns", c_void_p),
        ("timed", c_void_p),
        ("reported", c_void_p),
        ("stamp", c_void_p),
        ("reason", c_void_p),
        ("running", c_void_p),
    )


class Points(Structure):
    _fields_ = (
        ("count", c_int64),
        ("time", c_void_p),
        ("value", c_void_p),
        ("minus", c_void_p),
        ("chosen", c_void_p),
    )


class NodeClock(Structure):
    _fields_ = (
        ("first_ns", c_int64),
        ("offset_ns", c_int64),
        ("line", Lines),
    )


class Measures(Structure):
    _fields_ = (
        ("element_bits", c_void_p),
        ("counts_one_rank", c_void_p),
        ("ranks", c_void_p),
        ("communicators", c_int64),
        ("most_bytes", c_int64),
    )


FROM_U8, FROM_U16, FROM_U32, FROM_I32, FROM_U64 = range(5)
TO_I8, TO_I16, TO_I32, TO_I64 = range(4)
AS_NUMBER, AS_TIME, AS_KEY, AS_NAME, AS_FLAG, AS_ELAPSED = range(6)
VALID, REPAIRED, RECOVERED, REJECTED, MISSING = range(5)

# Result and arguments by name.
FUNCTIONS = {
    "ncclscope_abi_version": (c_uint64, ()),
    "ncclscope_scan": (c_int64, (c_void_p, c_int64, c_void_p, c_void_p, c_void_p)),
    "ncclscope_count_kinds": (None, (c_void_p, c_void_p)),
    "ncclscope_index": (None, (c_void_p, c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_apply_states": (None, (c_void_p, c_void_p, c_int64, c_void_p, c_int64)),
    "ncclscope_fields": (None, (c_void_p, c_int64, c_void_p, c_void_p)),
    "ncclscope_positions_of": (None, (c_void_p, c_int64, c_void_p, c_int64, c_void_p)),
    "ncclscope_sibling_before": (None, (c_void_p, c_void_p, c_void_p)),
    "ncclscope_is_identity": (c_int, (c_void_p, c_int64)),
    "ncclscope_coalesce": (None, (c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64)),
    "ncclscope_running_count": (c_int, (c_void_p, c_int64, c_void_p)),
    "ncclscope_factorize": (c_int64, (c_void_p, c_int64, c_void_p)),
    "ncclscope_mask_of": (None, (c_void_p, c_int64, c_void_p, c_int64)),
    "ncclscope_take_small": (None, (
        c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64,
    )),
    "ncclscope_union_lengths": (None, (
        c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64,
    )),
    "ncclscope_bound_at": (None, (c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_time_channels": (None, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "ncclscope_times_of_works": (None, (c_void_p, c_void_p, c_void_p)),
    "ncclscope_launches_of_channels": (c_int64, (
        c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p,
    )),
    "ncclscope_strands": (c_int64, (c_void_p, c_void_p)),
    "ncclscope_fitting": (c_int, (
        c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64, c_void_p,
    )),
    "ncclscope_best_of_bins": (c_int64, (c_void_p, c_int64, c_void_p, c_void_p, c_void_p)),
    "ncclscope_hull": (c_int64, (c_void_p, c_void_p, c_int64, c_void_p, c_void_p)),
    "ncclscope_to_reference": (None, (c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_sizes": (None, (
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p,
    )),
    "ncclscope_checksum": (None, (c_void_p, c_void_p, c_int64)),
}
