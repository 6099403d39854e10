// Replays a job with other lengths of its edges: when everything would have happened. What each
// event waits for is as in dependencies.c; analysis/waiting/replay.py explains which lengths count.
#include "arrays.h"

// By operation which of the calls before it the start, and the call, wait for: bit back - 1. Those
// that follow from others are left out: gaps to them contain what the others took.
EXPORT void ncclscope_direct_dependencies(const struct timed_operations *ops,
                                          const struct gap_rules *rules, const u8 *possible,
                                          u8 *start_all, u8 *call_all, u8 *start_after,
                                          u8 *call_after) {
    for (i64 o = 0, first = 0; o < ops->count; o++) {
        if (o && ops->rank[o] != ops->rank[o - 1]) first = o;
        const i64 *own = &ops->events[3 * o];
        u32 start = 0, call = 0, start_implied = 0, call_implied = 0;
        for (i64 back = 1; back <= ops->calls_back && o - back >= first; back++) {
            u8 can = possible[(i64)ops->position[o] * ops->calls_back + back - 1];
            i64 end = own[EVENT_END - 3 * back];
            u32 bit = 1u << (back - 1);
            if ((can >> AFTER_ON_GPU & 1) &&
                own[EVENT_START] - end >= -gpu_tolerance_ns(ops, rules, o - back))
                start |= bit;
            if ((can >> AFTER_ON_HOST & 1) && own[EVENT_CALL] - end >= -rules->host_tolerance_ns)
                call |= bit;
        }
        start_all[o] = (u8)start, call_all[o] = (u8)call;
        for (i64 back = 1; back <= ops->calls_back && o - back >= first; back++) {
            u32 bit = 1u << (back - 1);
            if (start & bit) start_implied |= (u32)start_all[o - back] << back;
            if (call & bit) call_implied |= (u32)start_all[o - back] << back;
            call_implied |= (u32)call_all[o - back] << back;  // an earlier call waited for them
        }
        start_implied |= call;  // its own call waits for them
        start_after[o] = (u8)(start & ~start_implied);
        call_after[o] = (u8)(call & ~call_implied);
    }
}

static i64 least(i64 a, i64 b) { return a < b ? a : b; }

// When an operation ends: its transfer after the last of those that it waits for has started.
static i64 replayed_end(const struct replay *replay, const i64 *events, i64 o) {
    i64 from = events[3 * o + EVENT_START];
    i32 meeting = replay->meeting[o];
    if (meeting >= 0 && replay->arrived[meeting] > from) from = replay->arrived[meeting];
    for (i64 k = replay->partner_first[o]; k < replay->partner_first[o + 1]; k++) {
        i64 start = events[3 * (i64)replay->partner[k] + EVENT_START];
        if (start > from) from = start;
    }
    return from + replay->length_ns[3 * o + EVENT_END];
}

// By how much the edge before an event is shorter than it was. What became shorter lies between the
// event and everything that it waits for.
static i64 shorter_by(const struct timed_operations *ops, const struct bindings *bound,
                      const struct replay *replay, i64 event) {
    i64 before = bound->before[event];
    if (before < 0) return 0;
    i64 less = ops->events[event] - ops->events[before] - replay->length_ns[event];
    return less > 0 ? less : 0;
}

static i64 reduced(i64 gap, i64 less) {
    if (less <= 0 || gap <= 0) return gap;
    return gap > less ? gap - less : 0;
}

static void not_before(i64 *time, i64 other) {
    if (other > *time) *time = other;
}

// The bit of an end among the calls before an operation; 0 where it is none of them.
static u32 bit_of_end(const struct timed_operations *ops, i64 o, i64 event) {
    i64 back = o - event / 3;
    int is_near = event >= 0 && event % 3 == EVENT_END && back >= 1 && back <= ops->calls_back;
    return is_near ? 1u << (back - 1) : 0;
}

