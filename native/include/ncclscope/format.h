// The capture format: every byte that the plugin stores is declared here once. docs/format.md
// explains it. It is one file of more than 400 lines on purpose: who reads or changes the format
// has all of it in one place, lists before what is made of them.
//
// All lists are X-macros. They make the C structs and enums, the asserts below, the schema text
// that every file carries, and through `ncclscope-player layout` and tools/generate.py Python's
// declarations (capture/_layout.py) and the tables of docs/format.md. After a change run
// `make generate`. Little endian, 64-byte slots, fields at their natural alignment.
#ifndef NCCLSCOPE_FORMAT_H
#define NCCLSCOPE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

// Minor versions add kinds or use spare bytes: older readers skip them. A major version may change
// anything.
#define FORMAT_MAJOR 1
#define FORMAT_MINOR 4
#define FORMAT_ENDIAN 0x1234
#define FORMAT_MAGIC "\x89NCCLSC\n"

#define SLOT_BYTES 64
// File header, schema and identity text: this much in an arena, as much as they need elsewhere.
#define MAX_HEADER_BYTES 16384
#define CHUNK_SLOTS_LOG2 10
#define CHUNK_SLOTS (1u << CHUNK_SLOTS_LOG2)  // slot 0 of a chunk is its Block slot
#define CHUNK_BYTES (CHUNK_SLOTS * SLOT_BYTES)
#define META_SLOTS 4096u    // ring of metadata slots inside an arena
#define TALLY_SLOTS 1024u   // table of call counts inside an arena, besides the streams' own
#define COUNTER_BYTES 4096  // page of counters inside an arena
#define COUNTER_EVENTS 16   // columns of that page; later events count in column 0
#define EVENT_KINDS 16      // kinds 1 to 16 are events

// Handles and parents: nonce16 (top bit set) | stream11 | index37. Contexts use the stream number
// CONTEXT_STREAM, events that only a chained profiler has use CHAIN_STREAM.
#define INDEX_BITS 37
#define STREAM_BITS 11
#define HANDLE_BITS (STREAM_BITS + INDEX_BITS)  // below the nonce
#define INDEX_MASK ((1ull << INDEX_BITS) - 1)
#define CONTEXT_STREAM ((1u << STREAM_BITS) - 1)
#define CHAIN_STREAM (CONTEXT_STREAM - 1)
#define MAX_STREAMS CHAIN_STREAM
// comm of an event whose context is not this process's, or past the 65535th communicator.
#define NO_COMM 0xFFFFu

// Histograms of times: time_buckets.h derives everything else from these.
#define TIME_BUCKETS 256
#define TIME_BUCKETS_PER_OCTAVE 8
#define TIME_FIRST_OCTAVE 9

// clang-format off
// The numbers above that readers need.
#define FORMAT_NUMBERS(N)                                                                   \
    N(FORMAT_MAJOR) N(FORMAT_MINOR) N(FORMAT_ENDIAN) N(SLOT_BYTES) N(MAX_HEADER_BYTES)      \
    N(CHUNK_SLOTS) N(META_SLOTS) N(TALLY_SLOTS) N(COUNTER_BYTES) N(COUNTER_EVENTS)          \
    N(EVENT_KINDS) N(INDEX_BITS) N(STREAM_BITS) N(HANDLE_BITS) N(INDEX_MASK)                \
    N(CONTEXT_STREAM) N(CHAIN_STREAM) N(NO_COMM) N(TIME_BUCKETS) N(TIME_BUCKETS_PER_OCTAVE) \
    N(TIME_FIRST_OCTAVE)

// ---- Constants: C(name, value). ----

#define FILE_KINDS(C) \
    C(FILE_META, 1) C(FILE_LOG, 2) C(FILE_ARENA, 3) C(FILE_LIVE, 4) C(FILE_TALLY, 5)
#define CLOCK_KINDS(C) C(CLOCK_IS_TSC, 1) C(CLOCK_IS_CNTVCT, 2) C(CLOCK_IS_MONOTONIC, 3)

#define HEAD_FLAGS(C)                                                                              \
    C(FLAG_GRAPH, 0x01)     /* graphCaptured */                                                    \
    C(FLAG_NUMBERS, 0x02)   /* func, dtype, algo, proto are v1's numbers, not string ids */        \
    C(FLAG_EXT, 0x04)       /* the next slot extends this one */                                   \
    C(FLAG_SEND, 0x08)      /* ProxyOp isSend; CeColl, CeBatch: intra sync; CeSync isComplete; */  \
                            /* Range: started and ended by number, not nested */                   \
    C(FLAG_RANK, 0x10)      /* the descriptor's rank is the communicator's; without it, 0 */       \
    C(FLAG_RANK_IN, 0x20)   /* the descriptor's rank is in this slot or its extension */           \
    C(FLAG_NO_STAMP, 0x40)  /* KernelCh of an interface without GPU times */                       \
    C(FLAG_IN_GROUP, 0x80)  /* Coll: the slot before is its Group, and serves as its extension */

