// Moves slots from streams to the tracker and the sink.
//
// A slot is visited once, in the order of its stream: when its event has ended, or as it stands
// when the event has been open for longer than `patience`. A slot that was visited while open is
// put on a list and revisited at each pass until it is final: its event ended, its chunk left the
// owner's window (stream.h), or the owner exited. On disk, newer versions of a slot follow it as
// updates.
//
// Example, with a patience of 1 s and a pass every 0.5 s. A stream holds slot 1 (ended), slot 2 (an
// event that stays open for 3 s) and slot 3 (ended).
//   pass at 0.5 s  visits slot 1 and writes it. Slot 2 is open and young: the pass leaves the
//   stream
//                  there, so that slots reach the disk in order.
//   pass at 1.5 s  slot 2 has been open for too long: it is written as it stands and put on the
//                  list. Slot 3 is visited and written.
//   pass at 3.5 s  slot 2 has ended: its newest version is written as an update, and it leaves the
//                  list.
// A chunk is freed once all its slots have been visited, none of them is on the list, and the owner
// may no longer edit them. A head of 0 in the middle of a chunk means that the owner is filling
// that slot. Where the owner may no longer edit it, somebody took the memory away.
#define _GNU_SOURCE
#include "drain.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "group_writing.h"
#include "sink.h"
#include "tracker.h"
#include "training_steps.h"

// A slot that was visited while open.
struct open_slot {
    u32 stream, chunk;
    u64 index, head, since;
    bool written;   // to disk, in this state
    bool of_group;  // goes where its group went
};
static struct open_slot *open_slots;
static size_t open_count, open_room;
static u16 open_in_chunk[MAX_CHUNKS];

// Of one stream, in one pass: 2 MB. A helper thread that gets little of a CPU needs seconds for a
// full arena, and its owners fill the rest meanwhile.
#define MOST_IN_A_PASS (32u * CHUNK_SLOTS)
static bool left_some;  // the last pass did

// Whether a chunk is older than the window of its stream's owner: nobody edits its slots any more.
static bool outside_window(u64 newest_number, u64 number) {
    return newest_number > number && newest_number - number > callback_state.window;
}

// Whether nobody can change that slot any more. Ask before reading the slot.
static bool is_final(const struct stream *stream, u64 index) {
    u64 newest = __atomic_load_n(&stream->published_chunk_number, __ATOMIC_ACQUIRE);
    return stream->owner_exited || outside_window(newest, index >> CHUNK_SLOTS_LOG2);
}

static u64 handle_of(const struct stream *stream, u64 index) {
    return stream->prefix | (index & INDEX_MASK);
}

static union slot *slot_of(u32 chunk, u64 index) {
    return arena_chunk(chunk) + (index & (CHUNK_SLOTS - 1));
}

static void remember_open(const struct stream *stream, u32 chunk, u64 index, u64 head, u64 now,
                          bool written) {
    bool of_group = group_writing_follows_group(stream, head_kind(head));
    if (open_count == open_room) {
        size_t room = open_room ? open_room * 2 : 1024;
        void *grown = realloc(open_slots, room * sizeof *open_slots);
        if (!grown) {  // its end will be missing from the log, not from the arena
            arena_count(COUNTER_updates_dropped, 0);
            return;
        }
        open_slots = grown;
        open_room = room;
    }
    open_slots[open_count++] =
        (struct open_slot){(u32)(stream - streams), chunk, index, head, now, written, of_group};
    open_in_chunk[chunk]++;
}

// The tracker gets a copy: the owner may be editing the slot itself.
static void notify_tracker(const struct stream *stream, const union slot *slot, u64 head, u64 index,
                           bool first_sight) {
    switch (head_kind(head)) {
        case KIND_coll:
        case KIND_p2p:
        case KIND_coll_api:
        case KIND_p2p_api:
        case KIND_kernel_ch:
        case KIND_group_api:
        case KIND_kernel_launch:
        case KIND_launch_time: break;
        case KIND_range: {
            union slot range;
            slot_copy(&range, slot, head);
            training_steps_see(handle_of(stream, index), &range);
            return;
        }
        default: return;
    }
    union slot copy[2];
    slot_copy(&copy[0], slot, head);
    if (head_flags(head) & FLAG_EXT) slot_copy(&copy[1], slot + 1, slot_head(slot + 1));
    tracker_update(handle_of(stream, index), copy, first_sight);
}

