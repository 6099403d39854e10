// Loops over a capture's slots and over the model's columns: what numpy does in many passes is done
// here in one. Python says which fields become which columns, and what they mean.
//
// Arrays belong to the caller, who states their lengths. Numbers that come from a capture are
// checked against those before they are used as places. Differences of damaged numbers wrap around,
// as they do in numpy (-fwrapv).
//
// The lists below are the whole interface: structs, constants and functions. C declares them from
// here, Python takes them from arrays/_abi.py (`make generate`), and a hash over their text, which
// ncclscope_abi_version returns, tells a library from other sources.
#ifndef NCCLSCOPE_ARRAYS_H
#define NCCLSCOPE_ARRAYS_H

#include <stddef.h>

#include "ncclscope/format.h"

#define EXPORT __attribute__((visibility("default")))
#define NONE (-1)

typedef int8_t i8;
typedef int16_t i16;

// clang-format off
// ---- Structs: F(type, name) is a scalar, A(type, name, length) an array. ----

// Straight lines between knots; what lies before the first and behind the last is the caller's.
#define LINES_FIELDS(F, A) F(i64, count) F(const double *, x) F(const double *, y)
// The piece of a line that was asked for last, from `low` to below `high`: the next x is most often on
// it. None at first (NO_PIECE).
#define LINE_PIECE_FIELDS(F, A) F(double, low) F(double, high) F(double, y) F(double, slope)
// A lower bound on an offset: model/process/gpu_clock.py explains it. Without knots nothing is known.
#define BOUND_FIELDS(F, A) F(i64, first_ns) F(i64, base_ns) F(double, drift) F(struct lines, line)

// One column of a kind of slot. Where the slot's first four bytes & mask are not `want`, the value is
// NONE, or left as it is where `keep` is set.
#define COLUMN_FIELDS(F, A)                                                                     \
    F(void *, out) F(u32, mask) F(u32, want) F(u8, offset) F(u8, source) F(u8, sink)            \
    F(u8, meaning) F(u8, keep) A(u8, spare, 7)
#define COLUMN_LIST_FIELDS(F, A) F(i64, count) F(const struct column *, columns)
// A process's clock and the upper bits of its handles; capture/tick_clock.py explains it.
#define TICK_CONVERTER_FIELDS(F, A)                                                             \
    F(i64, origin_ticks) F(i64, base_ns) F(double, ns_per_tick) F(double, farthest_ns)          \
    F(u64, nonce) F(struct lines, line)

// All slots of a process: segments of slots, numbered through, and blocks in the order of keys.
#define SLOT_LOG_FIELDS(F, A)                                                                   \
    F(i64, segments)                                                                            \
    F(const u64 *, base)       /* address of each segment's first slot */                       \
    F(const i64 *, first_row)  /* one more than there are segments */                           \
    F(i64, blocks)                                                                              \
    F(const i64 *, key)        /* of the first slot, as in handles */                           \
    F(const i64 *, count) F(const i64 *, row) F(const i64 *, tid)                               \
    F(u64, low_ticks)          /* no event can be earlier, or later than high_ticks */          \
    F(u64, high_ticks)
// The events of one kind.
#define EVENT_LIST_FIELDS(F, A)                                                                 \
    F(u64 *, slot)             /* addresses */                                                  \
    F(i64 *, key) F(i32 *, thread)                                                              \
    F(u64 *, extended)         /* address of the slot behind it, 0 if that is no extension */   \
    F(i64, room) F(i64, count) F(i64, impossible)                                               \
    F(u32, extension)          /* kind of slot that may follow each, 0 without */               \
    F(u8, names)               /* fields that are numbers of strings */                         \
    A(u8, offset, 7)           /* of those */                                                   \
    F(u8 *, seen)              /* by such a field which strings occur: 256, then 256 of v1 */   \
    F(struct column_list, own)     /* columns that are read as the events are found */          \
    F(struct column_list, behind)  /* of their extensions */                                    \
    F(i64, read)               /* events whose columns have been read */                        \
    F(struct line_piece, near)

