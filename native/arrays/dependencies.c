// Which event of a job each event followed: calls, starts and ends of operations of all ranks.
//
// Operations are in the order of rank and call. Event 3 * operation + EVENT_CALL is its call,
// + EVENT_START its start on the GPU, + EVENT_END its end. analysis/waiting/dependencies.py
// explains what is learned and why.
#include <stdlib.h>

#include "arrays.h"

#define MULTIPLIER 0xD6E8FEB86659FD93u
#define LONGEST_CONTEXT 64

static u64 mixed(i32 kind) { return (u64)(u32)(kind + 1) * 0x9E3779B97F4A7C15u; }

// By operation a hash of the kinds of the last `context` calls of its rank, itself included.
EXPORT void ncclscope_call_contexts(const i32 *rank, const i32 *kind, i64 count, i64 context,
                                    i64 *out) {
    u64 hash = 0, highest = 1;
    if (context > LONGEST_CONTEXT) context = LONGEST_CONTEXT;
    for (i64 i = 0; i < context; i++) highest *= MULTIPLIER;
    for (i64 o = 0, first = 0; o < count; o++) {
        if (!o || rank[o] != rank[o - 1]) hash = 0, first = o;
        hash = hash * MULTIPLIER + mixed(kind[o]);
        if (o - first >= context) hash -= highest * mixed(kind[o - context]);
        out[o] = (i64)(hash >> 1);  // not negative: NONE is none of them
    }
}

// The last arrival of each meeting: `last_of` has a place for each, NONE at first.
EXPORT void ncclscope_last_arrivals(const i32 *meeting, const i64 *events, i64 count, i32 *last_of,
                                    i64 meetings) {
    for (i64 o = 0; o < count; o++) {
        if (meeting[o] < 0 || meeting[o] >= meetings) continue;
        i32 last = last_of[meeting[o]];
        if (last < 0 || events[3 * o + EVENT_START] > events[3 * last + EVENT_START])
            last_of[meeting[o]] = (i32)o;
    }
}

// Keeps the smallest values in order.
static void keep_smallest(i64 *smallest, i64 kept, i64 value) {
    i64 at = kept - 1;
    if (value >= smallest[at]) return;
    for (; at > 0 && smallest[at - 1] > value; at--) smallest[at] = smallest[at - 1];
    smallest[at] = value;
}

// Counts by position and number of calls back how often an operation started, or was called,
// before the end of that earlier one. `counted`: three numbers a cell: seen, started before,
// called before. `gaps`: the smallest ones of starts, then of calls, of a sample of operations.
EXPORT void ncclscope_count_gaps(const struct timed_operations *ops, const struct gap_rules *rules,
                                 const i32 *stride, i32 *seen_at, i32 *counted, i64 *gaps) {
    for (i64 o = 0, first = 0; o < ops->count; o++) {
        if (o && ops->rank[o] != ops->rank[o - 1]) first = o;
        i64 position = ops->position[o];
        int sampled = seen_at[position]++ % stride[position] == 0;
        const i64 *own = &ops->events[3 * o];
        for (i64 back = 1; back <= ops->calls_back && o - back >= first; back++) {
            i64 cell = position * ops->calls_back + back - 1, end = own[EVENT_END - 3 * back];
            i64 start_gap = own[EVENT_START] - end, call_gap = own[EVENT_CALL] - end;
            counted[3 * cell]++;
            counted[3 * cell + 1] += start_gap < -gpu_tolerance_ns(ops, rules, o - back);
            counted[3 * cell + 2] += call_gap < -rules->host_tolerance_ns;
            if (!sampled) continue;
            if (start_gap >= 0)
                keep_smallest(&gaps[2 * cell * rules->gaps_kept], rules->gaps_kept, start_gap);
            if (call_gap >= 0)
                keep_smallest(&gaps[(2 * cell + 1) * rules->gaps_kept], rules->gaps_kept, call_gap);
        }
    }
}

struct choice {
    i64 time;
    i64 operation;  // NONE: none
    i8 back;
};

static void choose_later(struct choice *choice, i64 time, i64 operation, i64 back) {
    if (choice->operation < 0 || time > choice->time)
        *choice = (struct choice){time, operation, (i8)back};
}

struct choices {
    struct choice gpu;    // whose end the start can have waited for
    struct choice ended;  // the last that had ended, whether it can have been waited for or not
    struct choice host;   // whose end the call can have waited for
    struct choice drained;
    int idle;  // all of the calls before had ended before the call
};