// Which in-place fields are valid; docs/format.md lists the states of each kind.
#define HEAD_STATES(C)                                                                             \
    C(STATE_FIRST, 0x01)    /* the kind's first state; Group: has buffers; Range: is a mark */     \
    C(STATE_SECOND, 0x02)                                                                          \
    C(STATE_THIRD, 0x04)                                                                           \
    C(STATE_RECV, 0x08)     /* ProxyStep: states are RecvWait, RecvFlushWait, RecvGPUWait */       \
    C(STATE_NOTED, 0x10)    /* ProxyStep: SendPeerWait repeats; t1 is the handle of its State slot. \
                               KernelLaunch, GroupApi: chosen to be timed by CUDA events */        \
    C(STATE_STOPPED, 0x80)

#define COLL_BITS(C) C(COLL_IS_COLLNET, 1) C(COLL_IS_NVLS, 2) C(COLL_IS_SYMMETRIC, 4)
#define STATE_NUMBERS(C) C(STATE_IS_STOP, 0xFFFF)  /* State.state of a stop */
#define TALLY_LEVELS(C) C(LEVEL_CALL, 1) C(LEVEL_WORK, 2) C(LEVEL_COPY_ENGINE, 3)
#define TALLY_BITS(C) C(TALLY_CAPTURED, 0x01) C(TALLY_NUMBERS, 0x02) C(TALLY_FOLDED, 0x80)
#define TEXT_KINDS(C)                                                                          \
    C(TEXT_STRING, 1) C(TEXT_COMM_NAME, 2) C(TEXT_GPU_BUS_ID, 3) C(TEXT_NOTE, 4)               \
    C(TEXT_RANGE, 5) C(TEXT_DOMAIN, 6) C(TEXT_SCHEMA, 7) C(TEXT_CATEGORY, 8)
// Who says a range: `chan` of a Range.
#define RANGE_SOURCES(C)                                                                           \
    C(RANGE_NVTX, 1) C(RANGE_RECORD_FUNCTION, 2) C(RANGE_ENGINE, 3) C(RANGE_MODULE, 4) C(RANGE_API, 5)
// Range.payload_type; 1 to 6 as NVTX numbers them.
#define RANGE_PAYLOADS(C)                                                                          \
    C(PAYLOAD_NONE, 0) C(PAYLOAD_U64, 1) C(PAYLOAD_I64, 2) C(PAYLOAD_DOUBLE, 3) C(PAYLOAD_U32, 4)  \
    C(PAYLOAD_I32, 5) C(PAYLOAD_FLOAT, 6) C(PAYLOAD_SCHEMA, 7)
// LiveStep.phase: what the training loop was doing last.
#define LIVE_PHASES(C)                                                                             \
    C(PHASE_UNKNOWN, 0) C(PHASE_DATA, 1) C(PHASE_FORWARD, 2) C(PHASE_BACKWARD, 3) C(PHASE_OPTIMIZER, 4)

#define FORMAT_CONSTANTS(C)                                                            \
    FILE_KINDS(C) CLOCK_KINDS(C) HEAD_FLAGS(C) HEAD_STATES(C) COLL_BITS(C)             \
    STATE_NUMBERS(C) TALLY_LEVELS(C) TALLY_BITS(C) TEXT_KINDS(C) RANGE_SOURCES(C)      \
    RANGE_PAYLOADS(C) LIVE_PHASES(C)

// M(number, constant, name): what is recorded.
#define MODES(M) M(1, PROFILE, profile) M(2, TRACE, trace) M(3, FULL, full)

// M(number, constant, name): where GPU times come from.
#define GPU_TIMINGS(M)                                                                              \
    M(1, KERNEL, kernel)    /* KernelCh of every operation */                                       \
    M(2, SAMPLED, sampled)  /* a share, by CUDA events around launches */                           \
    M(3, OFF, off)                                                                                  \
    M(4, AUTO, auto)        /* never in force: one of the others is */

// R(constant, name): why a launch that was to be timed was not, why a clock is not calibrated, or
// why a graph's replays are not counted; by number. The first means nothing is amiss.
#define TIMING_REASONS(R)                                                                           \
    R(FINE, "")                                                                                     \
    R(CAPTURED, "captured into a graph")                                                            \
    R(CAPTURE_BEGAN, "capture began or ended during the launch")                                    \
    R(POOL_EMPTY, "all CUDA events in use")                                                         \
    R(CUDA_ERROR, "CUDA error")                                                                     \
    R(UNKNOWN_CONTEXT, "CUDA context without events")                                               \
    R(GIVEN_UP, "too many CUDA errors before")                                                      \
    R(UNFINISHED, "not finished when last looked at")                                               \
    R(NO_FUNCTION, "the driver lacks a function")                                                   \
    R(GPU_BUSY, "the GPU was busy")                                                                 \
    R(SWITCHED_OFF, "switched off")                                                                 \
    R(NO_ROOM, "more than can be followed")                                                         \
    R(NO_MARKER, "no marker kernel")