// What is left of a process's events when nothing is open and nothing in flight, by communicator.
#define SETTLED_FIELDS(F, A)                                                                    \
    F(i64, comms) F(const i64 *, comm)  /* their numbers in the process */                      \
    F(const i8 *, reporting)   /* whether kernels are reported: a settled_reporting */          \
    F(i64 *, counts)           /* events of each settled_kind */                                \
    F(u64 *, last)             /* likewise the address of the last one, 0 without */            \
    F(i64 *, newest_stop_ns)   /* of kernels; NONE: none has stopped */                         \
    F(i64, room)               /* kernels that there may be, in all */                          \
    F(i64 *, parent)           /* by kernel, in any order */                                    \
    F(i64 *, took_ns) F(i32 *, place)  /* likewise, and its communicator's place */             \
    F(i64, kernels)            /* that were found */                                            \
    F(i64, newest_ns)          /* of all times */

// Events by their keys, with the keys of their parents (NONE: not known).
#define CHILDREN_FIELDS(F, A) \
    F(i64, count) F(const i64 *, key) F(const i64 *, parent) F(const i32 *, comm)
// Where the values of a column come from: `values[places[row]]`; place NONE: not from here.
#define COLUMN_PART_FIELDS(F, A) F(const void *, values) F(const i64 *, places) F(i64, count)
// The union of a group's intervals so far.
#define INTERVAL_UNION_FIELDS(F, A) F(i64, last_start) F(i64, until) F(i64, length) F(i64, disordered)

// The channels of works, as model/process/channels.py describes them.
#define CHANNELS_FIELDS(F, A)                                                                   \
    F(i64, count) F(const i64 *, work) F(const i32 *, comm) F(const i16 *, channel)             \
    F(const i64 *, gpu_start) F(const i64 *, gpu_stop) F(const i64 *, seen_start_ns)            \
    F(const i64 *, seen_end_ns) F(const i8 *, stamp) F(const i8 *, reason) F(const i32 *, gpu)
#define GPU_CLOCK_FIELDS(F, A)                                                                  \
    F(struct bound, lower) F(struct bound, minus_upper)                                         \
    F(struct line_piece, near_lower) F(struct line_piece, near_upper)
// Clocks of GPUs, by their numbers; without a lower bound a clock is not known.
#define GPU_CLOCKS_FIELDS(F, A) F(i64, count) F(struct gpu_clock *, clock)
// What the channels of each work say; NONE, or zero for counts, where there is none.
#define WORK_TIMES_FIELDS(F, A)                                                                 \
    F(i64, count) F(i64 *, start_ns) F(i64 *, end_ns) F(i64 *, seen_start_ns)                   \
    F(i64 *, seen_end_ns)                                                                       \
    F(i32 *, timed)     /* channels with a believable stamp */                                  \
    F(i32 *, reported)  /* channels that NCCL reported */                                       \
    F(i8 *, stamp)      /* the worst */                                                         \
    F(i8 *, reason)                                                                             \
    F(i8 *, running)    /* a channel started and did not stop */
// Points that bound an offset: at `time` it is at least value - minus. `chosen`: which of them count,
// NULL for all.
#define POINTS_FIELDS(F, A)                                                                     \
    F(i64, count) F(const i64 *, time) F(const i64 *, value) F(const i64 *, minus) F(const i8 *, chosen)
// What to add to a node's time: straight lines between knots; before the first and after the last the
// next line continues. Knots and values are relative to the first one's.
#define NODE_CLOCK_FIELDS(F, A) F(i64, first_ns) F(i64, offset_ns) F(struct lines, line)
// What counts count. Names have codes below 128.
#define MEASURES_FIELDS(F, A)                                                                   \
    F(const i64 *, element_bits)    /* by datatype; 0: not known */                             \
    F(const i8 *, counts_one_rank)  /* by function: whether a count is one rank's share */      \
    F(const i64 *, ranks)           /* by communicator */                                       \
    F(i64, communicators)                                                                       \
    F(i64, most_bytes)              /* of one operation: more is damage */

// Operations with times, in the order of rank and call; the arguments of dependencies.c and replay.c.
#define TIMED_OPERATIONS_FIELDS(F, A)                                                           \
    F(i64, count)                                                                               \
    F(i64, calls_back)          /* an operation may have waited for so many before; 8 at most */ \
    F(const i32 *, rank)        /* numbered from 0 without gaps */                              \
    F(const i32 *, position)    /* in the rank's repeating sequence of calls */                 \
    F(const i32 *, stream)      /* CUDA streams, numbered over all ranks */                     \
    F(const i64 *, launched_ns) /* its launch returned */                                       \
    F(const i32 *, last)        /* the operation whose start it waited for; its own: nobody's */ \
    F(const i64 *, events)      /* call, start and end of each */
