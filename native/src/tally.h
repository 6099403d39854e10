// Exact counts of calls, by communicator, function, count, datatype, algorithm and protocol.
//
// Counted in the callback itself, whether or not there is room to record the event. Each stream
// that makes calls has a table of its own, a chunk of Tally slots: a shared counter would need
// locked instructions, and those wait until every store before them has reached memory. What finds
// no place in its stream's table goes to a shared one.
//
// Folding keeps the tables small. Example: once a stream has TALLY_EXACT_KEYS keys, an AllReduce of
// 1,500,000 floats that has no entry yet is counted under the key of 1,048,576 floats (the power of
// two below) with the bit TALLY_FOLDED; count_sum still adds up 1,500,000.
#ifndef NCCLSCOPE_TALLY_H
#define NCCLSCOPE_TALLY_H

#include "slot.h"
#include "writer.h"

// With more keys than this in a stream's table, new ones are folded: the last quarter of the chunk
// is left to folded keys.
#define TALLY_EXACT_KEYS (CHUNK_SLOTS / 4 * 3)

struct tally_key {
    u64 word;   // comm, level, func, dtype, algo, proto, bits: as in a Tally slot
    u64 count;  // elements, as NCCL gives them
};

// Where a field of a Tally slot is in the key's word.
#define TALLY_WORD (offsetof(struct slot_tally, comm) / 8)
#define TALLY_SHIFT(field) (8 * (offsetof(struct slot_tally, field) - 8 * TALLY_WORD))
_Static_assert(offsetof(struct slot_tally, comm) % 8 == 0 && TALLY_SHIFT(bits) == 56,
               "a key is one word of its slot, and its count");

static inline struct tally_key tally_key(u32 comm, enum tally_level level, u8 func, u8 dtype,
                                         u8 algo, u8 proto, u8 bits, u64 count) {
    u64 word = (u64)(u16)comm | (u64)level << TALLY_SHIFT(level) | (u64)func << TALLY_SHIFT(func) |
               (u64)dtype << TALLY_SHIFT(dtype) | (u64)algo << TALLY_SHIFT(algo) |
               (u64)proto << TALLY_SHIFT(proto) | (u64)bits << TALLY_SHIFT(bits);
    return (struct tally_key){word, count};
}
static inline u8 tally_level(struct tally_key key) { return (u8)(key.word >> TALLY_SHIFT(level)); }
static inline u8 tally_func(struct tally_key key) { return (u8)(key.word >> TALLY_SHIFT(func)); }
static inline u8 tally_dtype(struct tally_key key) { return (u8)(key.word >> TALLY_SHIFT(dtype)); }
static inline u8 tally_algo(struct tally_key key) { return (u8)(key.word >> TALLY_SHIFT(algo)); }
static inline u8 tally_proto(struct tally_key key) { return (u8)(key.word >> TALLY_SHIFT(proto)); }
static inline bool tally_is_folded(struct tally_key key) {
    return (key.word >> TALLY_SHIFT(bits)) & TALLY_FOLDED;
}
static inline bool tally_same(struct tally_key a, struct tally_key b) {
    return a.word == b.word && a.count == b.count;
}
// A free place of a table has the word 0: no key has, since levels begin at 1.
static inline bool tally_is_free(const union slot *entry) {
    return __atomic_load_n(&entry->words[TALLY_WORD], __ATOMIC_RELAXED) == 0;
}

static inline u32 tally_hash(struct tally_key key) {
    return (u32)(((key.word ^ key.count * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u) >> 40);
}

static inline bool tally_matches(const union slot *entry, struct tally_key key) {
    return __atomic_load_n(&entry->words[TALLY_WORD], __ATOMIC_RELAXED) == key.word &&
           __atomic_load_n(&entry->tally.count, __ATOMIC_RELAXED) == key.count;
}

// By the table's owner: nobody else writes.
static inline void tally_add(union slot *entry, u64 count) {
    SLOT_STORE(entry->tally.calls, entry->tally.calls + 1);
    SLOT_STORE(entry->tally.count_sum, entry->tally.count_sum + count);
}

// Counts a call whose entry is not at its first place. writer may be NULL. The entry, where it is
// in the writer's own table.
COLD union slot *tally_slow(struct writer *writer, struct tally_key key);

// The key's entry if it is at its first place.
static inline union slot *tally_find_fast(const struct writer *writer, struct tally_key key) {
    if (UNLIKELY(!writer->tally)) return NULL;
    union slot *entry = &writer->tally[tally_hash(key) % CHUNK_SLOTS];
    return LIKELY(tally_matches(entry, key)) ? entry : NULL;
}

// Most calls are like those before: their entries are prefetched before they are needed.
static inline void tally_note_recent(struct writer *writer, const union slot *entry) {
    writer->recent_entries[writer->recent_next++ % RECENT_ENTRIES] = (u16)(entry - writer->tally);
}
static inline void tally_prefetch_recent(const struct writer *writer) {
    if (!writer->tally) return;
    for (unsigned i = 0; i < RECENT_ENTRIES; i++)
        slot_prefetch_for_write(&writer->tally[writer->recent_entries[i]]);
}

static inline union slot *tally_call(struct writer *writer, struct tally_key key) {
    union slot *entry = LIKELY(writer != NULL) ? tally_find_fast(writer, key) : NULL;
    if (UNLIKELY(entry == NULL)) return tally_slow(writer, key);
    tally_add(entry, key.count);
    return entry;
}

// The key under which a size is counted once there are too many of them.
struct tally_key tally_folded(struct tally_key key);
// The catch-all of a level.
struct tally_key tally_other(struct tally_key key);

// Helper: the key that a call is counted under, as far as the tables tell: its own, its size class,
// or the catch-all of its level.
struct tally_key tally_counted_as(struct tally_key key);
// Helper: calls `visit` for every entry. The same key may come several times.
void tally_visit(void (*visit)(struct tally_key key, u64 calls, u64 count_sum));
// In a fork child: the tables are the parent's.
void tally_forget(void);
// The shared table in the arena's front.
void tally_setup(void);

#endif
