// What is in flight, for the live page and for `status`.
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "timing_policy.h"
#include "totals.h"
#include "tracker.h"
#include "tracker_state.h"

u64 tracker_calls(void) {
    u64 sum = 0;
    for (u32 comm = 0; comm < tracker_comms_seen; comm++) sum += tracker_progress[comm].calls;
    return sum;
}

static int older(const void *left, const void *right) {
    const union slot *a = left, *b = right;
    u64 x = a->live_op.t_work, y = b->live_op.t_work;
    return x < y ? -1 : x > y;
}

// Works without slots are in the totals only.
static void use_counted_works(void) {
    if (!timing_policy.by_events) return;
    for (u32 comm = 0; comm < tracker_comms_seen; comm++)
        if (!comm_reports_kernels((u16)comm)) tracker_progress[comm].works = 0;
    for (u32 place = 0; place < totals_places(); place++) {
        const struct totals_entry *entry = totals_at(place);
        u16 comm = entry ? (u16)entry->key.word : (u16)NO_COMM;
        if (comm < tracker_comms_seen && tally_level(entry->key) == LEVEL_WORK &&
            !comm_reports_kernels(comm))
            tracker_progress[comm].works += entry->calls;
    }
}

// After totals_update.
size_t tracker_live(union slot *out, size_t room) {
    size_t used = 0;
    use_counted_works();
    for (u32 comm = 0; comm < tracker_comms_seen && used < room / 2; comm++) {
        const struct progress *at = &tracker_progress[comm];
        if (!at->calls && !at->works) continue;
        struct slot_live_comm *slot = &out[used].live_comm;
        memset(slot, 0, sizeof *slot);
        slot->comm = (u16)comm;
        slot->calls = at->calls;
        slot->works = at->works;
        slot->done = at->done;
        slot->t_last_call = at->t_last_call;
        slot->t_last_done = at->t_last_done;
        slot->count = at->count;
        slot->func = at->func;
        slot->dtype = at->dtype;
        slot->root_or_peer = at->root_or_peer;
        out[used].head = head_word(KIND_live_comm, 0, 0, used);
        used++;
    }
    size_t first = used;
    for (u32 at = 0; at < MAX_PENDING && used < room; at++) {
        const struct operation *operation = &tracker_operations[at];
        if (!operation->handle || !operation->has_work) continue;
        struct slot_live_op *slot = &out[used].live_op;
        memset(slot, 0, sizeof *slot);
        slot->handle = operation->handle;
        slot->t_call = operation->t_call;
        slot->t_work = operation->t_work;
        slot->count = operation->count;
        slot->order = operation->order;
        slot->comm = operation->comm;
        slot->func = operation->func;
        slot->dtype = operation->dtype;
        slot->algo = operation->algo;
        slot->proto = operation->proto;
        slot->channels = operation->channels;
        slot->started = operation->started;
        slot->stopped = operation->stopped;
        slot->bits = operation->captured ? TALLY_CAPTURED : 0;
        slot->peer = operation->peer;
        out[used].head = head_word(KIND_live_op, 0, 0, used);
        used++;
    }
    qsort(out + first, used - first, sizeof *out, older);
    for (size_t i = first; i < used; i++) out[i].head = head_word(KIND_live_op, 0, 0, i);
    return used;
}
