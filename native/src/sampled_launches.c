// Tables of groups, launches and captures, by hash of their handles.
#include "sampled_launches.h"

#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "meta.h"
#include "ncclscope/time_buckets.h"
#include "sink.h"
#include "stream.h"

#define GROUPS_KEPT 512u     // newest groups of calls
#define LAUNCHES_KEPT 1024u  // sampled launches whose times are not added up yet
#define KEYS_A_LAUNCH 12u    // different keys; further ones are counted as overrun
#define GRAPH_KEYS 8192u     // of captures; a power of two
#define PROBES 64u
#define HEARTBEATS_KEPT 120u  // after which a launch without a time is given up

static u32 hash_of(u64 value) { return (u32)((value * 0x9E3779B97F4A7C15u) >> 40); }

struct calls {
    struct tally_key key;
    u32 calls;
};

static struct group {
    u64 handle;  // of the GroupApi
    u32 keys;
    bool captured;  // its calls are counted under a capture
    struct calls calls[KEYS_A_LAUNCH];
} groups[GROUPS_KEPT];

static struct launch {
    u64 handle;  // 0: free
    u64 duration_ns;
    u32 heartbeats;
    bool has_slot, has_time, timed;
    u32 keys, operations;
    struct {
        struct totals_entry *entry;
        u32 operations;
    } of[KEYS_A_LAUNCH];
    u32 call_keys;
    struct calls calls[KEYS_A_LAUNCH];  // used where no operation was reported
} launches[LAUNCHES_KEPT];

// The newest launch of each stream.
static struct {
    u64 handle;
    u64 timed_group;  // the newest GroupApi that is timed itself
    u16 comm;
    bool sampled;
} newest[MAX_STREAMS];

static struct graph_key {
    u64 capture;  // 0: free
    struct tally_key key;
    u64 calls, written;
} graph_keys[GRAPH_KEYS];

static bool is_off;  // sampling is switched off for the time being

static u32 stream_of(u64 handle) { return (u32)(handle >> INDEX_BITS) & CONTEXT_STREAM; }

// ---- calls ----
static struct launch *launch_of(u64 handle, bool create);

static void add_calls_of_group(struct launch *launch, const struct group *group) {
    if (!group) return;
    launch->call_keys = group->keys;
    memcpy(launch->calls, group->calls, sizeof launch->calls);
}

void sampled_launches_note_group(u64 handle, const struct slot_group_api *slot) {
    u32 stream = stream_of(handle);
    if (!(slot->states & STATE_NOTED) || stream >= MAX_STREAMS) return;
    newest[stream].timed_group = handle;
}

// Its GroupApi comes before it, and in the same stream.
static void add_call_of_timed_group(const struct slot_coll_api *call, const struct group *group) {
    u32 stream = stream_of(call->parent);
    if (stream >= MAX_STREAMS || newest[stream].timed_group != call->parent) return;
    struct launch *launch = launch_of(call->parent, true);
    if (!launch) return;
    launch->has_slot = true;
    add_calls_of_group(launch, group);
}

static void count_call(struct group *group, const struct slot_coll_api *call) {
    u8 bits = call->flags & FLAG_GRAPH ? TALLY_CAPTURED : 0;
    struct tally_key key =
        tally_key(call->comm, LEVEL_CALL, call->func, call->dtype, 0, 0, bits, call->count);
    for (u32 i = 0; i < group->keys; i++)
        if (tally_same(group->calls[i].key, key)) {
            group->calls[i].calls++;
            return;
        }
    if (group->keys == KEYS_A_LAUNCH) return;
    group->calls[group->keys].key = key;
    group->calls[group->keys++].calls = 1;
}

void sampled_launches_note_call(const struct slot_coll_api *call) {
    if (!call->parent) return;
    struct group *group = &groups[hash_of(call->parent) % GROUPS_KEPT];
    if (group->handle != call->parent) *group = (struct group){.handle = call->parent};
    count_call(group, call);
    add_call_of_timed_group(call, group);
}

static struct group *group_of(u64 handle) {
    struct group *group = &groups[hash_of(handle) % GROUPS_KEPT];
    return handle && group->handle == handle ? group : NULL;
}

