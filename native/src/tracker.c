// Operations in flight, and the times of those that ended.
//
// An operation begins with its Coll or P2p and ends when as many KernelCh have stopped as it has
// channels, or when later work of its communicator has ended and nothing more came. GPU stamps are
// checked by what one process can know: NCCL hands out an earlier work's stamps after any work that
// its host side did not count. An operation that fails a check is counted under the reason, and no
// time is guessed.
#include "tracker.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "comm.h"
#include "ncclscope/time_buckets.h"
#include "sampled_launches.h"
#include "timing_policy.h"
#include "totals.h"
#include "tracker_state.h"

#define CALLS_KEPT 8192u       // newest calls, by hash of their handles
#define WORKS_KEPT 16384u      // newest work of each channel, by hash
#define SLACK_NS 100000        // clock error and drift: 3 ppm over two windows
#define WINDOW_HEARTBEATS 16u  // seconds a bound on the GPU's clock is good for
#define NO_BOUND INT64_MIN
#define NO_PEER (-1)  // of a collective

struct operation tracker_operations[MAX_PENDING];
struct progress *tracker_progress;
u32 tracker_comms_seen;
static struct operation *latest;  // channels of one operation come one after the other
static u32 pending;

// Calls: their kernels cannot start before them.
static struct {
    u64 handle, t0;
    bool captured;
} calls[CALLS_KEPT];
// The last work of each channel.
static struct work {
    u64 gpu_start, group;
    u32 channel;  // 1 + comm << 8 | channel
} works[WORKS_KEPT];

// The host time of a stamp g is at latest g - bound. The largest of two windows, because clocks
// drift. Example: a stamp of 5,000,100 ns that the host reads at 1,000 ns gives the bound
// 4,999,100; a later stamp of 5,000,600 was then written by host time 1,500 at the latest.
static i64 bound_now = NO_BOUND, bound_before = NO_BOUND;
static u32 heartbeats;
static bool pass_done;  // since the last heartbeat
static struct clock_pair anchor;
static double ns_per_tick;

static u64 hash_of(u64 value) { return (value * 0x9E3779B97F4A7C15u) >> 40; }

static bool have_memory(void) {
    if (!tracker_progress) tracker_progress = calloc(NO_COMM, sizeof *tracker_progress);
    return tracker_progress;
}

// ---- the table of operations: open addressing; removing an entry moves later ones back ----
static u32 home_of(u64 handle) { return (u32)hash_of(handle) % MAX_PENDING; }

static struct operation *operation_of(u64 handle, bool create) {
    if (latest && latest->handle == handle) return latest;
    for (u32 probe = 0; probe < MAX_PENDING; probe++) {
        struct operation *operation = &tracker_operations[(home_of(handle) + probe) % MAX_PENDING];
        if (operation->handle == handle) return latest = operation;
        if (operation->handle) continue;
        if (!create || pending >= MAX_PENDING * 3 / 4) return NULL;
        memset(operation, 0, sizeof *operation);
        operation->handle = handle;
        operation->comm = (u16)NO_COMM;
        pending++;
        return latest = operation;
    }
    return NULL;
}

static void forget(struct operation *operation) {
    u32 hole = (u32)(operation - tracker_operations), at = hole;
    for (;;) {
        at = (at + 1) % MAX_PENDING;
        if (!tracker_operations[at].handle) break;
        u32 home = home_of(tracker_operations[at].handle);
        bool reachable = hole < at ? home > hole && home <= at : home > hole || home <= at;
        if (reachable) continue;
        tracker_operations[hole] = tracker_operations[at];
        hole = at;
    }
    tracker_operations[hole].handle = 0;
    pending--;
    latest = NULL;
}

// ---- times ----
static void add_time(u64 *count, u64 *sum, u64 *min, u64 *max, u32 *histogram, u64 ns) {
    if (*count == 0 || ns < *min) *min = ns;
    if (ns > *max) *max = ns;
    ++*count;
    *sum += ns;
    histogram[time_bucket(ns)]++;
}

static i64 to_ns(u64 ticks) {
    return (i64)anchor.monotonic_ns +
           (i64)((double)(i64)(ticks - anchor.ticks_before) * ns_per_tick);
}

static i64 bound(void) { return bound_now > bound_before ? bound_now : bound_before; }

static void learn_bound(const struct operation *operation) {
    if (operation->gpu_last == 0 || ns_per_tick == 0) return;
    i64 seen = (i64)operation->gpu_last - to_ns(operation->t_gpu_last);
    if (seen > bound_now) bound_now = seen;
}

// ---- the end of an operation ----
static enum untimed reason_for(const struct operation *operation) {
    if (operation->stopped == 0) return UNTIMED_NO_KERNEL;
    if (operation->no_stamp) return UNTIMED_NO_STAMP;
    if (operation->suspect) return UNTIMED_SUSPECT;
    if (operation->stale) return UNTIMED_STALE;
    return UNTIMED_PARTIAL;
}

