// Draining streams.
//
// A slot is written once its event has ended, or after a moment of patience as it stands; in the
// second case its newer versions follow as updates until it is final: its event ended, its chunk
// left the owner's window, or the owner is gone.
#define _GNU_SOURCE
#include "drain.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sink.h"

// Slots that were written while open.
struct open_slot {
    u32 stream, chunk;
    u64 index, written_head, written_at;
};
static struct open_slot *open_slots;
static size_t open_count, open_room;
static u16 open_in_chunk[MAX_CHUNKS];

// Nobody edits a slot of a chunk that is so much older than its stream's newest.
static bool outside_window(u64 newest_number, u64 number) {
    return newest_number > number && newest_number - number > stream_window;
}

static void remember_open(const struct stream *stream, u32 chunk, u64 index, u64 head, u64 now) {
    if (open_count == open_room) {
        size_t room = open_room ? open_room * 2 : 1024;
        void *grown = realloc(open_slots, room * sizeof *open_slots);
        if (!grown) return;  // its end will be missing from the log, not from the arena
        open_slots = grown;
        open_room = room;
    }
    open_slots[open_count++] = (struct open_slot){(u32)(stream - streams), chunk, index, head, now};
    open_in_chunk[chunk]++;
}

static union slot *slot_of(u32 chunk, u64 index) {
    return arena_chunk(chunk) + (index & (CHUNK_SLOTS - 1));
}

// Whether nobody can change that slot any more.
static bool is_final(const struct stream *stream, u64 index) {
    u64 newest = __atomic_load_n(&stream->published_chunk_number, __ATOMIC_ACQUIRE);
    return stream->gone || outside_window(newest, index >> CHUNK_SLOTS_LOG2);
}

// Writes newer versions of slots that were open when they were written, and forgets those that are
// final now.
static u64 write_updates(u64 now, u64 patience) {
    u64 written = 0;
    size_t kept = 0;
    for (size_t i = 0; i < open_count; i++) {
        struct open_slot *open = &open_slots[i];
        bool final =
            is_final(&streams[open->stream], open->index);  // asked before the slot is read
        union slot *slot = slot_of(open->chunk, open->index);
        u64 head = slot_head(slot);
        bool closed = !head_is_open(head);
        bool changed = head != open->written_head || head_kind(head) == KIND_state;
        if (changed && (closed || final || now - open->written_at > patience)) {
            sink_begin(KIND_updates, &streams[open->stream], open->index);
            sink_slot(slot, head);
            sink_end();
            written++;
            open->written_head = head;
            open->written_at = now;
        }
        if (closed || final) open_in_chunk[open->chunk]--;
        else open_slots[kept++] = *open;
    }
    open_count = kept;
    return written;
}

static void adopt(struct stream *stream) {
    stream->known = true;
    stream->oldest_chunk = stream->drain_chunk = stream->first_chunk;
    stream->oldest_number = stream->first_index >> CHUNK_SLOTS_LOG2;
    stream->drain_index = stream->first_index + 1;
    stream->idle_passes = 0;
    // Thread ids are reused, but never shared: whoever had this one before is gone.
    for (u32 number = 0; number < __atomic_load_n(&streams_used, __ATOMIC_RELAXED); number++)
        if (&streams[number] != stream && streams[number].known &&
            streams[number].tid == stream->tid)
            streams[number].gone = true;
}

static u64 drain_slots(struct stream *stream, const struct drain_pass *pass) {
    u64 written = 0;
    sink_begin(KIND_block, stream, stream->drain_index);
    for (;;) {
        u64 index = stream->drain_index;
        if ((index & (CHUNK_SLOTS - 1)) == 0) {  // the chunk is done
            u32 next = __atomic_load_n(&arena_next[stream->drain_chunk - 1], __ATOMIC_ACQUIRE);
            if (next == 0) break;
            stream->drain_chunk = next;
            stream->drain_index++;  // past the next chunk's own Block slot
            sink_end();
            sink_begin(KIND_block, stream, stream->drain_index);
            continue;
        }
        u32 chunk = stream->drain_chunk - 1;
        bool final = is_final(stream, index);
        union slot *slot = slot_of(chunk, index);
        u64 head = slot_head(slot);
        if (head == 0) break;
        if (head_is_open(head) && !final) {
            bool old = pass->everything || pass->now - slot->group.t0 > pass->patience;
            if (!old) break;
            remember_open(stream, chunk, index, head, pass->now);
        }
        sink_slot(slot, head);
        stream->drain_index++;
        written++;
    }
    sink_end();
    return written;
}

static void free_chunk(u32 chunk) {
    union slot *slots = arena_chunk(chunk);
    for (unsigned i = 0; i < CHUNK_SLOTS; i++)
        __atomic_store_n(&slots[i].head, 0, __ATOMIC_RELAXED);
    arena_give_chunk(chunk);
}

// Frees chunks that are on disk and that nobody can edit any more. The sink must have been flushed.
static void free_chunks(struct stream *stream) {
    u64 newest = __atomic_load_n(&stream->published_chunk_number, __ATOMIC_ACQUIRE);
    while (stream->oldest_chunk) {
        u32 chunk = stream->oldest_chunk - 1;
        bool drained = stream->drain_chunk != stream->oldest_chunk;
        bool final = stream->gone || (drained && outside_window(newest, stream->oldest_number));
        if (!final || open_in_chunk[chunk]) break;
        stream->oldest_chunk = __atomic_load_n(&arena_next[chunk], __ATOMIC_ACQUIRE);
        stream->oldest_number++;
        free_chunk(chunk);
    }
}

// A thread that is gone cannot write; its stream goes to the next one.
static bool owner_is_gone(const struct stream *stream) {
    if (stream->idle_passes % 16 != 4) return false;
    return syscall(SYS_tgkill, getpid(), (pid_t)stream->tid, 0) != 0 && errno == ESRCH;
}

bool drain_is_due(void) {
    static u64 before;
    u64 now = 0;
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_ACQUIRE);
    for (u32 number = 0; number < used; number++)
        if (__atomic_load_n(&streams[number].attached, __ATOMIC_RELAXED))
            now += __atomic_load_n(&streams[number].published_chunk_number, __ATOMIC_RELAXED) + 1;
    bool due = now != before;
    before = now;
    return due;
}

static void release(struct stream *stream) {
    stream->next_first_index = (stream->published_chunk_number + 1) << CHUNK_SLOTS_LOG2;
    stream->known = stream->gone = false;
    stream_recycle(stream);
}

u64 drain_streams(const struct drain_pass *pass) {
    u64 written = write_updates(pass->now, pass->patience);
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_ACQUIRE);
    for (u32 number = 0; number < used; number++) {
        struct stream *stream = &streams[number];
        if (!__atomic_load_n(&stream->attached, __ATOMIC_ACQUIRE)) continue;
        if (!stream->known) adopt(stream);
        if (!stream->gone) stream->gone = owner_is_gone(stream);
        u64 here = drain_slots(stream, pass);
        written += here;
        stream->idle_passes = here ? 0 : stream->idle_passes + 1;
    }
    sink_flush();  // a chunk that is handed out again must not be the only place of what it held
    for (u32 number = 0; number < used; number++) {
        struct stream *stream = &streams[number];
        if (!stream->known) continue;
        free_chunks(stream);
        if (stream->gone && !stream->oldest_chunk) release(stream);
    }
    return written;
}
