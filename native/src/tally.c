// The tables of call counts.
#include "tally.h"

#include <string.h>

#include "arena.h"

#define PROBES 16u      // places of a key
#define MAX_TABLES 64u  // of streams
#define CATCH_ALLS 4u   // entries at the end of the shared table, by level

static union slot *shared;              // TALLY_SLOTS entries, any thread's
static union slot *tables[MAX_TABLES];  // the streams' own, for the helper
static u32 table_count;

void tally_setup(void) { shared = (union slot *)(arena.base + ARENA_TALLY); }

void tally_forget(void) { shared = NULL; }

struct tally_key tally_folded(struct tally_key key) {
    u64 power = key.count ? 1ull << (63 - __builtin_clzll(key.count)) : 0;
    return (struct tally_key){key.word | (u64)TALLY_FOLDED << TALLY_SHIFT(bits), power};
}

struct tally_key tally_other(struct tally_key key) {
    return tally_key(NO_COMM, tally_level(key), 0, 0, 0, 0, 0, 0);
}

// A chunk of the arena becomes the stream's table and stays it, whichever thread owns the stream.
static bool give_table(struct writer *writer) {
    // Never at the expense of events: the shared table counts as well, if more slowly.
    u32 free_chunks = __atomic_load_n(&arena.free_count, __ATOMIC_RELAXED);
    if (free_chunks < 4 * __atomic_load_n(&arena.low_priority_reserve, __ATOMIC_RELAXED))
        return false;
    u32 limit = arena.chunk_limit / 16;
    if (limit > MAX_TABLES) limit = MAX_TABLES;
    u32 number = __atomic_load_n(&table_count, __ATOMIC_RELAXED);
    do {
        if (number >= limit) return false;
    } while (!__atomic_compare_exchange_n(&table_count, &number, number + 1, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    u32 chunk = arena_take_chunk(false);
    if (chunk == NO_CHUNK) return false;  // this place in the list stays empty
    union slot *table = arena_chunk(chunk);
    for (u32 i = 0; i < CHUNK_SLOTS; i++) memset(&table[i].words[1], 0, SLOT_BYTES - 8);
    slot_commit(table, head_word(KIND_tallies, 0, 0, 0));
    writer->tally = writer->stream->tally = table;
    writer->stream->tally_keys = 0;
    __atomic_store_n(&tables[number], table, __ATOMIC_RELEASE);
    return true;
}

// The owner's entry for a key, made where there is room; NULL: none.
static union slot *own_entry(struct stream *stream, struct tally_key key, bool create) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 index = (tally_hash(key) + probe) % CHUNK_SLOTS;
        union slot *entry = &stream->tally[index];
        if (index == 0) continue;  // the table's own head
        if (tally_matches(entry, key)) return entry;
        if (!create || !tally_is_free(entry)) continue;
        SLOT_STORE(entry->tally.count, key.count);
        SLOT_STORE(entry->words[TALLY_WORD], key.word);
        slot_commit(entry, head_word(KIND_tally, 0, 0, index));
        stream->tally_keys++;
        return entry;
    }
    return NULL;
}

static union slot *count_in_own(struct stream *stream, struct tally_key key) {
    bool exact = stream->tally_keys < TALLY_EXACT_KEYS;
    union slot *entry = own_entry(stream, key, exact);
    if (!entry) {
        entry = own_entry(stream, tally_folded(key), true);
        if (entry) arena_count(COUNTER_tally_folded, 0);
    }
    if (entry) tally_add(entry, key.count);
    return entry;
}

// Made by compare-and-swap. Two threads may make two entries for one key: readers add them up.
static union slot *shared_entry(struct tally_key key) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 index = (tally_hash(key) + probe) % (TALLY_SLOTS - CATCH_ALLS);
        union slot *entry = &shared[index];
        if (tally_matches(entry, key) && slot_head(entry) != 0) return entry;
        u64 empty = 0;
        if (!__atomic_compare_exchange_n(&entry->words[TALLY_WORD], &empty, key.word, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&entry->tally.count, key.count, __ATOMIC_RELAXED);
        slot_commit(entry, head_word(KIND_tally, 0, 0, index));
        return entry;
    }
    return NULL;
}