// What counts as a contradiction to "this is after that".
#define GAP_RULES_FIELDS(F, A)                                                                  \
    F(i64, gaps_kept) F(i64, gpu_tolerance_ns) F(i64, host_tolerance_ns)                                          \
    F(i64, tight_ns)            /* a start so soon after an end waited for it */                \
    F(i64, late_launch_ns)      /* a start so long after its launch waited for something */     \
    F(i64, late_times)          /* the usual time since the call before: a late call, but */   \
    F(i64, long_call_ns)        /* not below this */
// By event the event before it, the kind of edge between them, how many calls back that is; by
// operation the one before it on its stream.
#define BINDINGS_FIELDS(F, A) F(i32 *, before) F(i8 *, edge) F(i8 *, back) F(i32 *, on_stream)
#define EVENT_GRAPH_FIELDS(F, A)                                                                \
    F(const i64 *, time_ns) F(const i32 *, before)                                              \
    F(const double *, usual_ns)  /* length of the edge before it; negative: not known */         \
    F(const u8 *, blocked)      /* by operation: its start was held back by one that waited */   \
    F(const i32 *, origin)      /* rank that the edge belongs to, NONE: none */
#define WAITS_FIELDS(F, A)                                                                      \
    F(i64, count) F(const i32 *, early) F(const i32 *, late) F(const i64 *, wait_ns)            \
    F(const i32 *, early_rank) F(const i32 *, late_rank) F(i64, ranks)
#define CHARGES_FIELDS(F, A)                                                                    \
    F(i64 *, by_event)                                                                          \
    F(i64 *, by_ranks)          /* origin * ranks + rank that waits, or NULL */                          \
    F(i64 *, own_of_last)       /* of waits for a rank that came last, what is its own */       \
    F(i64 *, sums)
#define REPLAY_FIELDS(F, A)                                                                     \
    F(const i64 *, length_ns)   /* of the edge before each event */                             \
    F(const i32 *, own_event)   /* of one that was held back: what its own work follows, or NONE */ \
    F(const i64 *, own_ns)      /* from there to its start, where nothing holds it back */          \
    F(const u8 *, start_after) F(const u8 *, call_after)                                        \
    F(const i64 *, least_gap_ns) F(const i64 *, least_launch_ns)                                \
    F(const i32 *, meeting)     /* of all-meet operations, numbered from 0; NONE for others */  \
    F(i64 *, arrived)           /* by meeting the last start so far */                          \
    F(const i64 *, partner_first) F(const i32 *, partner)

// S(name, fields), each after those that it contains.
#define ARRAY_STRUCTS(S)                                                                        \
    S(lines, LINES_FIELDS) S(line_piece, LINE_PIECE_FIELDS) S(bound, BOUND_FIELDS)              \
    S(column, COLUMN_FIELDS) S(column_list, COLUMN_LIST_FIELDS)                                 \
    S(tick_converter, TICK_CONVERTER_FIELDS) S(slot_log, SLOT_LOG_FIELDS)                       \
    S(event_list, EVENT_LIST_FIELDS) S(settled, SETTLED_FIELDS) S(children, CHILDREN_FIELDS)    \
    S(column_part, COLUMN_PART_FIELDS) S(interval_union, INTERVAL_UNION_FIELDS)                 \
    S(channels, CHANNELS_FIELDS) S(gpu_clock, GPU_CLOCK_FIELDS)                                 \
    S(gpu_clocks, GPU_CLOCKS_FIELDS) S(work_times, WORK_TIMES_FIELDS) S(points, POINTS_FIELDS)  \
    S(node_clock, NODE_CLOCK_FIELDS) S(measures, MEASURES_FIELDS)                               \
    S(timed_operations, TIMED_OPERATIONS_FIELDS) S(gap_rules, GAP_RULES_FIELDS)                 \
    S(bindings, BINDINGS_FIELDS) S(event_graph, EVENT_GRAPH_FIELDS) S(waits, WAITS_FIELDS)      \
    S(charges, CHARGES_FIELDS) S(replay, REPLAY_FIELDS)

// ---- Constants: C(name), numbered from 0. ----

