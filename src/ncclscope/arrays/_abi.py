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
VERSION = 0x7592BE482BB0BB5F


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


class Settled(Structure):
    _fields_ = (
        ("comms", c_int64),
        ("comm", c_void_p),
        ("reporting", c_void_p),
        ("counts", c_void_p),
        ("last", c_void_p),
        ("newest_stop_ns", c_void_p),
        ("room", c_int64),
        ("parent", c_void_p),
        ("took_ns", c_void_p),
        ("place", c_void_p),
        ("kernels", c_int64),
        ("newest_ns", c_int64),
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


class TimedOperations(Structure):
    _fields_ = (
        ("count", c_int64),
        ("calls_back", c_int64),
        ("rank", c_void_p),
        ("position", c_void_p),
        ("stream", c_void_p),
        ("launched_ns", c_void_p),
        ("last", c_void_p),
        ("events", c_void_p),
    )


class GapRules(Structure):
    _fields_ = (
        ("gaps_kept", c_int64),
        ("gpu_tolerance_ns", c_int64),
        ("host_tolerance_ns", c_int64),
        ("tight_ns", c_int64),
        ("late_launch_ns", c_int64),
        ("late_times", c_int64),
        ("long_call_ns", c_int64),
    )


class Bindings(Structure):
    _fields_ = (
        ("before", c_void_p),
        ("edge", c_void_p),
        ("back", c_void_p),
        ("on_stream", c_void_p),
    )


class EventGraph(Structure):
    _fields_ = (
        ("time_ns", c_void_p),
        ("before", c_void_p),
        ("usual_ns", c_void_p),
        ("blocked", c_void_p),
        ("origin", c_void_p),
    )


class Waits(Structure):
    _fields_ = (
        ("count", c_int64),
        ("early", c_void_p),
        ("late", c_void_p),
        ("wait_ns", c_void_p),
        ("early_rank", c_void_p),
        ("late_rank", c_void_p),
        ("ranks", c_int64),
    )


class Charges(Structure):
    _fields_ = (
        ("by_event", c_void_p),
        ("by_ranks", c_void_p),
        ("own_of_last", c_void_p),
        ("sums", c_void_p),
    )


class Replay(Structure):
    _fields_ = (
        ("length_ns", c_void_p),
        ("own_event", c_void_p),
        ("own_ns", c_void_p),
        ("start_after", c_void_p),
        ("call_after", c_void_p),
        ("least_gap_ns", c_void_p),
        ("least_launch_ns", c_void_p),
        ("meeting", c_void_p),
        ("arrived", c_void_p),
        ("partner_first", c_void_p),
        ("partner", c_void_p),
    )


FROM_U8, FROM_U16, FROM_U32, FROM_I32, FROM_U64 = range(5)
TO_I8, TO_I16, TO_I32, TO_I64 = range(4)
AS_NUMBER, AS_TIME, AS_KEY, AS_NAME, AS_FLAG, AS_ELAPSED = range(6)
VALID, REPAIRED, RECOVERED, REJECTED, MISSING = range(5)
AFTER_ON_GPU, AFTER_ON_HOST = range(2)
BLOCKED_NOT, BLOCKED_BEHIND, BLOCKED_OVERLAPPED = range(3)
EVENT_CALL, EVENT_START, EVENT_END = range(3)
EDGE_ROOT, EDGE_LAUNCH, EDGE_GPU, EDGE_HOST, EDGE_HOST_AFTER_SYNC, EDGE_TRANSFER = range(6)
CHARGED_STRUCTURE, CHARGED_QUICKER, CHARGED_UNKNOWN = range(3)
SETTLED_COLL_API, SETTLED_P2P_API, SETTLED_COLL, SETTLED_P2P = range(4)
REPORTS_NOTHING, REPORTS_FULLY, REPORTS_PARTLY = range(3)

# Result and arguments by name.
FUNCTIONS = {
    "ncclscope_abi_version": (c_uint64, ()),
    "ncclscope_guard_mapped_files": (c_int, ()),
    "ncclscope_pages_lost": (c_int64, ()),
    "ncclscope_scan": (c_int64, (c_void_p, c_int64, c_void_p, c_void_p, c_void_p)),
    "ncclscope_count_kinds": (None, (c_void_p, c_void_p)),
    "ncclscope_index": (None, (c_void_p, c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_apply_states": (None, (c_void_p, c_void_p, c_int64, c_void_p, c_int64)),
    "ncclscope_settle": (c_int, (c_void_p, c_void_p, c_void_p)),
    "ncclscope_settle_segment": (c_int, (
        c_void_p, c_int64, c_uint64, c_uint64, c_void_p, c_void_p,
    )),
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
    "ncclscope_call_contexts": (None, (c_void_p, c_void_p, c_int64, c_int64, c_void_p)),
    "ncclscope_last_arrivals": (None, (c_void_p, c_void_p, c_int64, c_void_p, c_int64)),
    "ncclscope_count_gaps": (None, (
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    )),
    "ncclscope_bind": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
    "ncclscope_charge_waits": (c_int, (c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_path_back": (c_int64, (
        c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p,
    )),
    "ncclscope_direct_dependencies": (None, (
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    )),
    "ncclscope_replay": (None, (
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    )),
    "ncclscope_to_reference": (None, (c_void_p, c_void_p, c_int64, c_void_p)),
    "ncclscope_sizes": (None, (
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p,
    )),
    "ncclscope_checksum": (None, (c_void_p, c_void_p, c_int64)),
}
