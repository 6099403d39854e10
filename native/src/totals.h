// Totals: all call counts of the process added up by key, with the times that the tracker found.
// This is what the tally file holds. Helper thread only.
#ifndef NCCLSCOPE_TOTALS_H
#define NCCLSCOPE_TOTALS_H

#include "tally.h"

#define TOTALS_ENTRIES 4096u

struct totals_entry {
    struct tally_key key;  // word 0: free
    u64 calls, count_sum;
    struct times times;
    u64 calls_at_off;  // while sampling is switched off: `calls` when that began
    u64 off_before;    // calls of earlier such periods
    u32 record;        // its place in the tally file
    bool changed;      // since it was written last
};

// The entry of a key, of its size class, or the catch-all of its level; NULL: no memory. Where
// there is no room for a key, totals_update counts its calls as folded, or as others.
struct totals_entry *totals_entry(struct tally_key key);
// Adds up all tables anew. False: no memory.
bool totals_update(void);
// By place, for writing; NULL: free.
u32 totals_places(void);
struct totals_entry *totals_at(u32 place);

#endif