// U(constant, name): why an operation has no GPU time, by place in Times.untimed.
#define UNTIMED_REASONS(U)                                                                          \
    U(NO_KERNEL, "no kernel")       /* NCCL reported no kernel for it */                            \
    U(NO_STAMP, "no stamp")         /* an interface without GPU times */                            \
    U(STALE, "stale stamp")         /* the stamps are those of an earlier operation */              \
    U(SUSPECT, "suspect stamp")     /* stop before start, or before the work before it */           \
    U(PARTIAL, "some channels")     /* some channels were never reported */                         \
    U(OVERRUN, "overrun")           /* more operations in flight than the recorder can follow */    \
    U(NOT_SAMPLED, "not sampled")   /* sampling chose others */                                     \
    U(LAUNCH, "launch not timed")   /* chosen, but its launch could not be timed */
// clang-format on

#define AS_CONSTANT(name, value) name = value,
enum file_kind { FILE_KINDS(AS_CONSTANT) };
enum clock_kind { CLOCK_KINDS(AS_CONSTANT) };
enum tally_level { TALLY_LEVELS(AS_CONSTANT) };
enum text_owner { TEXT_KINDS(AS_CONSTANT) };
enum range_source { RANGE_SOURCES(AS_CONSTANT) };
enum range_payload { RANGE_PAYLOADS(AS_CONSTANT) };
enum live_phase { LIVE_PHASES(AS_CONSTANT) };
enum {
    HEAD_FLAGS(AS_CONSTANT) HEAD_STATES(AS_CONSTANT) COLL_BITS(AS_CONSTANT)
        STATE_NUMBERS(AS_CONSTANT) TALLY_BITS(AS_CONSTANT)
};
#undef AS_CONSTANT
#define AS_MODE(number, constant, name) MODE_##constant = number,
enum mode { MODES(AS_MODE) };
#undef AS_MODE
#define AS_TIMING(number, constant, name) GPU_TIMING_##constant = number,
enum gpu_timing { GPU_TIMINGS(AS_TIMING) };
#undef AS_TIMING
#define AS_REASON(constant, name) UNTIMED_##constant,
enum untimed { UNTIMED_REASONS(AS_REASON) };
#undef AS_REASON
#define AS_REASON(constant, name) TIMING_##constant,
enum timing_reason { TIMING_REASONS(AS_REASON) TIMING_REASON_COUNT };
#undef AS_REASON

// clang-format off
// ---- Field lists: F(type, name) is a scalar, A(type, name, length) an array. ----

#define HEAD_FIELDS(F, A) F(u8, kind) F(u8, states) F(u8, chan) F(u8, flags) F(u32, check)
#define SPAN_FIELDS(F, A) F(u64, parent) F(u64, t0) F(u64, t1)

// The buffers are those of the Coll right after it (FLAG_IN_GROUP).
#define GROUP_FIELDS(F, A) \
    SPAN_FIELDS(F, A) F(u16, comm) A(u8, spare, 6) F(u64, send_buff) F(u64, recv_buff) A(u8, spare2, 8)
#define COLL_FIELDS(F, A)                                                             \
    SPAN_FIELDS(F, A) F(u64, seq) F(u64, count) F(u8, func) F(u8, dtype) F(u8, algo)  \
    F(u8, proto) F(u8, channels) F(u8, warps) F(u8, variant) F(u8, bits) F(i32, root) \
    F(u16, comm) A(u8, spare, 2)
#define P2P_FIELDS(F, A)                                                                       \
    SPAN_FIELDS(F, A) F(u64, buff) F(u64, count) F(u64, parent_group) F(u8, func) F(u8, dtype) \
    F(u16, comm) F(i32, peer)
#define PROXY_OP_FIELDS(F, A)                                                   \
    SPAN_FIELDS(F, A) F(i32, pid) F(i32, peer) F(i32, steps) F(i32, chunk_size) \
    F(u64, t_in_progress) F(u16, comm) F(u16, ctx_nonce) F(i32, rank)
#define PROXY_STEP_FIELDS(F, A) \
    SPAN_FIELDS(F, A) F(i32, step) F(i32, rank) A(u32, dt, 3) A(u32, size, 3)