static i64 replayed_call(const struct timed_operations *ops, const struct bindings *bound,
                         const struct replay *replay, const i64 *events, i64 o, i64 first) {
    const i64 *real = &ops->events[3 * o];
    i64 event = 3 * o + EVENT_CALL, length = replay->length_ns[event];
    i64 before = events[3 * (o - 1) + EVENT_CALL];
    if (bound->edge[event] == EDGE_HOST) return before + length;
    // The host was blocked until an end: its work before that is no longer than the call before.
    i64 launch = ops->launched_ns[o - 1] - real[EVENT_CALL - 3];
    if (bound->edge[event - 3 + EVENT_START] == EDGE_LAUNCH)
        launch = reduced(launch, shorter_by(ops, bound, replay, event - 3 + EVENT_START));
    i64 own = launch + length;
    i64 time = before + least(own, real[EVENT_CALL] - real[EVENT_CALL - 3]);
    i64 most = INT64_MAX;
    if (bound->edge[event] == EDGE_HOST_AFTER_SYNC && bound->back[event] > ops->calls_back) {
        // It was the end of a kernel of long ago. That hides how long the host's own work took, and
        // least gaps to other ends hold the wait for it.
        time = before, most = length;
        not_before(&time, replayed_end(replay, events, bound->before[event] / 3) + length);
    }
    i64 less = 0;
    u32 after = replay->call_after[o] | bit_of_end(ops, o, bound->before[event]);
    for (i64 back = 1; after >> (back - 1) && o - back >= first; back++) {
        i64 q = o - back, slack = real[EVENT_CALL] - real[EVENT_END - 3 * back];
        less += shorter_by(ops, bound, replay, 3 * (q + 1) + EVENT_CALL);  // a call since then
        i64 cell = (i64)ops->position[o] * ops->calls_back + back - 1;
        if (bound->before[event] == (i32)(3 * q + EVENT_END))
            not_before(&time, replayed_end(replay, events, q) + length);
        else if (replay->call_after[o] & 1u << (back - 1))
            not_before(
                &time,
                replayed_end(replay, events, q) +
                    least(reduced(least(slack, replay->least_gap_ns[2 * cell + 1]), less), most));
    }
    return time;
}

static i64 replayed_start(const struct timed_operations *ops, const struct bindings *bound,
                          const struct replay *replay, const i64 *events, i64 o, i64 first) {
    const i64 *real = &ops->events[3 * o];
    i64 event = 3 * o + EVENT_START, length = replay->length_ns[event];
    i64 launch =
        least(real[EVENT_START] - real[EVENT_CALL], replay->least_launch_ns[ops->position[o]]);
    if (bound->edge[event] == EDGE_LAUNCH) launch = length;
    i64 time = events[3 * o + EVENT_CALL] + launch;
    if (bound->before[event] >= 0 && bound->edge[event] == EDGE_GPU &&
        bound->before[event] % 3 == EVENT_START)
        not_before(&time, events[bound->before[event]] + length);
    i64 own = replay->own_event[o];
    if (own >= 0) {
        i64 from = own % 3 == EVENT_END ? replayed_end(replay, events, own / 3) : events[own];
        not_before(&time, from + replay->own_ns[o]);
    }
    i64 on_stream = bound->on_stream[o], less = shorter_by(ops, bound, replay, event);
    // What a rank does after the end that it waited for is all that it does after earlier ends:
    // least gaps to these hold the pace of other ranks.
    int after_end = bound->edge[event] == EDGE_GPU && bound->before[event] % 3 == EVENT_END;
    i64 most = own >= 0 ? replay->own_ns[o] : after_end ? length : INT64_MAX;
    u32 after = replay->start_after[o] | bit_of_end(ops, o, bound->before[event]) |
                bit_of_end(ops, o, on_stream >= 0 ? 3 * on_stream + EVENT_END : -1);
    for (i64 back = 1; after >> (back - 1) && o - back >= first; back++) {
        i64 q = o - back, slack = real[EVENT_START] - real[EVENT_END - 3 * back], gap;
        less += shorter_by(ops, bound, replay, 3 * (q + 1) + EVENT_CALL);  // a call since then
        i64 cell = (i64)ops->position[o] * ops->calls_back + back - 1;
        if (bound->before[event] == (i32)(3 * q + EVENT_END)) gap = length;
        else if (replay->start_after[o] & 1u << (back - 1))
            gap = least(reduced(least(slack, replay->least_gap_ns[2 * cell]), less), most);
        else if (q == on_stream) gap = least(slack, STREAM_GAP_NS);
        else continue;
        not_before(&time, replayed_end(replay, events, q) + gap);
    }
    if (on_stream >= 0 && o - on_stream > ops->calls_back) {
        i64 gap = least(real[EVENT_START] - ops->events[3 * on_stream + EVENT_END], STREAM_GAP_NS);
        if (bound->before[event] == (i32)(3 * on_stream + EVENT_END)) gap = length;
        not_before(&time, replayed_end(replay, events, on_stream) + gap);
    }
    return time;
}