static struct choices choices_of(const struct timed_operations *ops, const struct gap_rules *rules,
                                 const u8 *possible, i64 o, i64 first, i64 on_stream) {
    struct choice none = {0, NONE, 0};
    struct choices found = {none, none, none, none, 1};
    i64 start = ops->events[3 * o + EVENT_START], call = ops->events[3 * o + EVENT_CALL];
    for (i64 back = 1; back <= ops->calls_back && o - back >= first; back++) {
        i64 q = o - back, end = ops->events[3 * q + EVENT_END], slack = start - end;
        u8 can = possible[(i64)ops->position[o] * ops->calls_back + back - 1];
        int tight = slack >= 0 && slack <= rules->tight_ns;
        if (slack >= -gpu_tolerance_ns(ops, rules, q) &&
            ((can >> AFTER_ON_GPU & 1) || q == on_stream || tight))
            choose_later(&found.gpu, end, q, back);
        if (slack >= 0) choose_later(&found.ended, end, q, back);
        int after = call - end >= -rules->host_tolerance_ns;
        if (after && (can >> AFTER_ON_HOST & 1)) choose_later(&found.host, end, q, back);
        if (after) choose_later(&found.drained, end, q, back);
        else found.idle = 0;
    }
    if (on_stream >= 0 && o - on_stream > ops->calls_back) {
        i64 end = ops->events[3 * on_stream + EVENT_END];
        if (start - end >= -gpu_tolerance_ns(ops, rules, on_stream))
            choose_later(&found.gpu, end, on_stream, ops->calls_back + 1);
    }
    return found;
}

// The start's predecessor: the end of an earlier operation, or the operation's own call.
static void bind_start(const struct timed_operations *ops, const struct gap_rules *rules,
                       const struct choices *choices, i64 o, const struct bindings *out) {
    i64 event = 3 * o + EVENT_START, launched = ops->launched_ns[o];
    struct choice chosen = choices->gpu;
    int late = ops->events[event] - launched > rules->late_launch_ns;
    if ((chosen.operation < 0 || chosen.time <= launched) && late &&
        choices->ended.operation >= 0 && choices->ended.time > launched)
        chosen = choices->ended;
    if (chosen.operation >= 0 && chosen.time > launched) {
        out->before[event] = (i32)(3 * chosen.operation + EVENT_END);
        out->edge[event] = EDGE_GPU;
        out->back[event] = chosen.back;
    } else {
        out->before[event] = (i32)(3 * o + EVENT_CALL);
        out->edge[event] = EDGE_LAUNCH;
        out->back[event] = 0;
    }
}

// The call's predecessor: the call before it, or the end that the host waited for.
static void bind_call(const struct timed_operations *ops, const struct gap_rules *rules,
                      const struct choices *choices, const i64 *usual_call_ns, i64 o, i64 first,
                      const struct bindings *out) {
    i64 event = 3 * o + EVENT_CALL, call = ops->events[event];
    out->before[event] = NONE, out->edge[event] = EDGE_ROOT, out->back[event] = 0;
    if (o == first) return;
    i64 before = ops->events[3 * (o - 1) + EVENT_CALL];
    struct choice chosen = choices->host;
    // Nothing was in flight, and the call came far later than usual: positions that all look alike
    // cannot tell a synchronisation that happens now and then.
    i64 position = ops->position[o], longer = rules->late_times * usual_call_ns[position];
    if (longer < rules->long_call_ns) longer = rules->long_call_ns;
    if (choices->idle && call - before > longer && choices->drained.operation >= 0)
        chosen = choices->drained;
    if (chosen.operation >= 0 && chosen.time > before) {
        out->before[event] = (i32)(3 * chosen.operation + EVENT_END);
        out->edge[event] = EDGE_HOST_AFTER_SYNC;
        out->back[event] = chosen.back;
    } else {
        out->before[event] = (i32)(3 * (o - 1) + EVENT_CALL);
        out->edge[event] = EDGE_HOST;
    }
}

// By event the one that it followed, the kind of edge between them, and how many calls back that
// is. `newest`: by stream the last operation, NONE at first; streams are numbered over all ranks.
EXPORT void ncclscope_bind(const struct timed_operations *ops, const struct gap_rules *rules,
                           const u8 *possible, const i64 *usual_call_ns, i32 *newest,
                           const struct bindings *out) {
    for (i64 o = 0, first = 0; o < ops->count; o++) {
        if (o && ops->rank[o] != ops->rank[o - 1]) first = o;
        i64 on_stream = newest[ops->stream[o]];
        newest[ops->stream[o]] = (i32)o;
        if (on_stream < first) on_stream = NONE;
        out->on_stream[o] = (i32)on_stream;
        struct choices choices = choices_of(ops, rules, possible, o, first, on_stream);
        bind_start(ops, rules, &choices, o, out);
        bind_call(ops, rules, &choices, usual_call_ns, o, first, out);
        i64 end = 3 * o + EVENT_END;
        out->before[end] = (i32)(3 * (i64)ops->last[o] + EVENT_START);
        out->edge[end] = EDGE_TRANSFER, out->back[end] = 0;
    }
}
