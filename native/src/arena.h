// The arena: memory that is populated before a callback needs it, in /dev/shm where that is
// possible.
//
// Layout: file header, counters, metadata ring, chunks. Chunks are pooled for the whole process;
// callbacks take them from a lock-free stack and the helper thread gives them back with their heads
// cleared.
#ifndef NCCLSCOPE_ARENA_H
#define NCCLSCOPE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "callback_state.h"
#include "free_list.h"
#include "slot.h"

#define MAX_CHUNKS 4096u  // 256 MB
#define NO_CHUNK FREE_LIST_EMPTY

struct arena {
    char *base;
    u32 chunk_limit;   // chunks the mapping has room for
    u32 chunks_ready;  // populated so far; the helper adds more ahead of need
    u32 low_priority_reserve;
    int fd;       // -1: anonymous, nothing of it survives the process
    int lock_fd;  // locked as long as the process lives
    bool growth_failed;
    bool is_foreign;  // in a fork child: the parent's
    char path[128];
    _Alignas(64) u64 free_chunks;  // a free_list
    u32 free_count;
};
extern HIDDEN struct arena arena;
// Why /dev/shm is not used although it could be: somebody else's path is in the way; else empty.
extern char arena_refused[128];

// Of a free chunk: the next one of the free list. Of a chunk in use: the stream's next chunk (0:
// none yet, else 1 + chunk).
extern u32 arena_next[MAX_CHUNKS];

// False when there is no memory at all: then nothing is recorded.
bool arena_create(const char *file_name);
// Populates one more extent, if there may be one; called by the helper, and once by arena_create.
bool arena_grow(void);
// Opens and locks the file again if the job closed it (descriptor.h): without the lock others take
// this process for dead.
void arena_look_after_files(void);
void arena_unlink(void);
// Gives the memory of all free chunks back to the system and never hands them out again.
void arena_shrink(void);
// In a fork child: the arena belongs to the parent.
void arena_forget(void);

u32 arena_take_chunk(bool low_priority);
void arena_give_chunk(u32 chunk);

// Offsets are constants here: those in the file's header are for readers, and the file may be
// truncated.
#define ARENA_COUNTERS MAX_HEADER_BYTES
#define ARENA_META (ARENA_COUNTERS + COUNTER_BYTES)
#define ARENA_TALLY (ARENA_META + META_SLOTS * SLOT_BYTES)
#define ARENA_CHUNKS (ARENA_TALLY + TALLY_SLOTS * SLOT_BYTES)

static inline size_t arena_bytes(void) {
    return ARENA_CHUNKS + (size_t)arena.chunk_limit * CHUNK_BYTES;
}
static inline union slot *arena_chunk(u32 chunk) {
    return (union slot *)(arena.base + ARENA_CHUNKS + (size_t)chunk * CHUNK_BYTES);
}
static inline u64 *arena_counter(enum counter counter, unsigned event) {
    return (u64 *)(arena.base + ARENA_COUNTERS) + (unsigned)counter * COUNTER_EVENTS + event;
}
// event: NCCL's event bit number, 0 where the event is not known.
static inline void arena_count(enum counter counter, unsigned event) {
    __atomic_fetch_add(arena_counter(counter, event & (COUNTER_EVENTS - 1)), 1, __ATOMIC_RELAXED);
}
static inline void arena_count_many(enum counter counter, unsigned event, u64 many) {
    __atomic_fetch_add(arena_counter(counter, event & (COUNTER_EVENTS - 1)), many,
                       __ATOMIC_RELAXED);
}

#endif