static void count_in_shared(struct tally_key key) {
    union slot *entry = shared_entry(key);
    if (!entry) {
        entry = shared_entry(tally_folded(key));
        if (entry) arena_count(COUNTER_tally_folded, 0);
    }
    if (!entry) {
        struct tally_key other = tally_other(key);
        entry = &shared[TALLY_SLOTS - CATCH_ALLS + tally_level(key) % CATCH_ALLS];
        __atomic_store_n(&entry->words[TALLY_WORD], other.word, __ATOMIC_RELAXED);
        __atomic_store_n(&entry->tally.count, 0, __ATOMIC_RELAXED);
        slot_commit(entry, head_word(KIND_tally, 0, 0, (u64)(entry - shared)));
        arena_count(COUNTER_tally_other, 0);
    }
    __atomic_fetch_add(&entry->tally.calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&entry->tally.count_sum, key.count, __ATOMIC_RELAXED);
}

union slot *tally_slow(struct writer *writer, struct tally_key key) {
    if (!shared) return NULL;
    bool has_table = writer && (writer->tally || give_table(writer));
    union slot *entry = has_table ? count_in_own(writer->stream, key) : NULL;
    if (!entry) count_in_shared(key);
    return entry;
}

// Entries are never taken back: a free place ends the search.
static bool table_holds(const union slot *table, u32 entries, bool has_head, struct tally_key key) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 index = (tally_hash(key) + probe) % entries;
        if (has_head && index == 0) continue;
        if (tally_matches(&table[index], key)) return true;
        if (tally_is_free(&table[index])) return false;
    }
    return false;
}

static bool any_table_holds(struct tally_key key) {
    if (table_holds(shared, TALLY_SLOTS - CATCH_ALLS, false, key)) return true;
    for (u32 number = 0; number < MAX_TABLES; number++) {
        const union slot *table = __atomic_load_n(&tables[number], __ATOMIC_ACQUIRE);
        if (table && table_holds(table, CHUNK_SLOTS, true, key)) return true;
    }
    return false;
}

struct tally_key tally_counted_as(struct tally_key key) {
    u64 folded = __atomic_load_n(arena_counter(COUNTER_tally_folded, 0), __ATOMIC_RELAXED);
    u64 other = __atomic_load_n(arena_counter(COUNTER_tally_other, 0), __ATOMIC_RELAXED);
    if (!shared || (!folded && !other) || any_table_holds(key)) return key;
    if (any_table_holds(tally_folded(key))) return tally_folded(key);
    return other ? tally_other(key) : key;
}

static void visit_table(const union slot *table, u32 entries,
                        void (*visit)(struct tally_key key, u64 calls, u64 count_sum)) {
    for (u32 i = 0; i < entries; i++) {
        const union slot *entry = &table[i];
        if (head_kind(slot_head(entry)) != KIND_tally) continue;
        struct tally_key key = {__atomic_load_n(&entry->words[TALLY_WORD], __ATOMIC_RELAXED),
                                __atomic_load_n(&entry->tally.count, __ATOMIC_RELAXED)};
        visit(key, __atomic_load_n(&entry->tally.calls, __ATOMIC_RELAXED),
              __atomic_load_n(&entry->tally.count_sum, __ATOMIC_RELAXED));
    }
}

void tally_visit(void (*visit)(struct tally_key key, u64 calls, u64 count_sum)) {
    if (!shared) return;
    visit_table(shared, TALLY_SLOTS, visit);
    for (u32 number = 0; number < MAX_TABLES; number++) {
        const union slot *table = __atomic_load_n(&tables[number], __ATOMIC_ACQUIRE);
        if (table) visit_table(table, CHUNK_SLOTS, visit);
    }
}