#define PROXY_CTRL_FIELDS(F, A)                                                                \
    SPAN_FIELDS(F, A) F(u64, t_first) F(u64, t_second) F(u8, first) F(u8, second) F(u16, comm) \
    F(i32, appended) A(u8, spare, 8)
#define KERNEL_CH_FIELDS(F, A)                                                       \
    SPAN_FIELDS(F, A) F(u64, gpu_start) F(u64, gpu_stop) F(u64, t_stop) F(u16, comm) \
    A(u8, spare, 6)
// Of an id that is not known, data is not read and wr_id repeats the whole id.
#define NET_FIELDS(F, A)                                                                \
    SPAN_FIELDS(F, A) F(u32, id) F(i32, rank) F(u64, wr_id) F(u64, length) F(u16, comm) \
    F(u8, opcode) F(u8, device) F(u32, qp_or_fd)
// bits and sample are the recorder's.
#define GROUP_API_FIELDS(F, A)                                                             \
    SPAN_FIELDS(F, A) F(u64, t_start_done) F(u64, t_end_begins) F(i32, depth) F(u16, comm) \
    F(u16, bits) F(u32, sample) A(u8, spare, 4)
#define CALL_FIELDS(F, A)                                                               \
    SPAN_FIELDS(F, A) F(u64, count) F(u64, stream) F(u64, tag) F(u8, func) F(u8, dtype) \
    F(u16, comm) F(i32, root)
// capture: the graph capture that took the launch, valid with FLAG_GRAPH. sample is the recorder's.
#define KERNEL_LAUNCH_FIELDS(F, A)                                                             \
    SPAN_FIELDS(F, A) F(u64, stream) F(u16, comm) F(u16, spare) F(u32, sample) F(u64, capture) \
    A(u8, spare2, 8)
#define CE_COLL_FIELDS(F, A)                                                         \
    SPAN_FIELDS(F, A) F(u64, seq) F(u64, count) F(u8, func) F(u8, dtype) F(u8, sync) \
    F(u8, spare) F(u16, comm) F(u16, spare2) F(i32, root) F(u32, ce_seq)
#define CE_SYNC_FIELDS(F, A) SPAN_FIELDS(F, A) F(i32, ranks) F(u16, comm) A(u8, spare, 26)
#define CE_BATCH_FIELDS(F, A) \
    SPAN_FIELDS(F, A) F(u64, bytes) F(i32, ops) F(u16, comm) A(u8, spare, 18)
#define KERNEL_PHASE_FIELDS(F, A)                                                    \
    SPAN_FIELDS(F, A) F(u64, gpu_start) F(u64, gpu_stop) F(u64, t_stop) F(u16, comm) \
    F(u8, phase) F(u8, name) A(u8, spare, 4)

// What does not fit a main slot stands in the slot right after it (FLAG_EXT).
#define COLL_EXT_FIELDS(F, A)                                                                  \
    F(u64, parent_group) F(u64, send_buff) F(u64, recv_buff) F(u64, tag) F(u64, traffic_bytes) \
    F(u64, comm_hash) F(i32, rank) F(u32, op)
#define P2P_EXT_FIELDS(F, A) F(u64, tag) F(u64, comm_hash) F(i32, rank) A(u8, spare, 36)
#define CE_EXT_FIELDS(F, A)                                                           \
    F(u64, send_buff) F(u64, recv_buff) F(u64, stream) F(u64, tag) F(u32, batch_size) \
    F(u32, num_batches) F(i32, rank) A(u8, spare, 12)

// An update that could not be stored into its event's own slot; parent is that event, t1 the last
// of `repeats` times.
#define STATE_FIELDS(F, A)                                                                 \
    SPAN_FIELDS(F, A) F(u64, arg) F(u64, arg2) F(u16, state) F(u16, spare) F(u32, repeats) \
    F(i32, steps) F(u32, spare2)
// Events lost between t0 and t1 by this stream, by class; exact totals by type are counters.
#define DROP_FIELDS(F, A)                                                                  \
    F(u64, total) F(u64, t0) F(u64, t1) F(u32, api) F(u32, group) F(u32, coll) F(u32, p2p) \
    F(u32, proxy_op) F(u32, proxy_step) F(u32, kernel) F(u32, other)
#define PAD_FIELDS(F, A) A(u8, spare, 56)
// The GPU time of a launch, between two CUDA events: parent is its KernelLaunch, or its GroupApi
// where NCCL reports no launch. t0: before the first event was recorded; t1: when the second was
// seen to be over. reason (TIMING_REASONS): why there is no time; else 0.
#define LAUNCH_TIME_FIELDS(F, A)                                                          \
    SPAN_FIELDS(F, A) F(u64, gpu_start_ns) F(u64, gpu_stop_ns) F(u16, comm) F(u16, clock) \
    F(u8, reason) A(u8, spare, 11)
