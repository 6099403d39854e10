// The gate before the recorder: which events take the fast path.
//
// Everything else goes through gate_start: types this release does not know, events that only
// another profiler asked for, and all events while there is one (chain.h).
#ifndef NCCLSCOPE_GATE_H
#define NCCLSCOPE_GATE_H

#include "callback_state.h"
#include "nccl_abi.h"
#include "slot.h"

// At init: where NCCL looks up what it shall report, and what its interface knows. Kept where that
// is a word of the library itself, which then stays loaded.
void gate_remember_mask(int *mask, int version, u32 interface_events, u32 chained);
// Helper thread: from now on NCCL reports these, and only these take the fast path. Captured graphs
// go on reporting what they were captured with.
void gate_set_events(u32 events);

typedef nccl_result (*record_fn)(void *context, void **handle, const void *descriptor);

COLD nccl_result gate_start(void *context, void **handle, const void *descriptor, u64 type,
                            int version, record_fn record);

// Whether NCCL of that interface version emits the event for this mask.
bool gate_wants(u32 mask, int version, u64 type);

static inline bool gate_is_fast(u64 type) {
    return (__atomic_load_n(&hot.fast_events, __ATOMIC_RELAXED) & type) != 0;
}

#endif
