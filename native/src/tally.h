// Exact counts of calls, by communicator, function, count, datatype, algorithm and protocol.
//
// Counted in the callback itself, whether or not there is room to record the event. Each stream
// that makes calls has a table of its own, a chunk of Tally slots: a shared counter would need
// locked instructions, and those wait until every store before them has reached memory. What finds
// no place in its stream's table goes to a shared one.
#ifndef NCCLSCOPE_TALLY_H
#define NCCLSCOPE_TALLY_H

#include "slot.h"
#include "stream.h"

// Past so many keys in a stream's table, new ones are folded into powers of two of their count.
#define TALLY_EXACT_KEYS 768u

struct tally_key {
    u64 word;   // comm, level, func, dtype, algo, proto, bits: as in a Tally slot
    u64 count;  // elements, as NCCL gives them
};

static inline struct tally_key tally_key(u32 comm, enum tally_level level, u8 func, u8 dtype,
                                         u8 algo, u8 proto, u8 bits, u64 count) {
    u64 word = (u64)(u16)comm | (u64)level << 16 | (u64)func << 24 | (u64)dtype << 32 |
               (u64)algo << 40 | (u64)proto << 48 | (u64)bits << 56;
    return (struct tally_key){word, count};
}

static inline u32 tally_hash(struct tally_key key) {
    return (u32)(((key.word ^ key.count * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u) >> 40);
}

static inline bool tally_matches(const union slot *entry, struct tally_key key) {
    return __atomic_load_n(&entry->words[4], __ATOMIC_RELAXED) == key.word &&
           __atomic_load_n(&entry->tally.count, __ATOMIC_RELAXED) == key.count;
}

// By the table's owner: nobody else writes.
static inline void tally_add(union slot *entry, u64 count) {
    SLOT_STORE(entry->tally.calls, entry->tally.calls + 1);
    SLOT_STORE(entry->tally.count_sum, entry->tally.count_sum + count);
}

// Counts a call whose entry is not where it is expected first. pen may be NULL.
COLD void tally_slow(struct writer *writer, struct tally_key key);

// The key's entry if it is where it is expected first.
static inline union slot *tally_find_fast(const struct writer *writer, struct tally_key key) {
    if (UNLIKELY(!writer->tally)) return NULL;
    union slot *entry = &writer->tally[tally_hash(key) % CHUNK_SLOTS];
    return LIKELY(tally_matches(entry, key)) ? entry : NULL;
}

// Most calls are like those before: their entries are on their way before they are needed.
static inline void tally_note_recent(struct writer *writer, const union slot *entry) {
    writer->recent_entries[writer->recent_next++ % RECENT_ENTRIES] = (u16)(entry - writer->tally);
}
static inline void tally_prefetch_recent(const struct writer *writer) {
    if (!writer->tally) return;
    for (unsigned i = 0; i < RECENT_ENTRIES; i++)
        slot_prefetch_for_write(&writer->tally[writer->recent_entries[i]]);
}

static inline void tally_call(struct writer *writer, struct tally_key key) {
    union slot *entry = LIKELY(writer != NULL) ? tally_find_fast(writer, key) : NULL;
    if (LIKELY(entry != NULL)) tally_add(entry, key.count);
    else tally_slow(writer, key);
}

// The key under which a size is counted once there are too many of them.
struct tally_key tally_folded(struct tally_key key);
// The catch-all of a level.
struct tally_key tally_other(struct tally_key key);

// Helper: the key that a call is counted under, as far as the tables tell: its own, its size class,
// or the catch-all of its level.
struct tally_key tally_counted_as(struct tally_key key);
// Helper: shows every entry there is. The same key may come several times.
void tally_visit(void (*visit)(struct tally_key key, u64 calls, u64 count_sum));
// In a fork child: the tables are the parent's.
void tally_forget(void);
// The shared table in the arena's front.
void tally_setup(void);

#endif
