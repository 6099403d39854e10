// Adds up the tables of call counts by key.
#include "totals.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define PROBES 16u
#define CATCH_ALLS 4u  // places behind the others, by level: these are always there

// Keys lie apart from their entries: looking for one passes many.
static struct tally_key *keys;
static struct totals_entry *entries;
static struct {
    u64 calls, count_sum;
} *sums;                // of the adding-up under way
static u32 room, used;  // entries there is memory for (a power of two), and those in use
// Calls that the tables have under a key for which there was no room here, and how many of them
// have been counted. A key that found no room never will, so these only grow.
static u64 folded, others, folded_counted, others_counted;

static bool have_memory(void) {
    for (u32 wanted = TOTALS_ENTRIES; !room && wanted >= 16; wanted /= 4) {
        keys = calloc(wanted + CATCH_ALLS, sizeof *keys);
        sums = calloc(wanted + CATCH_ALLS, sizeof *sums);
        entries = calloc(wanted + CATCH_ALLS, sizeof *entries);
        if (keys && sums && entries) {
            room = wanted;
            break;
        }
        free(keys);
        free(sums);
        free(entries);
    }
    return room;
}

static struct totals_entry *take(u32 place, struct tally_key key) {
    if (keys[place].word == 0) {
        keys[place] = key;
        entries[place].key = key;
        entries[place].record = used++;
    }
    return &entries[place];
}

// New keys are taken in while fewer than `most` are in use.
static struct totals_entry *find(struct tally_key key, u32 most) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 place = (tally_hash(key) + probe) & (room - 1);
        if (tally_same(keys[place], key)) return &entries[place];
        if (keys[place].word == 0) return used < most ? take(place, key) : NULL;
    }
    return NULL;
}

// Exact keys leave a quarter of the room to size classes.
struct totals_entry *totals_entry(struct tally_key key) {
    if (!have_memory()) return NULL;
    struct totals_entry *entry = find(key, room - room / 4);
    if (!entry) entry = find(tally_folded(key), room);
    if (!entry) entry = take(room + tally_level(key) % CATCH_ALLS, tally_other(key));
    return entry;
}

static void add(struct tally_key key, u64 calls, u64 count_sum) {
    struct totals_entry *entry = totals_entry(key);
    if (!entry) return;
    sums[entry - entries].calls += calls;
    sums[entry - entries].count_sum += count_sum;
    if (tally_same(entry->key, key)) return;
    if (tally_is_folded(entry->key)) folded += calls;
    else others += calls;
}

static void count_new(enum counter counter, u64 now, u64 *counted) {
    if (now > *counted) arena_count_many(counter, 0, now - *counted);
    *counted = now;
}

bool totals_update(void) {
    if (!have_memory()) return false;
    memset(sums, 0, (room + CATCH_ALLS) * sizeof *sums);
    folded = others = 0;
    tally_visit(add);
    count_new(COUNTER_tally_folded, folded, &folded_counted);
    count_new(COUNTER_tally_other, others, &others_counted);
    for (u32 place = 0; place < room + CATCH_ALLS; place++) {
        struct totals_entry *entry = &entries[place];
        if (entry->calls == sums[place].calls) continue;
        entry->calls = sums[place].calls;
        entry->count_sum = sums[place].count_sum;
        entry->changed = true;
    }
    return true;
}

u32 totals_places(void) { return room ? room + CATCH_ALLS : 0; }

struct totals_entry *totals_at(u32 place) { return keys[place].word ? &entries[place] : NULL; }
