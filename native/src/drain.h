// Draining: gives every slot to the tracker, moves slots to the sink, and frees chunks. Helper
// thread only.
#ifndef NCCLSCOPE_DRAIN_H
#define NCCLSCOPE_DRAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "stream.h"

// What becomes of slots once the tracker has got them.
enum sink_use {
    TO_DISK,     // written as they come
    TO_NOWHERE,  // profile: counted, then forgotten
    TO_RING,     // kept as long as there is room, written by drain_copy_out
};

struct drain_pass {
    enum sink_use use;
    u64 now;          // ticks
    u64 patience;     // ticks to wait for the end of an open event before it is taken as it is
    bool everything;  // the process is exiting: take all that is committed
    bool scarce;      // memory or streams are: look for exited threads at every pass
};

// Whether any stream has begun a chunk, or any thread a stream, since the last call; or the last
// pass left something.
bool drain_is_due(void);
// Returns how many slots were visited. Unless it is to take everything, it takes a part of what a
// stream holds: chunks are freed, and memory added, only between passes.
u64 drain_streams(const struct drain_pass *pass);
// The ring: writes everything that is still in memory and not on disk yet.
void drain_copy_out(const struct drain_pass *pass);
// Copies slots that have been open for longer than the patience, oldest first by stream, and then
// open ranges.
size_t drain_open_slots(union slot *out, size_t room);

#endif
