// Which events take the fast path into the recorder.
//
// All others go through event_filter_start: types that this release does not know, events that only
// another profiler asked for, and all events while one is chained (chain.h).
#ifndef NCCLSCOPE_EVENT_FILTER_H
#define NCCLSCOPE_EVENT_FILTER_H

#include "callback_state.h"
#include "nccl_abi.h"
#include "slot.h"

// At init: `mask` is where NCCL looks up what it shall report, `chained` what a chained profiler
// wants. Kept where that is a word of the library itself, which then stays loaded.
void event_filter_remember_mask(int *mask, int version, u32 chained);
// Helper thread: from now on NCCL reports these, and only these take the fast path. Captured graphs
// go on reporting what they were captured with.
void event_filter_set_events(u32 events);

typedef nccl_result (*record_fn)(void *context, void **handle, const void *descriptor);

COLD nccl_result event_filter_start(void *context, void **handle, const void *descriptor, u64 type,
                                    int version, record_fn record);

static inline bool event_filter_is_fast(u64 type) {
    return (__atomic_load_n(&callback_state.fast_events, __ATOMIC_RELAXED) & type) != 0;
}

#endif
