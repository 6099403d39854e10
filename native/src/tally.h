// Exact counts of calls, by communicator, function, count, datatype, algorithm and protocol.
//
// Counted in the callback itself, whether or not there is room to record the event. One table per
// process in the arena's front; entries are found by hashing, made by compare-and-swap, and never
// removed.
#ifndef NCCLSCOPE_TALLY_H
#define NCCLSCOPE_TALLY_H

#include "slot.h"

// NULL where nothing is recorded.
extern union slot *tally_table;

// Past so many keys, new ones are folded into powers of two of their count.
#define TALLY_EXACT_KEYS 3072u

struct tally_key {
    u64 word;  // comm, level, func, dtype, algo, proto, bits: the last eight bytes of a Tally's key
    u64 count;  // elements, as NCCL gives them
};

static inline struct tally_key tally_key(u32 comm, enum tally_level level, u8 func, u8 dtype,
                                         u8 algo, u8 proto, u8 bits, u64 count) {
    u64 word = (u64)(u16)comm | (u64)level << 16 | (u64)func << 24 | (u64)dtype << 32 |
               (u64)algo << 40 | (u64)proto << 48 | (u64)bits << 56;
    return (struct tally_key){word, count};
}

static inline u32 tally_place(struct tally_key key) {
    u64 mixed = (key.word ^ key.count * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
    return (u32)(mixed >> 52) % TALLY_SLOTS;
}
_Static_assert(TALLY_SLOTS == 1u << 12, "tally_place takes 12 bits");

static inline int tally_matches(const union slot *entry, struct tally_key key) {
    return __atomic_load_n(&entry->words[4], __ATOMIC_RELAXED) == key.word &&
           __atomic_load_n(&entry->tally.count, __ATOMIC_RELAXED) == key.count &&
           slot_head(entry) != 0;
}

static inline void tally_add(union slot *entry, u64 count) {
    __atomic_fetch_add(&entry->tally.calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&entry->tally.count_sum, count, __ATOMIC_RELAXED);
}

// Counts a call whose entry is not where it is expected first.
void tally_elsewhere(struct tally_key key);

static inline void tally_call(struct tally_key key) {
    union slot *table = tally_table;
    if (UNLIKELY(!table)) return;
    union slot *entry = &table[tally_place(key)];
    if (LIKELY(tally_matches(entry, key))) tally_add(entry, key.count);
    else tally_elsewhere(key);
}

// The entry that counts this key, for whoever knows more about such calls; NULL: none yet.
union slot *tally_find(struct tally_key key);

#endif