#define COLUMN_SOURCES(C) C(FROM_U8) C(FROM_U16) C(FROM_U32) C(FROM_I32) C(FROM_U64)
#define COLUMN_SINKS(C) C(TO_I8) C(TO_I16) C(TO_I32) C(TO_I64)
#define COLUMN_MEANINGS(C)                                                                      \
    C(AS_NUMBER)                                                                                \
    C(AS_TIME)     /* ticks become ns of the host's clock */                                    \
    C(AS_KEY)      /* a handle of this process becomes a key, any other NONE */                 \
    C(AS_NAME)     /* a string's number; from 256 on, interface v1's numbers */                 \
    C(AS_FLAG)     /* whether the head is as `mask` and `want` say */                           \
    C(AS_ELAPSED)  /* ticks since the event began, as a time */
// Bits: the start, or the call, came after an end.
#define GAP_BITS(C) C(AFTER_ON_GPU) C(AFTER_ON_HOST)
// Whether a start was held back; OVERLAPPED: its usual length counts from the start of what held it.
#define BLOCKED_KINDS(C) C(BLOCKED_NOT) C(BLOCKED_BEHIND) C(BLOCKED_OVERLAPPED)
#define GRAPH_EVENTS(C) C(EVENT_CALL) C(EVENT_START) C(EVENT_END)
#define GRAPH_EDGES(C)                                                                          \
    C(EDGE_ROOT) C(EDGE_LAUNCH) C(EDGE_GPU) C(EDGE_HOST) C(EDGE_HOST_AFTER_SYNC) C(EDGE_TRANSFER)
#define CHARGED_SUMS(C) C(CHARGED_STRUCTURE) C(CHARGED_QUICKER) C(CHARGED_UNKNOWN)
#define SETTLED_KINDS(C) C(SETTLED_COLL_API) C(SETTLED_P2P_API) C(SETTLED_COLL) C(SETTLED_P2P)
// FULLY: a work tells how many kernels it has; PARTLY: at most how many.
#define SETTLED_REPORTING(C) C(REPORTS_NOTHING) C(REPORTS_FULLY) C(REPORTS_PARTLY)
#define STAMP_STATES(C) C(VALID) C(REPAIRED) C(RECOVERED) C(REJECTED) C(MISSING)
// E(name, constants)
#define ARRAY_ENUMS(E)                                                                          \
    E(column_source, COLUMN_SOURCES) E(column_sink, COLUMN_SINKS)                               \
    E(column_meaning, COLUMN_MEANINGS) E(stamp_state, STAMP_STATES)                             \
    E(gap_bit, GAP_BITS) E(blocked_kind, BLOCKED_KINDS) E(graph_event, GRAPH_EVENTS)            \
    E(graph_edge, GRAPH_EDGES) E(charged_sum, CHARGED_SUMS) E(settled_kind, SETTLED_KINDS)      \
    E(settled_reporting, SETTLED_REPORTING)

// ---- Functions: F(result, name, arguments). Their definitions say what they do. ----

