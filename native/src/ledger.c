// The ledger.
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define PROBES 16u

// Keys lie apart from what is known about them: looking for one passes many.
static struct tally_key *keys;
static struct ledger_entry *entries;
static struct {
    u64 calls, count_sum;
} *sums;                // of the adding-up under way
static u32 room, used;  // entries there is memory for (a power of two), and those in use

static bool have_memory(void) {
    for (u32 wanted = LEDGER_ENTRIES; !room && wanted >= 16; wanted /= 4) {
        keys = calloc(wanted, sizeof *keys);
        sums = calloc(wanted, sizeof *sums);
        entries = calloc(wanted, sizeof *entries);
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

static struct ledger_entry *find(struct tally_key key) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 place = (tally_hash(key) + probe) & (room - 1);
        if (keys[place].word == 0) {
            keys[place] = key;
            entries[place].key = key;
            entries[place].record = used++;
        }
        if (keys[place].word == key.word && keys[place].count == key.count) return &entries[place];
    }
    return NULL;
}

struct ledger_entry *ledger_entry(struct tally_key key) {
    if (!have_memory()) return NULL;
    struct ledger_entry *entry = find(key);
    if (!entry) entry = find(tally_folded(key));
    if (!entry) entry = find(tally_other(key));
    return entry;
}

static void add(struct tally_key key, u64 calls, u64 count_sum) {
    struct ledger_entry *entry = ledger_entry(key);
    if (!entry) return;
    sums[entry - entries].calls += calls;
    sums[entry - entries].count_sum += count_sum;
}

void ledger_update(void) {
    if (!have_memory()) return;
    memset(sums, 0, room * sizeof *sums);
    tally_visit(add);
    for (u32 place = 0; place < room; place++) {
        struct ledger_entry *entry = &entries[place];
        if (entry->calls == sums[place].calls) continue;
        entry->calls = sums[place].calls;
        entry->count_sum = sums[place].count_sum;
        entry->changed = true;
    }
}

struct ledger_entry *ledger_at(u32 place) {
    return place < room && keys[place].word ? &entries[place] : NULL;
}
