// Pools of CUDA events, one for each CUDA context that was current at an init.
#ifndef NCCLSCOPE_EVENT_POOL_H
#define NCCLSCOPE_EVENT_POOL_H

#include "cuda_driver.h"
#include "slot.h"

#define POOL_PAIRS 256u  // launches whose times are not read yet; a power of two
#define MAX_POOLS 32u    // contexts of a process, also those that were destroyed

enum pair_state { PAIR_FREE, PAIR_STARTED, PAIR_PENDING, PAIR_READING };

struct pair {
    cuda_event start, stop;
    cuda_stream stream;
    u64 launch, t0;
    u32 state;  // enum pair_state
    u16 comm;
    bool of_group;  // launch is a GroupApi
};

struct pool {
    cuda_context context;
    struct pair *pairs;
    u32 pair_count, next_pair;
    u32 errors, given_up, reading;
    u32 read_due;        // set by the helper once a second
    const char *failed;  // the function because of which it was given up
    int error;
    bool reported;
    // Pairs in the order in which their launches stopped: order << 16 | 1 + pair, at the order's
    // place; without the pair once it has been read.
    u64 pending[2 * POOL_PAIRS];
    u64 newest_order;
    // ---- of whoever holds `reading` ----
    u64 read_order;  // everything up to here has been read
    cuda_event reference;
    bool has_reference;
    double reference_ns;
    union slot clock;  // its EventClock
};
extern struct pool event_pools[MAX_POOLS];

// At init, under its lock, with the communicator's context current: a pool for that context.
void event_pool_open(u32 comm);
u32 event_pool_count(void);
// NULL: it was not current at an init.
struct pool *event_pool_of(cuda_context context);
// A pair in the state PAIR_STARTED; NULL: all are in use.
struct pair *event_pool_take(struct pool *pool);
static inline void event_pool_set_state(struct pair *pair, enum pair_state state) {
    __atomic_store_n(&pair->state, state, __ATOMIC_RELEASE);
}
// Counts what became of a chosen launch.
void event_pool_count_launch(enum timing_reason reason);
// By whoever holds `reading`: what is timed from now on is on another clock.
void event_pool_begin_clock(struct pool *pool);

// After ERRORS_IN_A_ROW of them a context is given up.
void event_pool_note_success(struct pool *pool);
void event_pool_note_error(struct pool *pool, const char *function, int error);
static inline bool event_pool_is_given_up(const struct pool *pool) {
    return __atomic_load_n(&pool->given_up, __ATOMIC_RELAXED);
}
// Helper, once a second: asks for pending launches to be read, and notes contexts that were given
// up.
void event_pool_look_after(void);

#endif