#define ARRAY_FUNCTIONS(F)                                                                          \
    F(u64, abi_version, (void))                                                                     \
    /* mapped_files.c */                                                                            \
    F(int, guard_mapped_files, (void))                                                              \
    F(i64, pages_lost, (void))                                                                      \
    /* index.c */                                                                                   \
    F(i64, scan, (union slot *slots, i64 count, i64 *heads, i64 *kinds, i64 *misplaced))            \
    F(void, count_kinds, (const struct slot_log *log, i64 *counts))                                 \
    F(void, index, (const struct slot_log *log, const i8 *list_of, struct event_list *lists,        \
                    i64 list_count, const struct tick_converter *converter))                        \
    F(void, apply_states, (const u64 *states, const i64 *place, i64 state_count,                    \
                           const u64 *events, i64 count))                                           \
    /* settled.c */                                                                                 \
    F(int, settle, (const struct slot_log *log, const struct tick_converter *converter,             \
                    struct settled *found))                                                         \
    F(int, settle_segment, (const union slot *slots, i64 count, u64 low_ticks, u64 high_ticks,      \
                            const struct tick_converter *converter, struct settled *found))         \
    /* fields.c */                                                                                  \
    F(void, fields, (const u64 *addresses, i64 count, const struct tick_converter *converter,       \
                     const struct column_list *list))                                               \
    /* joins.c */                                                                                   \
    F(void, positions_of, (const i64 *among, i64 among_count, const i64 *keys, i64 count, i64 *out)) \
    F(void, sibling_before, (const struct children *among, const struct children *others, i64 *out)) \
    F(int, is_identity, (const i64 *places, i64 count))                                             \
    F(void, coalesce, (void *out, i64 rows, i64 width, const struct column_part *parts,             \
                       i64 part_count, i64 otherwise))                                              \
    F(int, running_count, (const i64 *keys, i64 count, i64 *out))                                   \
    F(i64, factorize, (const i64 *keys, i64 count, i32 *out))                                       \
    F(void, mask_of, (const i64 *places, i64 count, i8 *marks, i64 size))                           \
    F(void, take_small, (void *out, i64 width, const void *values, i64 size, const void *places,    \
                         i64 place_width, i64 count, i64 otherwise))                                \
    /* intervals.c */                                                                               \
    F(void, union_lengths, (const i32 *group, const i64 *start, const i64 *end, i64 count,          \
                            struct interval_union *unions, i64 groups))                             \
    /* channels.c */                                                                                \
    F(void, bound_at, (const struct bound *bound, const i64 *host_ns, i64 count, i64 *out))         \
    F(void, time_channels, (const struct channels *channels, const struct gpu_clocks *clocks,       \
                            i64 *start, i64 *end))                                                  \
    F(void, times_of_works, (const struct channels *given, const struct gpu_clocks *clocks,         \
                             const struct work_times *found))                                       \
    F(i64, launches_of_channels, (const struct channels *given, i64 gpu, const i64 *launch_ns,      \
                                  i64 works, i64 *launched, i8 *sure))                              \
    F(i64, strands, (const struct channels *given, i32 *strand_of))                                 \
    F(int, fitting, (const struct channels *channels, const i32 *strand_of, i64 strands,            \
                     const struct gpu_clocks *clocks, const i64 *not_before_ns, const i64 *group,   \
                     i64 works, i8 *fitting))                                                       \
    F(i64, best_of_bins, (const struct points *points, i64 bin_ns, i64 *best, i64 *first_ns,        \
                          i64 *highest))                                                            \
    F(i64, hull, (const double *time, const double *value, i64 count, double *t, double *v))        \
    /* dependencies.c */                                                                            \
    F(void, call_contexts, (const i32 *rank, const i32 *kind, i64 count, i64 context, i64 *out))    \
    F(void, last_arrivals, (const i32 *meeting, const i64 *events, i64 count, i32 *last_of,         \
                            i64 meetings))                                                          \
    F(void, count_gaps, (const struct timed_operations *ops, const struct gap_rules *rules,         \
                         const i32 *stride, i32 *seen_at, i32 *counted, i64 *gaps))                 \
    F(void, bind, (const struct timed_operations *ops, const struct gap_rules *rules,               \
                   const u8 *possible, const i64 *usual_call_ns, i32 *newest,                       \
                   const struct bindings *out))                                                     \
    /* delays.c, replay.c */                                                                        \
    F(int, charge_waits, (const struct event_graph *graph, const struct waits *waits,               \
                          i64 horizon_ns, const struct charges *out))                               \
    F(i64, path_back, (const i64 *time_ns, const i32 *before, i64 event, i64 first_ns, i64 room,    \
                       i64 *events))                                                                \
    F(void, direct_dependencies, (const struct timed_operations *ops,                               \
                                  const struct gap_rules *rules, const u8 *possible, u8 *start_all, \
                                  u8 *call_all, u8 *start_after, u8 *call_after))                   \
    F(void, replay, (const struct timed_operations *ops, const struct bindings *bound,              \
                     const struct replay *replay, const i32 *order, i64 *next,                      \
                     const i64 *first_of, i64 *events))                                             \
    /* clocks.c, sizes.c, checksum.c */                                                             \
    F(void, to_reference, (const struct node_clock *clock, const i64 *local_ns, i64 count, i64 *out)) \
    F(void, sizes, (const struct measures *measures, const i64 *counts, const i8 *datatype,         \
                    const i8 *function, const i32 *communicator, i64 rows, i64 *bytes))             \
    F(void, checksum, (u64 *state, const u64 *words, i64 count))
// clang-format on

// ---- Made from the lists above. ----
#define DECLARE_STRUCT(name, fields)         \
    struct name {                            \
        fields(DECLARE_FIELD, DECLARE_ARRAY) \
    };
ARRAY_STRUCTS(DECLARE_STRUCT)
#undef DECLARE_STRUCT
#define DECLARE_CONSTANT(name) name,
#define DECLARE_ENUM(name, constants) enum name { constants(DECLARE_CONSTANT) };
ARRAY_ENUMS(DECLARE_ENUM)
#undef DECLARE_ENUM
#undef DECLARE_CONSTANT
#define DECLARE_FUNCTION(result, name, arguments) EXPORT result ncclscope_##name arguments;
ARRAY_FUNCTIONS(DECLARE_FUNCTION)
#undef DECLARE_FUNCTION

