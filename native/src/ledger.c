// The ledger.
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define PROBES 1024u

static struct ledger_entry *entries;
static u32 room, used;  // entries there is memory for, and those in use
static struct {
    u64 calls, count_sum;
} *sums;  // of the adding-up under way

static struct ledger_entry *find(struct tally_key key) {
    for (u32 probe = 0; probe < PROBES && probe < room; probe++) {
        struct ledger_entry *entry = &entries[(tally_hash(key) + probe) % room];
        if (entry->key.word == key.word && entry->key.count == key.count) return entry;
        if (entry->key.word) continue;
        entry->key = key;
        entry->record = used++;
        return entry;
    }
    return NULL;
}

static bool have_memory(void) {
    for (u32 wanted = LEDGER_ENTRIES; !entries && wanted >= 16; wanted /= 4) {
        entries = calloc(wanted, sizeof *entries);
        sums = entries ? calloc(wanted, sizeof *sums) : NULL;
        if (entries && !sums) {
            free(entries);
            entries = NULL;
        }
        room = wanted;
    }
    return entries;
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
    return place < room && entries && entries[place].key.word ? &entries[place] : NULL;
}
