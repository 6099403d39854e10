// A process in which nothing is open and nothing in flight, in one pass over its slots, and which
// processes are too large for it.
#include <string.h>

#include "arrays.h"

#define NOWHERE (-1)

// The last work of a communicator, in the order of starts; of equal ones, in that of Coll, P2p and
// keys.
struct last_work {
    i64 start_ns, key, channels, started, ended;
    int sends;
};

enum { MOST_COMMS = 1024 };  // a process with more is read event by event

// The place of a communicator; `guess`: that of the event before.
static i64 place_of(const struct settled *found, i64 comm, i64 guess) {
    if (guess >= 0 && found->comm[guess] == comm) return guess;
    for (i64 place = 0; place < found->comms; place++)
        if (found->comm[place] == comm) return place;
    return NOWHERE;
}

static void count(struct settled *found, i64 place, int kind, const union slot *slot) {
    found->counts[place * 4 + kind]++;
    found->last[place * 4 + kind] = (u64)(uintptr_t)slot;
}

static void add_work(struct last_work *last, i64 start_ns, i64 key, i64 channels, int sends) {
    int later = start_ns > last->start_ns || (start_ns == last->start_ns && sends >= last->sends);
    if (last->key == NONE || later)
        *last = (struct last_work){start_ns, key, channels, 0, 0, sends};
}

static int is_over(const struct last_work *last, int reporting) {
    if (last->key == NONE || reporting == REPORTS_NOTHING) return 1;
    if (reporting == REPORTS_PARTLY) return last->ended > 0 && last->ended >= last->started;
    return last->ended >= (last->channels > 1 ? last->channels : 1);
}

static int is_stopped(const union slot *slot) { return (slot->states & STATE_STOPPED) != 0; }

// Takes one event; returns 0 where something is open, or a thread reported a state of another's.
static int take(const struct slot_log *log, const struct tick_converter *converter,
                struct settled *found, struct last_work *works, const union slot *slot, i64 key,
                i64 *guess, struct line_piece *near) {
    i64 comm = NONE;
    switch (slot->kind) {
        case KIND_state: return 0;
        case KIND_group:
        case KIND_group_api:
        case KIND_proxy_op:
        case KIND_proxy_step: break;
        case KIND_coll: comm = slot->coll.comm; break;
        case KIND_p2p: comm = slot->p2p.comm; break;
        case KIND_coll_api: comm = slot->coll_api.comm; break;
        case KIND_p2p_api: comm = slot->p2p_api.comm; break;
        case KIND_kernel_ch: comm = slot->kernel_ch.comm; break;
        default: return 1;
    }
    if (!possible(log, slot)) return 1;
    int stopped = is_stopped(slot);
    i64 start_ns = time_of(converter, slot->group.t0, near), stop_ns = NONE;
    if (stopped) stop_ns = time_of(converter, slot->group.t1, near);
    if (start_ns > found->newest_ns) found->newest_ns = start_ns;
    if (stop_ns > found->newest_ns) found->newest_ns = stop_ns;
    i64 place = comm == NONE ? NOWHERE : place_of(found, comm, *guess);
    if (place != NOWHERE) *guess = place;
    switch (slot->kind) {
        case KIND_group: break;
        case KIND_group_api:
        case KIND_proxy_op:
        case KIND_proxy_step: return stopped;
        case KIND_coll_api:
            if (place != NOWHERE) count(found, place, SETTLED_COLL_API, slot);
            break;
        case KIND_p2p_api:
            if (place != NOWHERE) count(found, place, SETTLED_P2P_API, slot);
            break;
        case KIND_coll:
            if (place == NOWHERE) break;
            count(found, place, SETTLED_COLL, slot);
            add_work(&works[place], start_ns, key, slot->coll.channels, 0);
            break;
        case KIND_p2p:
            if (place == NOWHERE) break;
            count(found, place, SETTLED_P2P, slot);
            add_work(&works[place], start_ns, key, slot->chan, 1);
            break;
        case KIND_kernel_ch:
            if (!stopped || found->kernels == found->room) return 0;
            found->parent[found->kernels] = key_of(converter, slot->kernel_ch.parent);
            found->took_ns[found->kernels] = stop_ns - start_ns;
            found->place[found->kernels++] = (i32)place;
            if (place != NOWHERE && stop_ns > found->newest_stop_ns[place])
                found->newest_stop_ns[place] = stop_ns;
            break;
        default: break;
    }
    return 1;
}

// Sums up a process's events by communicator. Returns 0, and leaves them half done, unless every
// event has stopped, every work is over, and no thread reported states of another thread's events.
EXPORT int ncclscope_settle(const struct slot_log *log, const struct tick_converter *converter,
                            struct settled *found) {
    struct last_work works[MOST_COMMS];
    struct line_piece near = NO_PIECE;
    i64 guess = NOWHERE;
    if (found->comms > MOST_COMMS) return 0;
    for (i64 place = 0; place < found->comms; place++) {
        works[place] = (struct last_work){.key = NONE};
        found->newest_stop_ns[place] = NONE;
    }
    memset(found->counts, 0, (size_t)found->comms * 4 * sizeof *found->counts);
    memset(found->last, 0, (size_t)found->comms * 4 * sizeof *found->last);
    found->kernels = 0;
    for (i64 block = 0; block < log->blocks; block++) {
        i64 slots_count;
        const union slot *slots = block_slots(log, block, &slots_count);
        for (i64 i = 0; i < slots_count; i++) {
            __builtin_prefetch(&slots[i + 64]);
            if (!take(log, converter, found, works, &slots[i], log->key[block] + i, &guess, &near))
                return 0;
        }
    }
    for (i64 k = 0; k < found->kernels; k++)
        for (i64 place = 0; place < found->comms; place++)
            if (works[place].key != NONE && works[place].key == found->parent[k]) {
                works[place].started++;
                works[place].ended++;
            }
    for (i64 place = 0; place < found->comms; place++)
        if (!is_over(&works[place], found->reporting[place])) return 0;
    return 1;
}
