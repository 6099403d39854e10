// What every callback reads of the process, in one cache line: NCCL and the driver use the caches
// between two callbacks, and each further line of ours would be another miss.
//
// Written at init and by the helper thread, hardly ever.
#ifndef NCCLSCOPE_CALLBACK_STATE_H
#define NCCLSCOPE_CALLBACK_STATE_H

#include <stdbool.h>

#include "ncclscope/format.h"

#define HIDDEN __attribute__((visibility("hidden")))
// Out of line and away from what runs in every callback.
#define COLD __attribute__((cold, noinline))

// Starts at a cache line of its own, near the others.
#define HOT __attribute__((hot, aligned(64)))
// What HOT functions leave to others: out of line, but optimized for speed.
#define SLOW_PATH __attribute__((noinline))

// What becomes of a group's calls and launches (timing_policy.h). A group keeps what it read at its
// start, so that a change of the mode does not part a call and its launch.
#define GROUP_DROPS_WORKS 1u  // launches that are not timed get no slots, nor do their works
#define GROUP_IS_WRITTEN 2u   // slots go to disk

// What becomes of ranges (range.h).
enum { RANGES_OFF, RANGES_REMEMBERED, RANGES_RECORDED };

struct callback_state {
    _Alignas(64) u64 nonce;  // 16 bits, the top one set
    u64 first_context;       // the context of communicator 0
    u32 fast_events;         // NCCL's event bits: those that take the fast path (event_filter.h)
    u32 window;              // chunks before its newest that a stream's owner may edit (stream.h)
    i64 writer_offset;       // from a thread's pointer to its writer (writer.h)
    enum clock_kind clock;   // set once, before any event can be recorded
    bool fast_path;          // as callback_state_settle decides
    bool static_tls;         // writer_offset is the same in every thread
    bool chained;            // another profiler gets stops and states, too (chain.h)
    bool recording;          // false before the first init, in fork children and when disabled
    u8 ranges;               // RANGES_…
    u8 group_bits;           // GROUP_…, of groups that start now
};
extern HIDDEN struct callback_state callback_state;

// Where this is false there may be no arena, or it is another process's: callbacks touch nothing.
static inline bool callback_state_is_recording(void) {
    return __atomic_load_n(&callback_state.recording, __ATOMIC_RELAXED);
}

static inline u8 callback_state_group_bits(void) {
    return __atomic_load_n(&callback_state.group_bits, __ATOMIC_RELAXED);
}
static inline bool callback_state_drops_works(void) {
    return callback_state_group_bits() & GROUP_DROPS_WORKS;
}

// At init: decides whether callbacks may take the fast path. They may if the clock is a counter, no
// profiler is chained, and writers are in static thread-local storage.
void callback_state_settle(void);

#endif