// What the program says it is doing: begun at t0, ended at t1, inside the range `parent`.
#define RANGE_FIELDS(F, A)                                                                \
    SPAN_FIELDS(F, A) F(u64, payload) F(u64, payload2) F(u32, text) F(u32, category)      \
    F(u16, domain) F(u8, payload_type) F(u8, payload_bytes) F(u32, schema)
// The text of a Range that found no place in the table of texts.
#define RANGE_TEXT_FIELDS(F, A) A(char, text, 56)
// A piece of a range's payload that does not fit its slot.
#define RANGE_PAYLOAD_FIELDS(F, A)                                                        \
    F(u64, parent) F(u64, t0) F(u32, schema) F(u16, bytes) F(u16, offset) A(u8, data, 32)

// Starts `count` slots of one stream (0 in an arena: as many as are committed), all of one thread;
// updates repeat slots written before.
#define BLOCK_FIELDS(F, A)                                                 \
    F(u64, first) F(u32, stream) F(u32, count) F(u64, written) F(u32, tid) \
    A(char, thread_name, 16) A(u8, spare, 12)

// ---- Metadata, in the order of `check`. ----
#define COMM_FIELDS(F, A)                                                         \
    F(u64, id) F(u64, t0) F(u16, comm) F(u8, version) F(u8, has_gpu) F(i32, rank) \
    F(i32, ranks) F(i32, nodes) F(u32, tid) F(u32, mask) A(u8, gpu_uuid, 16)
#define COMM_END_FIELDS(F, A) F(u64, t0) F(u16, comm) A(u8, spare, 46)
#define TEXT_FIELDS(F, A) F(u16, what) F(u16, owner) F(u16, offset) F(u16, length) A(char, text, 48)
#define SYNC_FIELDS(F, A)                                                             \
    F(u64, ticks_before) F(u64, ticks_after) F(u64, monotonic_ns) F(u64, realtime_ns) \
    F(u64, slots_written) F(u64, bytes_written) F(u64, spare)
#define COUNT_FIELDS(F, A) F(u64, value) F(u64, t0) F(u16, counter) F(u16, event) A(u8, spare, 36)
#define ZOOM_FIELDS(F, A) \
    F(u64, t0) F(u32, events) F(u8, mode) F(u8, writes) F(u8, gpu_timing) A(u8, spare, 41)
// The clock of LaunchTime: ns since a CUDA event of one context. excess: how much longer the time
// between two events is than that of the kernel between them, measured with marker kernels.
#define EVENT_CLOCK_FIELDS(F, A)                                                        \
    F(u64, t0) F(u64, excess_median_ns) F(u64, excess_spread_ns) F(u32, excess_busy_ns) \
    F(u32, excess_idle_ns) F(u16, clock) F(u16, comm) F(u8, calibrated) F(u8, reason)   \
    F(u16, samples) A(u8, gpu_uuid, 16)
// Replays of the graph that a capture became, as its marker kernel counts them; the last one of a
// capture holds. reason (TIMING_REASONS): why they are not counted; else 0. at_least: the GPU may have
// counted more.
#define GRAPH_REPLAYS_FIELDS(F, A)                                                             \
    F(u64, capture) F(u64, replays) F(u64, t0) F(u64, gpu_last_ns) F(u32, marker) F(u16, comm) \
    F(u8, reason) F(u8, at_least) F(u32, launches) A(u8, spare2, 12)
// How many calls of a key a capture took; the last one of a key holds.
#define GRAPH_CALL_FIELDS(F, A)                                                       \
    F(u64, capture) F(u64, count) F(u64, calls) F(u16, comm) F(u8, level) F(u8, func) \
    F(u8, dtype) F(u8, algo) F(u8, proto) F(u8, bits) A(u8, spare, 24)
#define END_FIELDS(F, A) F(u64, t0) F(u64, slots_written) F(u64, comms_open) A(u8, spare, 32)

// ---- Counts by key, exact whatever is dropped; in the arena and, with times, in the tally file. ----
#define TALLY_FIELDS(F, A)                                                              \
    F(u64, count) F(u64, calls) F(u64, count_sum) F(u16, comm) F(u8, level) F(u8, func) \
    F(u8, dtype) F(u8, algo) F(u8, proto) F(u8, bits) F(u64, next_sampled) \
    F(u64, next_sampled_sparse) F(u64, chosen_group)