static void count_captured(u64 capture, struct tally_key key, u32 calls) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 place = hash_of(capture ^ key.word ^ key.count * 0xD6E8FEB86659FD93u) + probe;
        struct graph_key *at = &graph_keys[place % GRAPH_KEYS];
        if (at->capture && (at->capture != capture || !tally_same(at->key, key))) continue;
        at->capture = capture;
        at->key = key;
        at->calls += calls;
        return;
    }
}

static void count_captured_calls(u64 capture, struct group *group) {
    if (!group || group->captured) return;  // of a group with several launches once
    group->captured = true;
    for (u32 i = 0; i < group->keys; i++)
        count_captured(capture, group->calls[i].key, group->calls[i].calls);
}

// ---- launches ----
static struct launch *launch_of(u64 handle, bool create) {
    struct launch *free_place = NULL;
    for (u32 probe = 0; probe < PROBES; probe++) {
        struct launch *launch = &launches[(hash_of(handle) + probe) % LAUNCHES_KEPT];
        if (launch->handle == handle) return launch;
        if (!launch->handle && !free_place) free_place = launch;
    }
    if (!create || !free_place) return NULL;
    *free_place = (struct launch){.handle = handle};
    return free_place;
}

void sampled_launches_note_launch(u64 handle, const struct slot_kernel_launch *slot) {
    u32 stream = stream_of(handle);
    bool sampled = slot->states & STATE_NOTED;
    if (stream >= MAX_STREAMS) return;
    newest[stream].handle = handle;
    newest[stream].comm = slot->comm;
    newest[stream].sampled = sampled;
    if (slot->flags & FLAG_GRAPH) count_captured_calls(slot->capture, group_of(slot->parent));
    struct launch *launch = sampled ? launch_of(handle, true) : NULL;
    if (!launch) return;
    launch->has_slot = true;
    add_calls_of_group(launch, group_of(slot->parent));
}

void sampled_launches_note_time(const struct slot_launch_time *time) {
    bool of_group = time->chan;
    if (of_group && time->reason == TIMING_CAPTURED) {
        count_captured_calls(time->gpu_start_ns, group_of(time->parent));
        return;
    }
    struct launch *launch = launch_of(time->parent, true);
    if (!launch) return;
    launch->has_time = true;
    launch->timed = time->reason == TIMING_FINE;
    launch->duration_ns = time->gpu_stop_ns - time->gpu_start_ns;
}

static void count_untimed(struct totals_entry *entry, enum untimed reason, u32 operations) {
    entry->times.untimed[reason] += operations;
    entry->changed = true;
}

static void add_operation(struct launch *launch, struct totals_entry *entry, u32 operations) {
    launch->operations += operations;
    for (u32 i = 0; i < launch->keys; i++)
        if (launch->of[i].entry == entry) {
            launch->of[i].operations += operations;
            return;
        }
    if (launch->keys == KEYS_A_LAUNCH) {
        count_untimed(entry, UNTIMED_OVERRUN, operations);
        return;
    }
    launch->of[launch->keys].entry = entry;
    launch->of[launch->keys++].operations = operations;
}

void sampled_launches_note_operation(u64 handle, u16 comm, struct totals_entry *entry) {
    u32 stream = stream_of(handle);
    if (!entry || stream >= MAX_STREAMS) return;
    bool of_newest = newest[stream].handle && newest[stream].comm == comm;
    struct launch *launch =
        of_newest && newest[stream].sampled ? launch_of(newest[stream].handle, false) : NULL;
    if (launch) add_operation(launch, entry, 1);
}

// Nobody can tell later which of a key's calls were made in such a period, so its ends are noted. A
// key that comes up meanwhile has 0 for its begin.
void sampled_launches_note_switch(bool off) {
    if (off == is_off || !totals_update()) return;
    is_off = off;
    for (u32 place = 0; place < totals_places(); place++) {
        struct totals_entry *entry = totals_at(place);
        if (!entry) continue;
        if (!off) entry->off_before += entry->calls - entry->calls_at_off;
        entry->calls_at_off = off ? entry->calls : 0;
    }
}

static void count_off(struct totals_entry *entry) {
    u64 now = is_off ? entry->calls - entry->calls_at_off : 0;
    if (entry->times.timing_off == entry->off_before + now) return;
    entry->times.timing_off = entry->off_before + now;
    entry->changed = true;
}

