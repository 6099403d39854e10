// The ledger: all tallies of the process added up by key, with what the tracker knows about times.
// Helper thread only; what is written to the tally file.
#ifndef NCCLSCOPE_LEDGER_H
#define NCCLSCOPE_LEDGER_H

#include "tally.h"

#define LEDGER_ENTRIES 4096u

struct ledger_entry {
    struct tally_key key;  // word 0: free
    u64 calls, count_sum;
    struct times times;
    u32 record;    // its place in the tally file
    bool changed;  // since it was written last
};

// The entry of a key, of its size class, or the catch-all of its level; NULL: no memory. Where
// there is no room for a key, ledger_update counts its calls as folded, or as others.
struct ledger_entry *ledger_entry(struct tally_key key);
// Adds up all tables anew.
void ledger_update(void);
// By place, for writing; NULL: free.
u32 ledger_places(void);
struct ledger_entry *ledger_at(u32 place);

#endif