static void write_update(const struct stream *stream, const union slot *slot, u64 head, u64 index) {
    sink_begin(KIND_updates, stream, index);
    sink_slot(slot, head);
    sink_end();
}

// A slot by itself, with the one that extends it.
static void write_now(const struct stream *stream, const union slot *slot, u64 head, u64 index) {
    sink_begin(KIND_block, stream, index);
    sink_slot(slot, head);
    if (head_flags(head) & FLAG_EXT) sink_slot(slot + 1, slot_head(slot + 1));
    sink_end();
}

// Looks again at slots that were open when they were visited, and forgets those that are final now.
static u64 revisit(const struct drain_pass *pass) {
    u64 changes = 0;
    size_t kept = 0;
    for (size_t i = 0; i < open_count; i++) {
        struct open_slot *open = &open_slots[i];
        const struct stream *stream = &streams[open->stream];
        bool final = is_final(stream, open->index);
        union slot *slot = slot_of(open->chunk, open->index);
        u64 head = slot_head(slot);
        bool closed = !head_is_open(head);
        bool changed = head != open->head || head_kind(head) == KIND_state;
        if (closed && open->head != head) notify_tracker(stream, slot, head, open->index, false);
        // Visited before slots went to disk.
        if (!open->written && !open->of_group && pass->use == TO_DISK) {
            write_now(stream, slot, head, open->index);
            open->written = true;
            open->head = head;
            changed = head_kind(head) == KIND_state;
            changes++;
        }
        bool late = pass->now - open->since > pass->patience;
        if (changed && open->written && (closed || final || late)) {
            write_update(stream, slot, head, open->index);
            open->since = pass->now;
            open->head = head;  // only now: what is not on disk yet is still a change
            changes++;
        }
        if (closed || final) open_in_chunk[open->chunk]--;
        else open_slots[kept++] = *open;
    }
    open_count = kept;
    return changes;
}

// A stream that a thread has taken since the last pass.
static void adopt(struct stream *stream) {
    stream->adopted = true;
    stream->oldest_chunk = stream->visited.chunk = stream->written.chunk = stream->first_chunk;
    stream->oldest_number = stream->first_index >> CHUNK_SLOTS_LOG2;
    stream->visited.index = stream->written.index = stream->first_index + 1;
    stream->idle_passes = 0;
    group_writing_forget(stream);
    // Thread ids are reused, but never shared: whoever had this one before has exited.
    if (stream->tid == 0) return;  // the system did not say
    for (u32 number = 0; number < __atomic_load_n(&streams_used, __ATOMIC_RELAXED); number++)
        if (&streams[number] != stream && streams[number].adopted &&
            streams[number].tid == stream->tid)
            streams[number].owner_exited = true;
}

// The next slot of a cursor's chunk chain; NULL: none has been begun.
static union slot *slot_at(struct cursor *cursor) {
    if ((cursor->index & (CHUNK_SLOTS - 1)) == 0) {  // the chunk is done
        u32 next = __atomic_load_n(&arena_next[cursor->chunk - 1], __ATOMIC_ACQUIRE);
        if (next == 0) return NULL;
        cursor->chunk = next;
        cursor->index++;  // past the next chunk's own Block slot
    }
    return slot_of(cursor->chunk - 1, cursor->index);
}

