// Draining: which slots of a stream go to the sink now, and which chunks are free again. Helper
// thread only.
#ifndef NCCLSCOPE_DRAIN_H
#define NCCLSCOPE_DRAIN_H

#include <stdbool.h>

#include "stream.h"

struct drain_pass {
    u64 now;          // ticks
    u64 patience;     // ticks an open event is waited for before it is written as it is
    bool everything;  // the process is exiting: write all that is committed
};

// Whether any stream has begun a chunk, or any thread a stream, since the last call.
bool drain_is_due(void);
// Returns how many slots were written.
u64 drain_streams(const struct drain_pass *pass);

#endif