// What is known about the time of a key's operations; follows its Tally slot in the tally file.
// Buckets: TIME_BUCKETS_PER_OCTAVE to an octave of ns, the first from 0 to 2^TIME_FIRST_OCTAVE.
// event_*: from CUDA events around launches, excess included; event_grouped of these operations
// shared their launch with others, and have its whole time. event_first_*: of the first 8 of them,
// their sum and the bucket of each: first calls are all timed, and often far longer than others.
// timing_off: works and calls made while sampling was switched off; zeros before that field was there.
#define TIMES_FIELDS(F, A)                                                                \
    F(u64, gpu_count) F(u64, gpu_sum_ns) F(u64, gpu_min_ns) F(u64, gpu_max_ns)            \
    F(u64, host_count) F(u64, host_sum_ns) F(u64, host_min_ns) F(u64, host_max_ns)        \
    A(u64, untimed, 8) A(u32, gpu_histogram, TIME_BUCKETS) A(u32, host_histogram, TIME_BUCKETS) \
    F(u64, event_count) F(u64, event_sum_ns) F(u64, event_min_ns) F(u64, event_max_ns)    \
    F(u64, event_grouped) F(u64, event_first_sum_ns) A(u8, event_first_buckets, 8) F(u64, timing_off) \
    A(u32, event_histogram, TIME_BUCKETS)

// ---- The live page: what is going on, rewritten every second. ----
#define LIVE_FIELDS(F, A)                                                                 \
    F(u64, serial) F(u64, monotonic_ns) F(u64, realtime_ns) F(u64, ticks) F(u64, dropped) \
    F(u32, slots) F(u32, comms_open) F(u8, mode) F(u8, phase) A(u8, spare, 6)
#define LIVE_COMM_FIELDS(F, A)                                                        \
    F(u64, calls) F(u64, works) F(u64, done) F(u64, t_last_call) F(u64, t_last_done)  \
    F(u64, count) F(u16, comm) F(u8, func) F(u8, dtype) F(i32, root_or_peer)
#define LIVE_OP_FIELDS(F, A)                                                              \
    F(u64, handle) F(u64, t_call) F(u64, t_work) F(u64, count) F(u64, order) F(u16, comm) \
    F(u8, func) F(u8, dtype) F(u8, algo) F(u8, proto) F(u8, channels) F(u8, started)      \
    F(u8, stopped) F(u8, bits) A(u8, spare, 2) F(i32, peer)
// Steps of the training loop, as far as its ranges say them.
#define LIVE_STEP_FIELDS(F, A)                                                            \
    F(u64, steps) F(u64, t_last) F(u64, last_ns) F(u64, tokens) F(u64, data_ns)           \
    F(u64, t_phase) F(u8, phase) F(u8, source) A(u8, spare, 2) F(u32, text)

// K(number, struct suffix, name, fields). Numbers 1 to 16 are 1 + NCCL's event bit.
#define SLOT_KINDS(K)                                        \
    K(1, group, Group, GROUP_FIELDS)                         \
    K(2, coll, Coll, COLL_FIELDS)                            \
    K(3, p2p, P2p, P2P_FIELDS)                               \
    K(4, proxy_op, ProxyOp, PROXY_OP_FIELDS)                 \
    K(5, proxy_step, ProxyStep, PROXY_STEP_FIELDS)           \
    K(6, proxy_ctrl, ProxyCtrl, PROXY_CTRL_FIELDS)           \
    K(7, kernel_ch, KernelCh, KERNEL_CH_FIELDS)              \
    K(8, net, NetPlugin, NET_FIELDS)                         \
    K(9, group_api, GroupApi, GROUP_API_FIELDS)              \
    K(10, coll_api, CollApi, CALL_FIELDS)                    \
    K(11, p2p_api, P2pApi, CALL_FIELDS)                      \
    K(12, kernel_launch, KernelLaunch, KERNEL_LAUNCH_FIELDS) \
    K(13, ce_coll, CeColl, CE_COLL_FIELDS)                   \
    K(14, ce_sync, CeSync, CE_SYNC_FIELDS)                   \
    K(15, ce_batch, CeBatch, CE_BATCH_FIELDS)                \
    K(16, kernel_phase, KernelPhase, KERNEL_PHASE_FIELDS)    \
    K(32, coll_ext, CollExt, COLL_EXT_FIELDS)                \
    K(33, p2p_ext, P2pExt, P2P_EXT_FIELDS)                   \
    K(34, ce_ext, CeExt, CE_EXT_FIELDS)                      \
    K(35, state, State, STATE_FIELDS)                        \
    K(36, drop, Drop, DROP_FIELDS)                           \
    K(37, pad, Pad, PAD_FIELDS)                              \
    K(38, range, Range, RANGE_FIELDS)                        \
    K(39, range_text, RangeText, RANGE_TEXT_FIELDS)          \
    K(40, launch_time, LaunchTime, LAUNCH_TIME_FIELDS)       \
    K(41, event_clock, EventClock, EVENT_CLOCK_FIELDS)       \
    K(42, graph_replays, GraphReplays, GRAPH_REPLAYS_FIELDS) \
    K(43, graph_call, GraphCall, GRAPH_CALL_FIELDS)          \
    K(44, range_payload, RangePayload, RANGE_PAYLOAD_FIELDS) \
    K(48, block, Block, BLOCK_FIELDS)                        \
    K(49, updates, Updates, BLOCK_FIELDS)                    \
    K(64, comm, Comm, COMM_FIELDS)                           \
    K(65, comm_end, CommEnd, COMM_END_FIELDS)                \
    K(66, text, Text, TEXT_FIELDS)                           \
    K(67, sync, Sync, SYNC_FIELDS)                           \
    K(68, count, Count, COUNT_FIELDS)                        \
    K(69, end, End, END_FIELDS)                              \
    K(70, zoom, Zoom, ZOOM_FIELDS)                           \
    K(80, tally, Tally, TALLY_FIELDS)                        \
    K(81, tallies, Tallies, PAD_FIELDS)                      \
    K(96, live, Live, LIVE_FIELDS)                           \
    K(97, live_comm, LiveComm, LIVE_COMM_FIELDS)             \
    K(98, live_op, LiveOp, LIVE_OP_FIELDS)                   \
    K(99, live_end, LiveEnd, LIVE_FIELDS)                    \
    K(100, live_step, LiveStep, LIVE_STEP_FIELDS)