// Neighbours in the order of time are of different ranks, so that each operation's rows are far
// from those of the one before. Asked for some operations ahead, they are there in time.
enum { AHEAD = 6 };

static void fetch(const void *row, i64 bytes) {
    for (i64 at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)row + at);
}

// Asks for the rows of an operation and of the few before it.
static void fetch_rows(const struct timed_operations *ops, const struct bindings *bound,
                       const struct replay *replay, const i64 *events, i64 o) {
    i64 from = o > 2 ? o - 2 : 0;
    fetch(&ops->events[3 * from], 72), fetch(&events[3 * from], 72);
    fetch(&replay->length_ns[3 * from], 72), fetch(&bound->before[3 * from], 36);
    fetch(&bound->edge[3 * o], 1), fetch(&bound->on_stream[o], 1);
    fetch(&ops->launched_ns[from], 1), fetch(&ops->position[o], 1), fetch(&ops->rank[o], 1);
    fetch(&replay->meeting[from], 12), fetch(&replay->partner_first[from], 32);
    fetch(&replay->start_after[o], 1), fetch(&replay->call_after[o], 1);
    fetch(&replay->own_event[o], 1), fetch(&replay->own_ns[o], 1);
}

// The same for what these rows name, which must be there by now.
static void fetch_named(const struct timed_operations *ops, const struct replay *replay, i64 o) {
    fetch(&replay->least_gap_ns[2 * (i64)ops->position[o] * ops->calls_back], 64);
    fetch(&replay->least_launch_ns[ops->position[o]], 1);
    if (replay->meeting[o] >= 0) fetch(&replay->arrived[replay->meeting[o]], 1);
    if (o && replay->meeting[o - 1] >= 0) fetch(&replay->arrived[replay->meeting[o - 1]], 1);
}

// When each event happens with these lengths. `order`: operations by their measured starts;
// `next`: by rank its first operation, and afterwards the one after its last.
EXPORT void ncclscope_replay(const struct timed_operations *ops, const struct bindings *bound,
                             const struct replay *replay, const i32 *order, i64 *next,
                             const i64 *first_of, i64 *events) {
    for (i64 j = 0; j < ops->count; j++) {
        i64 o = order[j], first = first_of[ops->rank[o]];
        if (j + 2 * AHEAD < ops->count)
            fetch_rows(ops, bound, replay, events, order[j + 2 * AHEAD]);
        if (j + AHEAD < ops->count) fetch_named(ops, replay, order[j + AHEAD]);
        for (i64 *x = &next[ops->rank[o]]; *x <= o; ++*x)
            events[3 * *x + EVENT_CALL] =
                *x == first
                    ? ops->events[3 * *x + EVENT_CALL] + replay->length_ns[3 * *x + EVENT_CALL]
                    : replayed_call(ops, bound, replay, events, *x, first);
        i64 start = replayed_start(ops, bound, replay, events, o, first);
        events[3 * o + EVENT_START] = start;
        i32 meeting = replay->meeting[o];
        if (meeting >= 0 && start > replay->arrived[meeting]) replay->arrived[meeting] = start;
    }
    for (i64 o = 0; o < ops->count; o++)
        events[3 * o + EVENT_END] = replayed_end(replay, events, o);
}
