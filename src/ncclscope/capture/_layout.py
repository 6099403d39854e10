"""The capture format.

Made by tools/generate.py from native/include/ncclscope/format.h: do not edit.
"""

# fmt: off
MAGIC = b"\x89NCCLSC\n"
MAJOR = 1
MINOR = 4
ENDIAN = 4660
SLOT_BYTES = 64
MAX_HEADER_BYTES = 16384
CHUNK_SLOTS = 1024
META_SLOTS = 4096
TALLY_SLOTS = 1024
COUNTER_BYTES = 4096
COUNTER_EVENTS = 16
EVENT_KINDS = 16
INDEX_BITS = 37
STREAM_BITS = 11
HANDLE_BITS = 48
INDEX_MASK = 137438953471
CONTEXT_STREAM = 2047
CHAIN_STREAM = 2046
NO_COMM = 65535
TIME_BUCKETS = 256
TIME_BUCKETS_PER_OCTAVE = 8
TIME_FIRST_OCTAVE = 9
FILE_META = 1
FILE_LOG = 2
FILE_ARENA = 3
FILE_LIVE = 4
FILE_TALLY = 5
CLOCK_IS_TSC = 1
CLOCK_IS_CNTVCT = 2
CLOCK_IS_MONOTONIC = 3
FLAG_GRAPH = 1
FLAG_NUMBERS = 2
FLAG_EXT = 4
FLAG_SEND = 8
FLAG_RANK = 16
FLAG_RANK_IN = 32
FLAG_NO_STAMP = 64
FLAG_IN_GROUP = 128
STATE_FIRST = 1
STATE_SECOND = 2
STATE_THIRD = 4
STATE_RECV = 8
STATE_NOTED = 16
STATE_STOPPED = 128
COLL_IS_COLLNET = 1
COLL_IS_NVLS = 2
COLL_IS_SYMMETRIC = 4
STATE_IS_STOP = 65535
LEVEL_CALL = 1
LEVEL_WORK = 2
LEVEL_COPY_ENGINE = 3
TALLY_CAPTURED = 1
TALLY_NUMBERS = 2
TALLY_FOLDED = 128
TEXT_STRING = 1
TEXT_COMM_NAME = 2
TEXT_GPU_BUS_ID = 3
TEXT_NOTE = 4
TEXT_RANGE = 5
TEXT_DOMAIN = 6
TEXT_SCHEMA = 7
TEXT_CATEGORY = 8
RANGE_NVTX = 1
RANGE_RECORD_FUNCTION = 2
RANGE_ENGINE = 3
RANGE_MODULE = 4
RANGE_API = 5
PAYLOAD_NONE = 0
PAYLOAD_U64 = 1
PAYLOAD_I64 = 2
PAYLOAD_DOUBLE = 3
PAYLOAD_U32 = 4
PAYLOAD_I32 = 5
PAYLOAD_FLOAT = 6
PAYLOAD_SCHEMA = 7
PHASE_UNKNOWN = 0
PHASE_DATA = 1
PHASE_FORWARD = 2
PHASE_BACKWARD = 3
PHASE_OPTIMIZER = 4
MODES = {
    1: "profile", 2: "trace", 3: "full",
}
# Why an operation has no GPU time, in the order of Times.untimed.
UNTIMED = (
    "no kernel", "no stamp", "stale stamp", "suspect stamp", "some channels", "overrun",
    "not sampled", "launch not timed",
)
# Where GPU times come from.
GPU_TIMINGS = {
    1: "kernel", 2: "sampled", 3: "off", 4: "auto",
}
# Reasons of LaunchTime, EventClock and GraphReplays, by number.
TIMING_REASONS = (
    "", "captured into a graph", "capture began or ended during the launch",
    "all CUDA events in use", "CUDA error", "CUDA context without events",
    "too many CUDA errors before", "not finished when last looked at",
    "the driver lacks a function", "the GPU was busy", "switched off", "more than can be followed",
    "no marker kernel",
)
# Slot kinds by name.
KINDS = {
    "Group": 1, "Coll": 2, "P2p": 3, "ProxyOp": 4, "ProxyStep": 5, "ProxyCtrl": 6, "KernelCh": 7,
    "NetPlugin": 8, "GroupApi": 9, "CollApi": 10, "P2pApi": 11, "KernelLaunch": 12, "CeColl": 13,
    "CeSync": 14, "CeBatch": 15, "KernelPhase": 16, "CollExt": 32, "P2pExt": 33, "CeExt": 34,
    "State": 35, "Drop": 36, "Pad": 37, "Range": 38, "RangeText": 39, "LaunchTime": 40,
    "EventClock": 41, "GraphReplays": 42, "GraphCall": 43, "RangePayload": 44, "Block": 48,
    "Updates": 49, "Comm": 64, "CommEnd": 65, "Text": 66, "Sync": 67, "Count": 68, "End": 69,
    "Zoom": 70, "Tally": 80, "Tallies": 81, "Live": 96, "LiveComm": 97, "LiveOp": 98,
    "LiveEnd": 99, "LiveStep": 100,
}
# Counters by number.
COUNTERS = (
    "dropped_arena_full", "dropped_low_priority", "dropped_no_stream", "dropped_unknown_type",
    "updates_dropped", "handle_null", "handle_foreign", "handle_dead", "stop_repeated",
    "start_repeated", "context_foreign", "late_updates", "meta_dropped", "write_failed",
    "rotated_out", "slots_lost", "tally_folded", "tally_other", "launches_sampled",
    "launches_timed", "launches_captured", "launches_pool_empty", "launches_cuda_error",
    "launches_no_context", "launches_unfinished", "dropped_ranges", "range_texts_dropped",
)
# Fields in what 1.0 calls spare bytes, with the minor version that added each.
ADDED_FIELDS = {
    "LiveOp.peer": 1, "Group.send_buff": 3, "Group.recv_buff": 3, "GroupApi.bits": 4,
    "GroupApi.sample": 4, "KernelLaunch.sample": 4, "KernelLaunch.capture": 4,
    "Tally.next_sampled": 4, "Tally.next_sampled_sparse": 4, "Tally.chosen_group": 4,
    "Zoom.gpu_timing": 4, "GraphReplays.at_least": 4,
}
# Fields as in the schema. Of a slot's head, and of the file header:
HEAD = (
    "kind:u8 states:u8 chan:u8 flags:u8 check:u32"
)
HEADER = (
    "magic:char:8 endian:u16 major:u16 minor:u16 file_kind:u16 header_bytes:u32 "
    "slot_bytes:u32 schema_offset:u32 schema_bytes:u32 identity_offset:u32 identity_bytes:u32"
    " nonce:u64 clock_kind:u64 clock_hz:u64 start_ticks:u64 start_monotonic_ns:u64 "
    "start_realtime_ns:u64 pid:u32 segment:u32 counters_offset:u64 meta_offset:u64 "
    "meta_slots:u64 meta_drained:u64 tally_offset:u64 tally_slots:u64 chunks_offset:u64 "
    "chunk_slots:u64 chunk_count:u64 heartbeat_ns:u64"
)
# The schema that files carry.
SCHEMA = (
    "1 Group parent:u64 t0:u64 t1:u64 comm:u16 spare:u8:6 send_buff:u64 recv_buff:u64 "
    "spare2:u8:8\n"
    "2 Coll parent:u64 t0:u64 t1:u64 seq:u64 count:u64 func:u8 dtype:u8 algo:u8 proto:u8 "
    "channels:u8 warps:u8 variant:u8 bits:u8 root:i32 comm:u16 spare:u8:2\n"
    "3 P2p parent:u64 t0:u64 t1:u64 buff:u64 count:u64 parent_group:u64 func:u8 dtype:u8 "
    "comm:u16 peer:i32\n"
    "4 ProxyOp parent:u64 t0:u64 t1:u64 pid:i32 peer:i32 steps:i32 chunk_size:i32 "
    "t_in_progress:u64 comm:u16 ctx_nonce:u16 rank:i32\n"
    "5 ProxyStep parent:u64 t0:u64 t1:u64 step:i32 rank:i32 dt:u32:3 size:u32:3\n"
    "6 ProxyCtrl parent:u64 t0:u64 t1:u64 t_first:u64 t_second:u64 first:u8 second:u8 "
    "comm:u16 appended:i32 spare:u8:8\n"
    "7 KernelCh parent:u64 t0:u64 t1:u64 gpu_start:u64 gpu_stop:u64 t_stop:u64 comm:u16 "
    "spare:u8:6\n"
    "8 NetPlugin parent:u64 t0:u64 t1:u64 id:u32 rank:i32 wr_id:u64 length:u64 comm:u16 "
    "opcode:u8 device:u8 qp_or_fd:u32\n"
    "9 GroupApi parent:u64 t0:u64 t1:u64 t_start_done:u64 t_end_begins:u64 depth:i32 comm:u16"
    " bits:u16 sample:u32 spare:u8:4\n"
    "10 CollApi parent:u64 t0:u64 t1:u64 count:u64 stream:u64 tag:u64 func:u8 dtype:u8 "
    "comm:u16 root:i32\n"
    "11 P2pApi parent:u64 t0:u64 t1:u64 count:u64 stream:u64 tag:u64 func:u8 dtype:u8 "
    "comm:u16 root:i32\n"
    "12 KernelLaunch parent:u64 t0:u64 t1:u64 stream:u64 comm:u16 spare:u16 sample:u32 "
    "capture:u64 spare2:u8:8\n"
    "13 CeColl parent:u64 t0:u64 t1:u64 seq:u64 count:u64 func:u8 dtype:u8 sync:u8 spare:u8 "
    "comm:u16 spare2:u16 root:i32 ce_seq:u32\n"
    "14 CeSync parent:u64 t0:u64 t1:u64 ranks:i32 comm:u16 spare:u8:26\n"
    "15 CeBatch parent:u64 t0:u64 t1:u64 bytes:u64 ops:i32 comm:u16 spare:u8:18\n"
    "16 KernelPhase parent:u64 t0:u64 t1:u64 gpu_start:u64 gpu_stop:u64 t_stop:u64 comm:u16 "
    "phase:u8 name:u8 spare:u8:4\n"
    "32 CollExt parent_group:u64 send_buff:u64 recv_buff:u64 tag:u64 traffic_bytes:u64 "
    "comm_hash:u64 rank:i32 op:u32\n"
    "33 P2pExt tag:u64 comm_hash:u64 rank:i32 spare:u8:36\n"
    "34 CeExt send_buff:u64 recv_buff:u64 stream:u64 tag:u64 batch_size:u32 num_batches:u32 "
    "rank:i32 spare:u8:12\n"
    "35 State parent:u64 t0:u64 t1:u64 arg:u64 arg2:u64 state:u16 spare:u16 repeats:u32 "
    "steps:i32 spare2:u32\n"
    "36 Drop total:u64 t0:u64 t1:u64 api:u32 group:u32 coll:u32 p2p:u32 proxy_op:u32 "
    "proxy_step:u32 kernel:u32 other:u32\n"
    "37 Pad spare:u8:56\n"
    "38 Range parent:u64 t0:u64 t1:u64 payload:u64 payload2:u64 text:u32 category:u32 "
    "domain:u16 payload_type:u8 payload_bytes:u8 schema:u32\n"
    "39 RangeText text:char:56\n"
    "40 LaunchTime parent:u64 t0:u64 t1:u64 gpu_start_ns:u64 gpu_stop_ns:u64 comm:u16 "
    "clock:u16 reason:u8 spare:u8:11\n"
    "41 EventClock t0:u64 excess_median_ns:u64 excess_spread_ns:u64 excess_busy_ns:u32 "
    "excess_idle_ns:u32 clock:u16 comm:u16 calibrated:u8 reason:u8 samples:u16 gpu_uuid:u8:16\n"
    "42 GraphReplays capture:u64 replays:u64 t0:u64 gpu_last_ns:u64 marker:u32 comm:u16 "
    "reason:u8 at_least:u8 launches:u32 spare2:u8:12\n"
    "43 GraphCall capture:u64 count:u64 calls:u64 comm:u16 level:u8 func:u8 dtype:u8 algo:u8 "
    "proto:u8 bits:u8 spare:u8:24\n"
    "44 RangePayload parent:u64 t0:u64 schema:u32 bytes:u16 offset:u16 data:u8:32\n"
    "48 Block first:u64 stream:u32 count:u32 written:u64 tid:u32 thread_name:char:16 "
    "spare:u8:12\n"
    "49 Updates first:u64 stream:u32 count:u32 written:u64 tid:u32 thread_name:char:16 "
    "spare:u8:12\n"
    "64 Comm id:u64 t0:u64 comm:u16 version:u8 has_gpu:u8 rank:i32 ranks:i32 nodes:i32 "
    "tid:u32 mask:u32 gpu_uuid:u8:16\n"
    "65 CommEnd t0:u64 comm:u16 spare:u8:46\n"
    "66 Text what:u16 owner:u16 offset:u16 length:u16 text:char:48\n"
    "67 Sync ticks_before:u64 ticks_after:u64 monotonic_ns:u64 realtime_ns:u64 "
    "slots_written:u64 bytes_written:u64 spare:u64\n"
    "68 Count value:u64 t0:u64 counter:u16 event:u16 spare:u8:36\n"
    "69 End t0:u64 slots_written:u64 comms_open:u64 spare:u8:32\n"
    "70 Zoom t0:u64 events:u32 mode:u8 writes:u8 gpu_timing:u8 spare:u8:41\n"
    "80 Tally count:u64 calls:u64 count_sum:u64 comm:u16 level:u8 func:u8 dtype:u8 algo:u8 "
    "proto:u8 bits:u8 next_sampled:u64 next_sampled_sparse:u64 chosen_group:u64\n"
    "81 Tallies spare:u8:56\n"
    "96 Live serial:u64 monotonic_ns:u64 realtime_ns:u64 ticks:u64 dropped:u64 slots:u32 "
    "comms_open:u32 mode:u8 phase:u8 spare:u8:6\n"
    "97 LiveComm calls:u64 works:u64 done:u64 t_last_call:u64 t_last_done:u64 count:u64 "
    "comm:u16 func:u8 dtype:u8 root_or_peer:i32\n"
    "98 LiveOp handle:u64 t_call:u64 t_work:u64 count:u64 order:u64 comm:u16 func:u8 dtype:u8"
    " algo:u8 proto:u8 channels:u8 started:u8 stopped:u8 bits:u8 spare:u8:2 peer:i32\n"
    "99 LiveEnd serial:u64 monotonic_ns:u64 realtime_ns:u64 ticks:u64 dropped:u64 slots:u32 "
    "comms_open:u32 mode:u8 phase:u8 spare:u8:6\n"
    "100 LiveStep steps:u64 t_last:u64 last_ns:u64 tokens:u64 data_ns:u64 t_phase:u64 "
    "phase:u8 source:u8 spare:u8:2 text:u32\n"
    "times gpu_count:u64 gpu_sum_ns:u64 gpu_min_ns:u64 gpu_max_ns:u64 host_count:u64 "
    "host_sum_ns:u64 host_min_ns:u64 host_max_ns:u64 untimed:u64:8 gpu_histogram:u32:256 "
    "host_histogram:u32:256 event_count:u64 event_sum_ns:u64 event_min_ns:u64 "
    "event_max_ns:u64 event_grouped:u64 event_first_sum_ns:u64 event_first_buckets:u8:8 "
    "timing_off:u64 event_histogram:u32:256\n"
    "counters dropped_arena_full dropped_low_priority dropped_no_stream dropped_unknown_type "
    "updates_dropped handle_null handle_foreign handle_dead stop_repeated start_repeated "
    "context_foreign late_updates meta_dropped write_failed rotated_out slots_lost "
    "tally_folded tally_other launches_sampled launches_timed launches_captured "
    "launches_pool_empty launches_cuda_error launches_no_context launches_unfinished "
    "dropped_ranges range_texts_dropped\n"
)