// Works of launches that are not timed may have no slots, so these are what remains of a key's
// works. Operations of a launch whose time is not known yet are among them until it is.
void sampled_launches_count_not_sampled(struct totals_entry *entry) {
    count_off(entry);
    u16 comm = (u16)entry->key.word;
    if (tally_level(entry->key) != LEVEL_WORK || (comm < NO_COMM && comm_reports_kernels(comm)))
        return;
    struct times *times = &entry->times;
    u64 others = times->event_count + times->gpu_count + times->timing_off;
    for (unsigned reason = 0; reason < sizeof times->untimed / sizeof *times->untimed; reason++)
        if (reason != UNTIMED_NOT_SAMPLED) others += times->untimed[reason];
    u64 rest = entry->calls > others ? entry->calls - others : 0;
    if (times->untimed[UNTIMED_NOT_SAMPLED] == rest) return;
    times->untimed[UNTIMED_NOT_SAMPLED] = rest;
    entry->changed = true;
}

// ---- times ----
static void remember_firsts(struct times *times, u64 ns, u32 operations) {
    for (u64 i = times->event_count; i < sizeof times->event_first_buckets && operations; i++) {
        times->event_first_buckets[i] = (u8)time_bucket(ns);
        times->event_first_sum_ns += ns;
        operations--;
    }
}

static void add_time(struct totals_entry *entry, u64 ns, u32 operations, bool grouped) {
    struct times *times = &entry->times;
    if (times->event_count == 0 || ns < times->event_min_ns) times->event_min_ns = ns;
    if (ns > times->event_max_ns) times->event_max_ns = ns;
    remember_firsts(times, ns, operations);
    times->event_count += operations;
    times->event_sum_ns += ns * operations;
    times->event_histogram[time_bucket(ns)] += operations;
    if (grouped) times->event_grouped += operations;
    entry->changed = true;
}

// Where NCCL reports no work for a call, the time is the call's.
static void add_calls(struct launch *launch) {
    for (u32 i = 0; i < launch->call_keys; i++) {
        struct totals_entry *entry = totals_entry(tally_counted_as(launch->calls[i].key));
        if (entry) add_operation(launch, entry, launch->calls[i].calls);
    }
}

static void settle(struct launch *launch) {
    if (!launch->operations) add_calls(launch);
    for (u32 i = 0; i < launch->keys; i++) {
        struct totals_entry *entry = launch->of[i].entry;
        u32 operations = launch->of[i].operations;
        if (launch->timed) add_time(entry, launch->duration_ns, operations, launch->operations > 1);
        else count_untimed(entry, UNTIMED_LAUNCH, operations);
    }
    launch->handle = 0;
}

void sampled_launches_write_graph_calls(void) {
    static u32 folder_number;
    bool is_new = folder_number != sink_folders();  // the metadata was begun anew
    folder_number = sink_folders();
    for (struct graph_key *at = graph_keys; at < graph_keys + GRAPH_KEYS; at++) {
        if (is_new) at->written = 0;
        if (at->calls == at->written) continue;
        union slot slot = {0};
        slot.graph_call.capture = at->capture;
        slot.graph_call.count = at->key.count;
        slot.graph_call.calls = at->calls;
        slot.words[offsetof(struct slot_graph_call, comm) / 8] = at->key.word;
        if (meta_append(KIND_graph_call, &slot)) at->written = at->calls;
    }
}

static int by_handle(const void *left, const void *right) {
    u64 x = (*(struct launch *const *)left)->handle, y = (*(struct launch *const *)right)->handle;
    return x < y ? -1 : x > y;
}

// A launch waits for a heartbeat after its time came: its operations may be behind it in the pass.
// Handles count up in a stream, so first calls come first.
void sampled_launches_settle(bool last) {
    static struct launch *due[LAUNCHES_KEPT];
    u32 count = 0;
    for (u32 i = 0; i < LAUNCHES_KEPT; i++) {
        struct launch *launch = &launches[i];
        if (!launch->handle) continue;
        launch->heartbeats++;
        bool complete = launch->has_time && launch->has_slot && launch->heartbeats >= 2;
        if (complete || last || launch->heartbeats >= HEARTBEATS_KEPT) due[count++] = launch;
    }
    qsort(due, count, sizeof *due, by_handle);
    for (u32 i = 0; i < count; i++) settle(due[i]);
    sampled_launches_write_graph_calls();
}