// A kernel cannot start before its call; a replay's cannot before its own Coll.
static bool starts_too_early(const struct operation *operation) {
    u64 earliest = operation->captured ? operation->t_work : operation->t_call;
    if (earliest == 0 || bound() == NO_BOUND || ns_per_tick == 0) return false;
    return (i64)operation->gpu_first - bound() + SLACK_NS < to_ns(earliest);
}

static void finish(struct operation *operation, bool complete) {
    if (operation->has_work && operation->entry) {
        struct times *times = &operation->entry->times;
        operation->entry->changed = true;
        learn_bound(operation);
        if (starts_too_early(operation)) operation->stale = true;
        bool timed = complete && operation->stopped && !operation->no_stamp &&
                     !operation->suspect && !operation->stale;
        if (timed)
            add_time(&times->gpu_count, &times->gpu_sum_ns, &times->gpu_min_ns, &times->gpu_max_ns,
                     times->gpu_histogram, operation->gpu_last - operation->gpu_first);
        else times->untimed[reason_for(operation)]++;
        if (operation->stopped && ns_per_tick > 0)
            add_time(&times->host_count, &times->host_sum_ns, &times->host_min_ns,
                     &times->host_max_ns, times->host_histogram,
                     (u64)((double)(operation->host_last - operation->host_first) * ns_per_tick));
    }
    if (operation->comm < NO_COMM) {
        struct progress *comm = &tracker_progress[operation->comm];
        comm->done++;
        if (operation->host_last > comm->t_last_done) comm->t_last_done = operation->host_last;
        if (operation->stopped && operation->order > comm->newest_done_order)
            comm->newest_done_order = operation->order;
    }
    forget(operation);
}

static void finish_if_complete(struct operation *operation) {
    if (operation->has_work && operation->channels && operation->stopped >= operation->channels)
        finish(operation, true);
}

// ---- slots ----
static void remember_call(u64 handle, const union slot *slot) {
    u32 place = (u32)hash_of(handle) % CALLS_KEPT;
    calls[place].handle = handle;
    calls[place].t0 = slot->coll_api.t0;
    calls[place].captured = slot->coll_api.flags & FLAG_GRAPH;
}

static void note_call(u16 comm, u64 t0, u64 count, u8 func, u8 dtype, i32 root_or_peer, bool api) {
    if (comm >= NO_COMM) return;
    struct progress *at = &tracker_progress[comm];
    if (comm >= tracker_comms_seen) tracker_comms_seen = comm + 1u;
    if (api) at->has_api = true;
    if (api != at->has_api) return;  // with API events, works are not calls of their own
    at->calls++;
    at->t_last_call = t0;
    at->count = count;
    at->func = func;
    at->dtype = dtype;
    at->root_or_peer = root_or_peer;
}

static void begin_operation(u64 handle, u64 parent, u64 group, u16 comm, struct tally_key key,
                            u8 channels, i32 peer, u64 t0) {
    struct totals_entry *entry = totals_entry(tally_counted_as(key));
    if (comm < NO_COMM) tracker_progress[comm].works++;
    bool kernels = comm < NO_COMM && comm_reports_kernels(comm);
    if (!kernels && timing_policy.by_events) {
        sampled_launches_note_operation(handle, comm, entry);
        return;
    }
    struct operation *operation = kernels ? operation_of(handle, true) : NULL;
    if (!operation) {
        if (!entry) return;
        entry->times.untimed[kernels ? UNTIMED_OVERRUN : UNTIMED_NO_KERNEL]++;
        entry->changed = true;
        return;
    }
    operation->has_work = true;
    operation->entry = entry;
    operation->comm = comm;
    operation->order = comm < NO_COMM ? tracker_progress[comm].works : 0;
    operation->count = key.count;
    operation->func = tally_func(key);
    operation->dtype = tally_dtype(key);
    operation->algo = tally_algo(key);
    operation->proto = tally_proto(key);
    operation->channels = channels;
    operation->peer = peer;
    operation->t_work = t0;
    operation->group = group;
    u32 call = (u32)hash_of(parent) % CALLS_KEPT;
    if (parent && calls[call].handle == parent) {
        operation->t_call = calls[call].t0;
        operation->captured = calls[call].captured;
    }
    finish_if_complete(operation);
}

static void begin_coll(u64 handle, const union slot *slot) {
    const struct slot_coll *coll = &slot->coll;
    u8 bits = coll->flags & FLAG_NUMBERS ? TALLY_NUMBERS : 0;
    struct tally_key key = tally_key(coll->comm, LEVEL_WORK, coll->func, coll->dtype, coll->algo,
                                     coll->proto, bits, coll->count);
    u64 group = coll->flags & FLAG_IN_GROUP ? handle - 1 : slot[1].coll_ext.parent_group;
    // Before v4 the number of channels is an upper bound.
    bool early = coll->comm < NO_COMM && comm_versions[coll->comm] < 4;
    begin_operation(handle, coll->parent, group, coll->comm, key, early ? 0 : coll->channels,
                    NO_PEER, coll->t0);
    note_call(coll->comm, coll->t0, coll->count, coll->func, coll->dtype, coll->root, false);
}