// C(name): counters by event type. Dropped events are those NCCL started and the log does not hold.
#define COUNTERS(C)                                                                            \
    C(dropped_arena_full)    /* no free chunk */                                               \
    C(dropped_low_priority)  /* steps, ctrl and net give way first */                          \
    C(dropped_no_stream)     /* more threads than streams, or no memory for one */             \
    C(dropped_unknown_type)  /* an event type this release does not know */                    \
    C(updates_dropped)       /* a stop or state that needed a slot and found none */           \
    C(handle_null)           /* stop or state on NULL */                                       \
    C(handle_foreign)        /* stop or state on a handle that is not ours */                  \
    C(handle_dead)           /* ours, but of no event that can be found */                     \
    C(stop_repeated)                                                                           \
    C(start_repeated)        /* ProxyStep started again while open: one event */               \
    C(context_foreign)       /* started with a context of another process, or none (PXN) */    \
    C(late_updates)          /* appended as State slots: other thread, too old, or repeated */ \
    C(meta_dropped)          /* metadata that found the ring full */                           \
    C(write_failed)          /* slots that the disk refused */                                 \
    C(rotated_out)           /* slots deleted to stay within the size limit */                 \
    C(slots_lost)            /* memory that was taken away before it was written out */        \
    C(tally_folded)          /* calls counted by size class: too many different sizes */       \
    C(tally_other)           /* calls counted in the catch-all entry: no room for their key */ \
    C(launches_sampled)      /* launches that sampling chose */                                \
    C(launches_timed)        /* of these, timed by CUDA events */                              \
    C(launches_captured)     /* not timed: captured into a graph */                            \
    C(launches_pool_empty)   /* not timed: all CUDA events in use */                           \
    C(launches_cuda_error)   /* not timed: CUDA errors, now or before */                       \
    C(launches_no_context)   /* not timed: a CUDA context without events */                    \
    C(launches_unfinished)   /* not timed: not finished when last looked at */                   \
    C(dropped_ranges)        /* ranges give way before any event */                            \
    C(range_texts_dropped)   /* ranges whose text found no place in the table of texts */
// clang-format on

#define AS_ENUM_C(name) COUNTER_##name,
enum counter { COUNTERS(AS_ENUM_C) COUNTER_COUNT };

