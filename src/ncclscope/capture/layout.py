"""Mirror of native/include/ncclscope/format.h: slot kinds, their fields, the bits in a slot's head.

Every file carries its own schema, so that a reader finds the fields of a file written by a newer
minor version. The schema here is this release's; a test holds it against the C structs. Standard
library only: `run` needs the numbers.
"""

MAJOR, MINOR = 1, 3
SLOT_BYTES = 64
EVENT_KINDS = 16
INDEX_BITS = 37
STREAM_BITS = 11
INDEX_MASK = (1 << INDEX_BITS) - 1
CONTEXT_STREAM = (1 << STREAM_BITS) - 1
NO_COMM = 0xFFFF

FLAG_GRAPH = 1
FLAG_NUMBERS = 2
FLAG_EXT = 4
FLAG_SEND = 8
FLAG_RANK = 0x10
FLAG_RANK_IN = 0x20
FLAG_NO_STAMP = 0x40
FLAG_IN_GROUP = 0x80
STATE_FIRST, STATE_SECOND, STATE_THIRD = 1, 2, 4
STATE_RECV = 8
STATE_NOTED = 0x10
STATE_STOPPED = 0x80
COLL_IS_COLLNET, COLL_IS_NVLS, COLL_IS_SYMMETRIC = 1, 2, 4
STATE_IS_STOP = 0xFFFF
TEXT_STRING, TEXT_COMM_NAME, TEXT_GPU_BUS_ID, TEXT_NOTE = 1, 2, 3, 4
NET_IB, NET_SOCKET = 0x10001, 0x20001
FILE_META, FILE_LOG, FILE_ARENA, FILE_LIVE, FILE_TALLY = 1, 2, 3, 4, 5
MODES = {1: "profile", 2: "trace", 3: "full"}
LEVEL_CALL, LEVEL_WORK, LEVEL_COPY_ENGINE = 1, 2, 3
TALLY_CAPTURED, TALLY_NUMBERS, TALLY_FOLDED = 1, 2, 0x80
TIME_BUCKETS = 256
TIME_BUCKETS_PER_OCTAVE = 8
TIME_FIRST_OCTAVE = 9
# Why an operation has no GPU time, in the order of Times.untimed.
UNTIMED = ("no kernel", "no stamp", "stale stamp", "suspect stamp", "some channels", "overrun")

