// A process in which nothing is open and nothing in flight, in one pass over its slots, and which
// processes are too large for it.
#include <stdlib.h>
#include <string.h>

#include "arrays.h"

#define NOWHERE (-1)

// The last work of a communicator, in the order of starts; of equal ones, in that of Coll, P2p and
// keys.
struct last_work {
    i64 start_ns, key, channels, started, ended;
    int sends;
};

enum { MOST_COMMS = 1024 };    // a process with more is read event by event
enum { MOST_BLOCKS = 10000 };  // a file with more is: sorting them would take longer

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

// How far the pass is: the place of the last event's communicator, the piece of the clock that the
// last time was on, the last ticks so far, and the last work of each communicator.
struct pass {
    i64 guess;
    struct line_piece near;
    u64 newest_ticks;
    struct last_work works[MOST_COMMS];
};

// Takes one event; returns 0 where something is open, or a thread reported a state of another's.
static int take(const struct slot_log *log, const struct tick_converter *converter,
                struct settled *found, struct pass *now, const union slot *slot, i64 key) {
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
    if (slot->group.t0 > now->newest_ticks) now->newest_ticks = slot->group.t0;
    if (stopped && slot->group.t1 > now->newest_ticks) now->newest_ticks = slot->group.t1;
    i64 place = comm == NONE ? NOWHERE : place_of(found, comm, now->guess), start_ns, stop_ns;
    if (place != NOWHERE) now->guess = place;
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
            start_ns = time_of(converter, slot->group.t0, &now->near);
            add_work(&now->works[place], start_ns, key, slot->coll.channels, 0);
            break;
        case KIND_p2p:
            if (place == NOWHERE) break;
            count(found, place, SETTLED_P2P, slot);
            start_ns = time_of(converter, slot->group.t0, &now->near);
            add_work(&now->works[place], start_ns, key, slot->chan, 1);
            break;
        case KIND_kernel_ch:
            if (!stopped || found->kernels == found->room) return 0;
            start_ns = time_of(converter, slot->group.t0, &now->near);
            stop_ns = time_of(converter, slot->group.t1, &now->near);
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

static int begin(struct pass *pass, struct settled *found) {
    if (found->comms > MOST_COMMS) return 0;
    pass->guess = NOWHERE;
    pass->near = NO_PIECE;
    pass->newest_ticks = 0;
    for (i64 place = 0; place < found->comms; place++) {
        pass->works[place] = (struct last_work){.key = NONE};
        found->newest_stop_ns[place] = NONE;
    }
    memset(found->counts, 0, (size_t)found->comms * 4 * sizeof *found->counts);
    memset(found->last, 0, (size_t)found->comms * 4 * sizeof *found->last);
    found->kernels = 0;
    return 1;
}

static int take_all(const struct slot_log *log, const struct tick_converter *converter,
                    struct settled *found, struct pass *pass, const union slot *slots, i64 count,
                    i64 key) {
    for (i64 i = 0; i < count; i++) {
        __builtin_prefetch(&slots[i + 64]);
        if (!take(log, converter, found, pass, &slots[i], key + i)) return 0;
    }
    return 1;
}

// Returns 0 where a work is in flight.
static int end(const struct tick_converter *converter, struct settled *found, struct pass *pass) {
    struct last_work *works = pass->works;
    // The later the ticks, the later the time: one of them need be turned into that.
    i64 newest_ns = time_of(converter, pass->newest_ticks, &pass->near);
    if (pass->newest_ticks && newest_ns > found->newest_ns) found->newest_ns = newest_ns;
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

// Sums up a process's events by communicator. Returns 0, and leaves them half done, unless every
// event has stopped, every work is over, and no thread reported states of another thread's events.
EXPORT int ncclscope_settle(const struct slot_log *log, const struct tick_converter *converter,
                            struct settled *found) {
    struct pass pass;
    if (!begin(&pass, found)) return 0;
    for (i64 block = 0; block < log->blocks; block++) {
        i64 count;
        const union slot *slots = block_slots(log, block, &count);
        if (!take_all(log, converter, found, &pass, slots, count, log->key[block])) return 0;
    }
    return end(converter, found, &pass);
}

// ---- a whole log of one file ----

// A run of neighbouring slots in a file.
struct block {
    i64 key, row, length;  // of its first slot; how many it has
};
struct blocks {
    i64 count, room;
    struct block *of;
};

static int add_block(struct blocks *blocks, const union slot *head, i64 row) {
    if (blocks->count == blocks->room) {
        blocks->room = blocks->room ? 2 * blocks->room : 64;
        struct block *more = realloc(blocks->of, (size_t)blocks->room * sizeof *more);
        if (!more) return 0;
        blocks->of = more;
    }
    i64 key = (i64)head->block.stream << INDEX_BITS | (i64)head->block.first;
    blocks->of[blocks->count++] = (struct block){key, row, 0};
    return blocks->count <= MOST_BLOCKS;
}

// Finds the blocks of a file; returns 0 where something in it is not as the recorder writes it, was
// written twice, or is a range.
static int find_blocks(const union slot *slots, i64 count, struct blocks *blocks) {
    i64 left = 0;   // slots that the block still has
    u32 check = 0;  // of the block's next slot
    for (i64 row = 0; row < count; row++) {
        const union slot *slot = &slots[row];
        __builtin_prefetch(slot + 64);
        if (slot->kind == KIND_block) {
            int sound = slot->block.stream < CONTEXT_STREAM && slot->block.first <= INDEX_MASK;
            if (left || !sound || !add_block(blocks, slot, row + 1)) return 0;
            left = slot->block.count;
            check = (u32)slot->block.first;
            continue;
        }
        if (slot->kind == KIND_updates || slot->kind == KIND_state || slot->kind == KIND_range)
            return 0;
        if (!left || slot->check != check++) return 0;
        left--;
        blocks->of[blocks->count - 1].length++;
    }
    return 1;  // the last block may be cut off
}

// Brings blocks into the order of their keys. Those of one thread are in order already.
static void sort_blocks(struct blocks *blocks) {
    for (i64 i = 1; i < blocks->count; i++) {
        struct block own = blocks->of[i];
        i64 place = i;
        for (; place && blocks->of[place - 1].key > own.key; place--)
            blocks->of[place] = blocks->of[place - 1];
        blocks->of[place] = own;
    }
}

// The same of a process whose log is one file. Returns 0 also where that is damaged, has newer
// versions of slots, or ranges: whoever reads all of it knows what to do with these.
EXPORT int ncclscope_settle_segment(const union slot *slots, i64 count, u64 low_ticks,
                                    u64 high_ticks, const struct tick_converter *converter,
                                    struct settled *found) {
    struct blocks blocks = {0};
    struct pass pass;
    int settled = find_blocks(slots, count, &blocks) && begin(&pass, found);
    if (settled) sort_blocks(&blocks);
    struct slot_log limits = {.low_ticks = low_ticks, .high_ticks = high_ticks};
    for (i64 i = 0; settled && i < blocks.count; i++) {
        const struct block *block = &blocks.of[i];
        settled = take_all(&limits, converter, found, &pass, slots + block->row, block->length,
                           block->key);
    }
    free(blocks.of);
    return settled && end(converter, found, &pass);
}