// ---- Made from the lists above. ----
#define DECLARE_FIELD(type, name) type name;
#define DECLARE_ARRAY(type, name, length) type name[length];
#define DECLARE_SLOT(number, suffix, name, fields) \
    struct slot_##suffix {                         \
        HEAD_FIELDS(DECLARE_FIELD, DECLARE_ARRAY)  \
        fields(DECLARE_FIELD, DECLARE_ARRAY)       \
    };                                             \
    _Static_assert(sizeof(struct slot_##suffix) == SLOT_BYTES, #name " is not one slot");
SLOT_KINDS(DECLARE_SLOT)
#undef DECLARE_SLOT

#define AS_ENUM(number, suffix, name, fields) KIND_##suffix = number,
enum slot_kind { SLOT_KINDS(AS_ENUM) };
#undef AS_ENUM

// Any slot: its head as one word or field by field, and its body by kind.
#define AS_MEMBER(number, suffix, name, fields) struct slot_##suffix suffix;
union slot {
    u64 head;
    u64 words[SLOT_BYTES / 8];
    struct {
        HEAD_FIELDS(DECLARE_FIELD, DECLARE_ARRAY)
    };
    SLOT_KINDS(AS_MEMBER)
};
#undef AS_MEMBER
_Static_assert(sizeof(union slot) == SLOT_BYTES, "slot");

// No hidden padding: the schema text lists types in order and readers add up their sizes.
#define FIELD_SIZE(type, name) +sizeof(type)
#define ARRAY_SIZE(type, name, length) +sizeof(type) * (length)
#define CHECK_PACKED(number, suffix, name, fields) \
    _Static_assert(8 fields(FIELD_SIZE, ARRAY_SIZE) == SLOT_BYTES, #name " has padding");
SLOT_KINDS(CHECK_PACKED)
#undef CHECK_PACKED

// clang-format off
// A(suffix, kind, field, minor): fields in what 1.0 calls spare bytes, and the minor version that
// added each. Readers take a file without them for one of an earlier version.
#define ADDED_FIELDS(A)                              \
    A(live_op, LiveOp, peer, 1)                      \
    A(group, Group, send_buff, 3)                    \
    A(group, Group, recv_buff, 3)                    \
    A(group_api, GroupApi, bits, 4)                  \
    A(group_api, GroupApi, sample, 4)                \
    A(kernel_launch, KernelLaunch, sample, 4)        \
    A(kernel_launch, KernelLaunch, capture, 4)       \
    A(tally, Tally, next_sampled, 4)                 \
    A(tally, Tally, next_sampled_sparse, 4)          \
    A(tally, Tally, chosen_group, 4)                 \
    A(zoom, Zoom, gpu_timing, 4)                     \
    A(graph_replays, GraphReplays, at_least, 4)
// clang-format on
#define CHECK_ADDED(suffix, kind, field, minor)                                           \
    _Static_assert(sizeof(((struct slot_##suffix *)0)->field) && (minor) <= FORMAT_MINOR, \
                   #kind "." #field);
ADDED_FIELDS(CHECK_ADDED)
#undef CHECK_ADDED

#define SCHEMA_FIELD(type, name) " " #name ":" #type
#define SCHEMA_ARRAY(type, name, length) " " #name ":" #type ":" #length
#define SCHEMA_TEXT(text) #text
#define SCHEMA_TEXT_ARRAY(type, name, length) " " #name ":" #type ":" SCHEMA_TEXT(length)
#define SCHEMA_SLOT(number, suffix, name, fields) \
    #number " " #name fields(SCHEMA_FIELD, SCHEMA_ARRAY) "\n"
#define SCHEMA_COUNTER(name) " " #name
#define FORMAT_SCHEMA \
    SLOT_KINDS(SCHEMA_SLOT) "times" TIMES_FIELDS(SCHEMA_FIELD, SCHEMA_TEXT_ARRAY) "\n" \
    "counters" COUNTERS(SCHEMA_COUNTER) "\n"

// clang-format off
#define FILE_HEADER_FIELDS(F, A)                                                                \
    A(char, magic, 8) F(u16, endian) F(u16, major) F(u16, minor) F(u16, file_kind)              \
    F(u32, header_bytes) F(u32, slot_bytes) F(u32, schema_offset) F(u32, schema_bytes)          \
    F(u32, identity_offset) F(u32, identity_bytes) F(u64, nonce) F(u64, clock_kind)             \
    F(u64, clock_hz) F(u64, start_ticks) F(u64, start_monotonic_ns) F(u64, start_realtime_ns)   \
    F(u32, pid) F(u32, segment) F(u64, counters_offset) F(u64, meta_offset) F(u64, meta_slots)  \
    F(u64, meta_drained) F(u64, tally_offset) F(u64, tally_slots) F(u64, chunks_offset)         \
    F(u64, chunk_slots) F(u64, chunk_count) F(u64, heartbeat_ns)
// clang-format on

struct times {
    TIMES_FIELDS(DECLARE_FIELD, DECLARE_ARRAY)
};
_Static_assert(sizeof(struct times) == 0 TIMES_FIELDS(FIELD_SIZE, ARRAY_SIZE) &&
                   sizeof(struct times) % SLOT_BYTES == 0,
               "times");

struct file_header {
    FILE_HEADER_FIELDS(DECLARE_FIELD, DECLARE_ARRAY)
};
_Static_assert(sizeof(struct file_header) == 0 FILE_HEADER_FIELDS(FIELD_SIZE, ARRAY_SIZE),
               "file header has padding");
_Static_assert(COUNTER_COUNT * COUNTER_EVENTS * 8 <= COUNTER_BYTES,
               "counters need more than their page");
_Static_assert((COUNTER_EVENTS & (COUNTER_EVENTS - 1)) == 0, "columns are cut by a mask");

#endif