SCHEMA = """\
1 Group parent:u64 t0:u64 t1:u64 comm:u16 spare:u8:6 send_buff:u64 recv_buff:u64 spare2:u8:8
2 Coll parent:u64 t0:u64 t1:u64 seq:u64 count:u64 func:u8 dtype:u8 algo:u8 proto:u8 channels:u8 warps:u8 \
variant:u8 bits:u8 root:i32 comm:u16 spare:u8:2
3 P2p parent:u64 t0:u64 t1:u64 buff:u64 count:u64 parent_group:u64 func:u8 dtype:u8 comm:u16 peer:i32
4 ProxyOp parent:u64 t0:u64 t1:u64 pid:i32 peer:i32 steps:i32 chunk_size:i32 t_in_progress:u64 comm:u16 \
ctx_nonce:u16 rank:i32
5 ProxyStep parent:u64 t0:u64 t1:u64 step:i32 rank:i32 dt:u32:3 size:u32:3
6 ProxyCtrl parent:u64 t0:u64 t1:u64 t_first:u64 t_second:u64 first:u8 second:u8 comm:u16 appended:i32 spare:u8:8
7 KernelCh parent:u64 t0:u64 t1:u64 gpu_start:u64 gpu_stop:u64 t_stop:u64 comm:u16 spare:u8:6
8 NetPlugin parent:u64 t0:u64 t1:u64 id:u32 rank:i32 wr_id:u64 length:u64 comm:u16 opcode:u8 device:u8 qp_or_fd:u32
9 GroupApi parent:u64 t0:u64 t1:u64 t_start_done:u64 t_end_begins:u64 depth:i32 comm:u16 spare:u8:10
10 CollApi parent:u64 t0:u64 t1:u64 count:u64 stream:u64 tag:u64 func:u8 dtype:u8 comm:u16 root:i32
11 P2pApi parent:u64 t0:u64 t1:u64 count:u64 stream:u64 tag:u64 func:u8 dtype:u8 comm:u16 root:i32
12 KernelLaunch parent:u64 t0:u64 t1:u64 stream:u64 comm:u16 spare:u8:22
13 CeColl parent:u64 t0:u64 t1:u64 seq:u64 count:u64 func:u8 dtype:u8 sync:u8 spare:u8 comm:u16 spare2:u16 \
root:i32 ce_seq:u32
14 CeSync parent:u64 t0:u64 t1:u64 ranks:i32 comm:u16 spare:u8:26
15 CeBatch parent:u64 t0:u64 t1:u64 bytes:u64 ops:i32 comm:u16 spare:u8:18
16 KernelPhase parent:u64 t0:u64 t1:u64 gpu_start:u64 gpu_stop:u64 t_stop:u64 comm:u16 phase:u8 name:u8 spare:u8:4
32 CollExt parent_group:u64 send_buff:u64 recv_buff:u64 tag:u64 traffic_bytes:u64 comm_hash:u64 rank:i32 op:u32
33 P2pExt tag:u64 comm_hash:u64 rank:i32 spare:u8:36
34 CeExt send_buff:u64 recv_buff:u64 stream:u64 tag:u64 batch_size:u32 num_batches:u32 rank:i32 spare:u8:12
35 State parent:u64 t0:u64 t1:u64 arg:u64 arg2:u64 state:u16 spare:u16 repeats:u32 steps:i32 spare2:u32
36 Drop total:u64 t0:u64 t1:u64 api:u32 group:u32 coll:u32 p2p:u32 proxy_op:u32 proxy_step:u32 kernel:u32 other:u32
37 Pad spare:u8:56
48 Block first:u64 stream:u32 count:u32 written:u64 tid:u32 thread_name:char:16 spare:u8:12
49 Updates first:u64 stream:u32 count:u32 written:u64 tid:u32 thread_name:char:16 spare:u8:12
64 Comm id:u64 t0:u64 comm:u16 version:u8 has_gpu:u8 rank:i32 ranks:i32 nodes:i32 tid:u32 mask:u32 gpu_uuid:u8:16
65 CommEnd t0:u64 comm:u16 spare:u8:46
66 Text what:u16 owner:u16 offset:u16 length:u16 text:char:48
67 Sync ticks_before:u64 ticks_after:u64 monotonic_ns:u64 realtime_ns:u64 slots_written:u64 bytes_written:u64 spare:u64
68 Count value:u64 t0:u64 counter:u16 event:u16 spare:u8:36
69 End t0:u64 slots_written:u64 comms_open:u64 spare:u8:32
70 Zoom t0:u64 events:u32 mode:u8 writes:u8 spare:u8:42
80 Tally count:u64 calls:u64 count_sum:u64 comm:u16 level:u8 func:u8 dtype:u8 algo:u8 proto:u8 bits:u8 spare:u8:24
81 Tallies spare:u8:56
96 Live serial:u64 monotonic_ns:u64 realtime_ns:u64 ticks:u64 dropped:u64 slots:u32 comms_open:u32 mode:u8 phase:u8 spare:u8:6
97 LiveComm calls:u64 works:u64 done:u64 t_last_call:u64 t_last_done:u64 count:u64 comm:u16 func:u8 dtype:u8 root_or_peer:i32
98 LiveOp handle:u64 t_call:u64 t_work:u64 count:u64 order:u64 comm:u16 func:u8 dtype:u8 algo:u8 proto:u8 channels:u8 started:u8 stopped:u8 bits:u8 spare:u8:2 peer:i32
99 LiveEnd serial:u64 monotonic_ns:u64 realtime_ns:u64 ticks:u64 dropped:u64 slots:u32 comms_open:u32 mode:u8 phase:u8 spare:u8:6
times gpu_count:u64 gpu_sum_ns:u64 gpu_min_ns:u64 gpu_max_ns:u64 host_count:u64 host_sum_ns:u64 host_min_ns:u64 host_max_ns:u64 \
untimed:u64:8 gpu_histogram:u32:256 host_histogram:u32:256
counters dropped_arena_full dropped_low_priority dropped_no_stream dropped_unknown_type updates_dropped handle_null \
handle_foreign handle_dead stop_repeated start_repeated context_foreign late_updates meta_dropped \
write_failed rotated_out slots_lost tally_folded tally_other
"""

# Fields in what 1.0 calls spare bytes, with the minor version that added each.
ADDED_FIELDS = {"LiveOp.peer": 1, "Group.send_buff": 3, "Group.recv_buff": 3}
# Slot kinds by name.
KINDS = {
    words[1]: int(words[0])
    for words in (line.split(" ") for line in SCHEMA.splitlines())
    if words[0].isdigit()
}
COUNTERS = tuple(SCHEMA.splitlines()[-1].split(" ")[1:])