static u64 visit_slots(struct stream *stream, const struct drain_pass *pass) {
    u64 visited = 0;
    union slot *slot;
    while ((slot = slot_at(&stream->visited)) != NULL) {
        u64 index = stream->visited.index;
        bool final = is_final(stream, index);
        u64 head = slot_head(slot);
        if (head == 0) {
            bool later = (index >> CHUNK_SLOTS_LOG2) <
                         __atomic_load_n(&stream->published_chunk_number, __ATOMIC_ACQUIRE);
            if (!final || !later) break;
            arena_count(COUNTER_slots_lost, 0);  // somebody took the memory away
            stream->visited.index++;
            continue;
        }
        bool is_open = head_is_open(head) && !final;
        if (is_open) {
            // A range may stay open for as long as the job runs: nothing waits for it.
            bool old = pass->everything || head_kind(head) == KIND_range ||
                       (i64)(pass->now - slot->group.t0) >
                           (i64)pass->patience;  // negative: begun since the pass
            if (!old) break;
        }
        bool write = group_writing_decide(stream, slot, head, handle_of(stream, index),
                                          pass->use == TO_DISK) &&
                     sink_is_open();
        if (is_open)
            remember_open(stream, stream->visited.chunk - 1, index, head, pass->now, write);
        notify_tracker(stream, slot, head, index, true);
        if (write) {
            sink_continue(stream, index);
            sink_slot(slot, head);
        }
        stream->visited.index++;
        visited++;
        if (visited == MOST_IN_A_PASS && !pass->everything) {
            left_some = true;
            break;
        }
    }
    sink_end();
    return visited;
}

static void free_chunk(u32 chunk) {
    union slot *slots = arena_chunk(chunk);
    for (unsigned i = 0; i < CHUNK_SLOTS; i++)
        __atomic_store_n(&slots[i].head, 0, __ATOMIC_RELAXED);
    arena_give_chunk(chunk);
}

// Whether the stream's oldest chunk is done with: visited, and final.
static bool oldest_is_over(const struct stream *stream) {
    if (!stream->oldest_chunk || open_in_chunk[stream->oldest_chunk - 1]) return false;
    u64 newest = __atomic_load_n(&stream->published_chunk_number, __ATOMIC_ACQUIRE);
    bool visited = stream->visited.chunk != stream->oldest_chunk;
    return stream->owner_exited || (visited && outside_window(newest, stream->oldest_number));
}

static void free_oldest(struct stream *stream) {
    u32 chunk = stream->oldest_chunk - 1;
    stream->oldest_chunk = __atomic_load_n(&arena_next[chunk], __ATOMIC_ACQUIRE);
    stream->oldest_number++;
    free_chunk(chunk);
}

// Frees the oldest chunk of the ring, and counts how much of it never reached the disk.
static void evict(struct stream *stream) {
    struct cursor *written = &stream->written;
    if (written->chunk == stream->oldest_chunk) {
        u64 left = -written->index & (CHUNK_SLOTS - 1);  // 0: all of the chunk is on disk
        arena_count_many(COUNTER_rotated_out, 0, left);
        written->index += left;
        slot_at(written);  // on to the next chunk
    }
    free_oldest(stream);
}

static u64 first_time(const struct stream *stream) {
    return arena_chunk(stream->oldest_chunk - 1)[1].group.t0;
}

static void limit_ring(u32 used) {
    while (__atomic_load_n(&arena.free_count, __ATOMIC_RELAXED) < arena.chunk_limit / 4) {
        struct stream *oldest = NULL;
        for (u32 number = 0; number < used; number++) {
            struct stream *stream = &streams[number];
            if (stream->adopted && oldest_is_over(stream) &&
                (!oldest || first_time(stream) < first_time(oldest)))
                oldest = stream;
        }
        if (!oldest) return;
        evict(oldest);
    }
}

static void free_chunks(struct stream *stream) {
    while (oldest_is_over(stream)) free_oldest(stream);
}

// A thread that has exited cannot write; its stream goes to the next one.
static bool owner_has_exited(const struct stream *stream, bool scarce) {
    if (stream->tid == 0) return false;
    if (stream->idle_passes % 16 != 4 && !(scarce && stream->idle_passes)) return false;
    return syscall(SYS_tgkill, getpid(), (pid_t)stream->tid, 0) != 0 && errno == ESRCH;
}