static void begin_p2p(u64 handle, const union slot *slot) {
    const struct slot_p2p *p2p = &slot->p2p;
    u8 bits = p2p->flags & FLAG_NUMBERS ? TALLY_NUMBERS : 0;
    struct tally_key key =
        tally_key(p2p->comm, LEVEL_WORK, p2p->func, p2p->dtype, 0, 0, bits, p2p->count);
    begin_operation(handle, p2p->parent, p2p->parent_group, p2p->comm, key, p2p->chan, p2p->peer,
                    p2p->t0);
    note_call(p2p->comm, p2p->t0, p2p->count, p2p->func, p2p->dtype, p2p->peer, false);
}

static void check_stamps(struct operation *operation, const struct slot_kernel_ch *kernel) {
    if (kernel->flags & FLAG_NO_STAMP || !(kernel->states & STATE_FIRST)) {
        operation->no_stamp = true;
        return;
    }
    if (kernel->gpu_stop < kernel->gpu_start) operation->suspect = true;
    if (operation->gpu_first == 0 || kernel->gpu_start < operation->gpu_first)
        operation->gpu_first = kernel->gpu_start;
    if (kernel->gpu_stop > operation->gpu_last) {
        operation->gpu_last = kernel->gpu_stop;
        operation->t_gpu_last = kernel->t_stop;
    }
    u32 channel = 1 + ((u32)kernel->comm << 8 | kernel->chan);
    struct work *work = &works[((u32)kernel->comm * 61 + kernel->chan) % WORKS_KEPT];
    if (work->channel == channel) {
        bool same = work->gpu_start == kernel->gpu_start;
        if (same && work->group != operation->group) operation->stale = true;
        if (!same && kernel->gpu_start < work->gpu_start) operation->suspect = true;
    }
    *work = (struct work){kernel->gpu_start, operation->group, channel};
}

static void update_kernel(const union slot *slot, bool first_sight) {
    const struct slot_kernel_ch *kernel = &slot->kernel_ch;
    struct operation *operation = operation_of(kernel->parent, first_sight);
    if (!operation) return;
    operation->heartbeats = 0;
    if (first_sight) {
        operation->started++;
        if (operation->host_first == 0 || kernel->t0 < operation->host_first)
            operation->host_first = kernel->t0;
    }
    if (!(kernel->states & STATE_STOPPED)) return;
    operation->stopped++;
    if (kernel->t1 > operation->host_last) operation->host_last = kernel->t1;
    check_stamps(operation, kernel);
    finish_if_complete(operation);
}

void tracker_update(u64 handle, const union slot *slot, bool first_sight) {
    if (!have_memory()) return;
    switch (slot->group.kind) {
        case KIND_kernel_ch: update_kernel(slot, first_sight); break;
        case KIND_coll:
            if (first_sight) begin_coll(handle, slot);
            break;
        case KIND_p2p:
            if (first_sight) begin_p2p(handle, slot);
            break;
        case KIND_coll_api:
        case KIND_p2p_api:
            if (!first_sight) break;
            remember_call(handle, slot);
            if (timing_policy.by_events) sampled_launches_note_call(&slot->coll_api);
            note_call(slot->coll_api.comm, slot->coll_api.t0, slot->coll_api.count,
                      slot->coll_api.func, slot->coll_api.dtype, slot->coll_api.root, true);
            break;
        case KIND_kernel_launch:
            if (first_sight) sampled_launches_note_launch(handle, &slot->kernel_launch);
            break;
        case KIND_group_api:
            if (first_sight) sampled_launches_note_group(handle, &slot->group_api);
            break;
        case KIND_launch_time: sampled_launches_note_time(&slot->launch_time); break;
        default: break;
    }
}

void tracker_pass_done(void) { pass_done = true; }

// ---- once a second ----
// A kernel comes before its Coll when the helper has left the stream of the Coll and is preempted
// before it reaches the stream of the kernel; the next pass finds the Coll. So nothing is given up
// before a further pass.
void tracker_expire(const struct clock_pair *now, u64 hz, bool last) {
    anchor = *now;
    ns_per_tick = hz ? 1e9 / (double)hz : 0;
    if (++heartbeats % WINDOW_HEARTBEATS == 0) {
        bound_before = bound_now;
        bound_now = NO_BOUND;
    }
    if (!have_memory() || !(pass_done || last)) return;
    pass_done = false;
    if (timing_policy.by_events) sampled_launches_settle(last);
    for (u32 at = 0; at < MAX_PENDING; at++) {
        struct operation *operation = &tracker_operations[at];
        if (!operation->handle) continue;
        bool overtaken = operation->has_work && operation->comm < NO_COMM &&
                         tracker_progress[operation->comm].newest_done_order > operation->order;
        bool closed = operation->comm < NO_COMM && !comm_is_open(operation->comm);
        bool all_ended = operation->stopped && operation->stopped == operation->started;
        // An unknown number of channels is complete when later work has come to its end.
        bool over = overtaken || closed || (operation->channels == 0 && all_ended);
        over |= !operation->has_work;  // kernels of an operation that was dropped
        if (!over || (++operation->heartbeats < 2 && !last)) continue;
        bool complete = operation->channels == 0 && all_ended;
        finish(operation, complete);
        at--;  // another one may have moved here
    }
}