// The text of the lists, and of the slots that the loops read.
#define FIELD_TEXT(type, name) #type " " #name ";"
#define ARRAY_TEXT(type, name, length) #type " " #name "[" #length "];"
#define STRUCT_TEXT(name, fields) #name "{" fields(FIELD_TEXT, ARRAY_TEXT) "}"
#define NAME_TEXT(name) #name ","
#define ENUM_TEXT(name, constants) #name "{" constants(NAME_TEXT) "}"
#define FUNCTION_TEXT(result, name, arguments) #result " " #name #arguments ";"
#define CONSTANT_TEXT(name, value) #name "=" #value ";"
#define NUMBER_TEXT(name) #name "=" SCHEMA_TEXT(name) ";"
#define ARRAYS_ABI_TEXT            \
    ARRAY_STRUCTS(STRUCT_TEXT)     \
    ARRAY_ENUMS(ENUM_TEXT)         \
    ARRAY_FUNCTIONS(FUNCTION_TEXT) \
    FORMAT_NUMBERS(NUMBER_TEXT) FORMAT_CONSTANTS(CONSTANT_TEXT) FORMAT_SCHEMA

// FNV-1a over that text.
static inline u64 arrays_abi_version(void) {
    u64 hash = 0xCBF29CE484222325u;
    for (const char *c = ARRAYS_ABI_TEXT; *c; c++) hash = (hash ^ (u8)*c) * 0x100000001B3u;
    return hash;
}

// ---- What the loops share. ----
#define DRIFT_SHIFT 13       // 1 / 8192: clocks that drift by up to 122 ppm
#define STREAM_GAP_NS 10000  // between kernels of one stream, at most, where nothing else is known
#define NO_PIECE ((struct line_piece){.low = 1, .high = 0})

// The piece that `x`, which lies within the knots, is on.
static inline void find_piece(const struct lines *line, double x, struct line_piece *piece) {
    i64 low = 0, high = line->count - 1;
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (line->x[middle] <= x) low = middle;
        else high = middle;
    }
    piece->low = line->x[low], piece->high = line->x[low + 1], piece->y = line->y[low];
    piece->slope = (line->y[low + 1] - line->y[low]) / (line->x[low + 1] - line->x[low]);
}

// The line at `x`; its first or last value outside of the knots.
static inline double line_at(const struct lines *line, double x, struct line_piece *piece) {
    if (!(piece->low <= x && x < piece->high)) {
        i64 last = line->count - 1;
        if (!(x > line->x[0])) return line->y[0];
        if (x >= line->x[last]) return line->y[last];
        find_piece(line, x, piece);
    }
    return piece->slope * (x - piece->low) + piece->y;
}

// How much before the end of an operation a later one may seem to start: stamps are put on the
// host's clock by where the operation began, so clocks that drift show in long ones.
static inline i64 gpu_tolerance_ns(const struct timed_operations *ops,
                                   const struct gap_rules *rules, i64 operation) {
    const i64 *events = &ops->events[3 * operation];
    return rules->gpu_tolerance_ns + ((events[EVENT_END] - events[EVENT_START]) >> DRIFT_SHIFT);
}

// The slots of a block, and how many there are.
const union slot *block_slots(const struct slot_log *log, i64 block, i64 *count);
// Whether an event has times that can be.
int possible(const struct slot_log *log, const union slot *slot);
// The host's time of ticks. `near`: of the last call, or NO_PIECE.
i64 time_of(const struct tick_converter *converter, u64 ticks, struct line_piece *near);
// The key of an event of this process, NONE for any other handle.
static inline i64 key_of(const struct tick_converter *converter, u64 handle) {
    i64 key = (i64)(handle & ((1ull << (STREAM_BITS + INDEX_BITS)) - 1));
    return handle >> (STREAM_BITS + INDEX_BITS) == converter->nonce ? key : NONE;
}

// Reads columns of the slots at places `first` to below `end`. `near`: of the last call, or
// NO_PIECE.
void read_fields(const u64 *addresses, i64 first, i64 end, const struct tick_converter *converter,
                 const struct column_list *list, struct line_piece *near);

#endif
