// The table of call counts.
#include "tally.h"

#include "arena.h"

#define PROBES 16u
#define CATCH_ALL 3u  // entries at the table's end, one per level

union slot *tally_table;
static u32 keys_used;

static union slot *catch_all(u64 word) {
    return &tally_table[TALLY_SLOTS - 1 - ((word >> 16) & 0xFF) % CATCH_ALL];
}

// The key under which a size is counted once there are too many of them.
static struct tally_key folded(struct tally_key key) {
    u64 power = key.count ? 1ull << (63 - __builtin_clzll(key.count)) : 0;
    return (struct tally_key){key.word | (u64)TALLY_FOLDED << 56, power};
}

// The key's entry; made when `create` and there is room. Two threads may make two entries for one
// key at the same time: readers add them up.
static union slot *entry_of(struct tally_key key, bool create) {
    u32 place = tally_place(key);
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 index = (place + probe) % TALLY_SLOTS;
        if (index >= TALLY_SLOTS - CATCH_ALL) continue;
        union slot *entry = &tally_table[index];
        if (tally_matches(entry, key)) return entry;
        if (!create || __atomic_load_n(&entry->words[4], __ATOMIC_RELAXED) != 0) continue;
        u64 empty = 0;
        if (!__atomic_compare_exchange_n(&entry->words[4], &empty, key.word, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&entry->tally.count, key.count, __ATOMIC_RELAXED);
        slot_commit(entry, head_word(KIND_tally, 0, 0, index));
        __atomic_fetch_add(&keys_used, 1, __ATOMIC_RELAXED);
        return entry;
    }
    return NULL;
}

static struct tally_key catch_all_key(u64 word) {
    return (struct tally_key){(word & 0xFF0000u) | NO_COMM, 0};
}

void tally_elsewhere(struct tally_key key) {
    bool exact = __atomic_load_n(&keys_used, __ATOMIC_RELAXED) < TALLY_EXACT_KEYS;
    union slot *entry = entry_of(key, exact);
    if (!entry) {
        entry = entry_of(folded(key), true);
        if (entry) count(COUNTER_tally_folded, 0);
    }
    if (!entry) {
        struct tally_key other = catch_all_key(key.word);
        entry = catch_all(key.word);
        __atomic_store_n(&entry->words[4], other.word, __ATOMIC_RELAXED);
        slot_commit(entry, head_word(KIND_tally, 0, 0, (u64)(entry - tally_table)));
        count(COUNTER_tally_other, 0);
    }
    tally_add(entry, key.count);
}

union slot *tally_find(struct tally_key key) {
    if (!tally_table) return NULL;
    union slot *entry = entry_of(key, false);
    if (!entry) entry = entry_of(folded(key), false);
    if (!entry && slot_head(catch_all(key.word)) != 0) entry = catch_all(key.word);
    return entry;
}
