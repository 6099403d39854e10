// The ledger.
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define PROBES 1024u

static struct ledger_entry *entries;
static struct {
    u64 calls, count_sum;
} *sums;  // of the adding-up under way

static struct ledger_entry *find(struct tally_key key) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        struct ledger_entry *entry = &entries[(tally_hash(key) + probe) % LEDGER_ENTRIES];
        if (entry->key.word == key.word && entry->key.count == key.count) return entry;
        if (entry->key.word) continue;
        entry->key = key;
        return entry;
    }
    return NULL;
}

struct ledger_entry *ledger_entry(struct tally_key key) {
    if (!entries) entries = calloc(LEDGER_ENTRIES, sizeof *entries);
    if (!sums) sums = calloc(LEDGER_ENTRIES, sizeof *sums);
    if (!entries || !sums) return NULL;
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
    if (sums) memset(sums, 0, LEDGER_ENTRIES * sizeof *sums);
    tally_visit(add);
    if (!entries || !sums) return;
    for (u32 place = 0; place < LEDGER_ENTRIES; place++) {
        struct ledger_entry *entry = &entries[place];
        if (entry->calls == sums[place].calls) continue;
        entry->calls = sums[place].calls;
        entry->count_sum = sums[place].count_sum;
        entry->changed = true;
    }
}

struct ledger_entry *ledger_at(u32 place) {
    return entries && entries[place].key.word ? &entries[place] : NULL;
}