static void release(struct stream *stream) {
    stream->next_first_index = (stream->published_chunk_number + 1) << CHUNK_SLOTS_LOG2;
    stream->adopted = stream->owner_exited = false;
    stream_give_back(stream);
}

bool drain_is_due(void) {
    static u64 before;
    u64 now = 0;
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_ACQUIRE);
    for (u32 number = 0; number < used; number++)
        if (__atomic_load_n(&streams[number].attached, __ATOMIC_RELAXED))
            now += __atomic_load_n(&streams[number].published_chunk_number, __ATOMIC_RELAXED) + 1;
    bool due = now != before || left_some;
    before = now;
    return due;
}

u64 drain_streams(const struct drain_pass *pass) {
    left_some = false;
    u64 visited = revisit(pass);
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_ACQUIRE);
    for (u32 number = 0; number < used; number++) {
        struct stream *stream = &streams[number];
        if (!__atomic_load_n(&stream->attached, __ATOMIC_ACQUIRE)) continue;
        if (!stream->adopted) adopt(stream);
        if (!stream->owner_exited) stream->owner_exited = owner_has_exited(stream, pass->scarce);
        u64 here = visit_slots(stream, pass);
        visited += here;
        stream->idle_passes = here ? 0 : stream->idle_passes + 1;
    }
    tracker_pass_done();
    sink_flush();  // before chunks are freed: what they hold must be on disk first
    if (pass->use == TO_RING) limit_ring(used);
    for (u32 number = 0; number < used; number++) {
        struct stream *stream = &streams[number];
        if (!stream->adopted) continue;
        if (pass->use != TO_RING) free_chunks(stream);
        if (stream->owner_exited && !stream->oldest_chunk) release(stream);
    }
    return visited;
}

static void mark_written(const struct stream *stream, u64 index, u64 head) {
    for (size_t i = 0; i < open_count; i++)
        if (&streams[open_slots[i].stream] == stream && open_slots[i].index == index) {
            open_slots[i].written = true;
            open_slots[i].head = head;
        }
}

void drain_copy_out(const struct drain_pass *pass) {
    struct drain_pass all = *pass;
    all.everything = true;
    drain_streams(&all);  // so that every open slot is on the list
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_ACQUIRE);
    for (u32 number = 0; number < used; number++) {
        struct stream *stream = &streams[number];
        if (!stream->adopted) continue;
        while (stream->written.index < stream->visited.index) {
            union slot *slot = slot_at(&stream->written);
            if (!slot || stream->written.index >= stream->visited.index) break;
            u64 head = slot_head(slot);
            if (head_is_open(head)) mark_written(stream, stream->written.index, head);
            sink_continue(stream, stream->written.index);
            sink_slot(slot, head);
            stream->written.index++;
        }
        sink_end();
    }
    sink_flush();
}

static size_t copy_open(union slot *out, size_t room, bool ranges) {
    size_t used = 0;
    for (size_t i = 0; i < open_count && used + 2 <= room; i++) {
        const struct open_slot *open = &open_slots[i];
        const struct stream *stream = &streams[open->stream];
        union slot *slot = slot_of(open->chunk, open->index);
        u64 head = slot_head(slot);
        if (!head_is_open(head) || head_check(head) != (u32)open->index) continue;
        if ((head_kind(head) == KIND_range) != ranges) continue;
        memset(&out[used], 0, sizeof *out);
        out[used].block.first = open->index;
        out[used].block.stream = open->stream;
        out[used].block.count = 1;
        out[used].block.tid = stream->tid;
        memcpy(out[used].block.thread_name, stream->thread_name, sizeof stream->thread_name);
        out[used].head = head_word(KIND_updates, 0, 0, open->index);
        slot_copy(&out[used + 1], slot, head);
        used += 2;
    }
    return used;
}

// Ranges come last: they must not take the place of events.
size_t drain_open_slots(union slot *out, size_t room) {
    size_t used = copy_open(out, room, false);
    return used + copy_open(out + used, room - used, true);
}
