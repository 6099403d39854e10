// The gate before the recorder: which events take the fast path.
//
// Everything else goes through event_filter_start: types this release does not know, events that
// only another profiler asked for, and all events while there is one (chain.h).
#ifndef NCCLSCOPE_EVENT_FILTER_H
#define NCCLSCOPE_EVENT_FILTER_H

#include "callback_state.h"
#include "nccl_abi.h"
#include "slot.h"

// At init: where NCCL looks up what it shall report, and what its interface knows. Kept where that
// is a word of the library itself, which then stays loaded.
void event_filter_remember_mask(int *mask, int version, u32 interface_events, u32 chained);
// Helper thread: from now on NCCL reports these, and only these take the fast path. Captured graphs
// go on reporting what they were captured with.
void event_filter_set_events(u32 events);

typedef nccl_result (*record_fn)(void *context, void **handle, const void *descriptor);

COLD nccl_result event_filter_start(void *context, void **handle, const void *descriptor, u64 type,
                                    int version, record_fn record);

// Whether NCCL of that interface version emits the event for this mask.
bool event_filter_wants(u32 mask, int version, u64 type);

static inline bool event_filter_is_fast(u64 type) {
    return (__atomic_load_n(&callback_state.fast_events, __ATOMIC_RELAXED) & type) != 0;
}

#endif
