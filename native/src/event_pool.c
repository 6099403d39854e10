// Makes pools, hands out pairs, and gives contexts up.
#include "event_pool.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "clock.h"
#include "identity.h"
#include "log.h"
#include "marker_kernel.h"
#include "meta.h"
#include "nccl_abi.h"
#include "timing_policy.h"

#define ERRORS_IN_A_ROW 8u  // until a context is given up

struct pool event_pools[MAX_POOLS];
static u32 pool_count, clock_count;

u32 event_pool_count(void) { return __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE); }

void event_pool_count_launch(enum timing_reason reason) {
    enum counter counter = COUNTER_launches_cuda_error;
    if (reason == TIMING_FINE) counter = COUNTER_launches_timed;
    if (reason == TIMING_CAPTURED) counter = COUNTER_launches_captured;
    if (reason == TIMING_CAPTURE_BEGAN) counter = COUNTER_launches_captured;
    if (reason == TIMING_POOL_EMPTY) counter = COUNTER_launches_pool_empty;
    if (reason == TIMING_UNKNOWN_CONTEXT) counter = COUNTER_launches_no_context;
    if (reason == TIMING_UNFINISHED) counter = COUNTER_launches_unfinished;
    arena_count(counter, NCCL_NUMBER(NCCL_KERNEL_LAUNCH));
}

// ---- errors ----
void event_pool_note_success(struct pool *pool) {
    __atomic_store_n(&pool->errors, 0, __ATOMIC_RELAXED);
}
void event_pool_note_error(struct pool *pool, const char *function, int error) {
    if (__atomic_add_fetch(&pool->errors, 1, __ATOMIC_RELAXED) != ERRORS_IN_A_ROW) return;
    pool->failed = function;
    pool->error = error;
    __atomic_store_n(&pool->given_up, 1, __ATOMIC_RELEASE);
}

void event_pool_look_after(void) {
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (struct pool *pool = event_pools; pool < event_pools + used; pool++) {
        __atomic_store_n(&pool->read_due, 1, __ATOMIC_RELAXED);
        if (pool->reported || !__atomic_load_n(&pool->given_up, __ATOMIC_ACQUIRE)) continue;
        log_note(
            "launches of a CUDA context are not timed any more: %s failed %u times in a row, "
            "with error %d",
            pool->failed, ERRORS_IN_A_ROW, pool->error);
        pool->reported = true;
    }
}

// ---- pools ----
struct pool *event_pool_of(cuda_context context) {
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (u32 i = used; i-- > 0;)  // a context made later may have an address of one before
        if (event_pools[i].context == context) return &event_pools[i];
    return NULL;
}

void event_pool_begin_clock(struct pool *pool) {
    pool->has_reference = false;
    pool->clock.event_clock.clock = (u16)__atomic_fetch_add(&clock_count, 1, __ATOMIC_RELAXED);
    pool->clock.event_clock.t0 = clock_ticks();
    meta_append(KIND_event_clock, &pool->clock);
}

static bool make_events(struct pool *pool) {
    pool->pairs = calloc(POOL_PAIRS, sizeof *pool->pairs);
    if (!pool->pairs || cuda.event_create(&pool->reference, 0) != 0) return false;
    for (u32 i = 0; i < POOL_PAIRS; i++) {
        struct pair *pair = &pool->pairs[i];
        if (cuda.event_create(&pair->start, 0) != 0 || cuda.event_create(&pair->stop, 0) != 0)
            break;
        pool->pair_count++;
    }
    return pool->pair_count > 0;
}

static void calibrate(struct pool *pool, u32 comm) {
    struct slot_event_clock *clock = &pool->clock.event_clock;
    struct marker_excess excess = {.reason = TIMING_POOL_EMPTY};
    struct marker_round rounds[MARKER_ROUNDS];
    for (u32 i = 0; i < MARKER_ROUNDS && i < pool->pair_count; i++)
        rounds[i] = (struct marker_round){pool->pairs[i].start, pool->pairs[i].stop};
    struct marker_kernel *kernel = marker_kernel_load(pool->context);
    if (pool->pair_count >= MARKER_ROUNDS) excess = marker_kernel_measure_excess(kernel, rounds);
    struct gpu gpu;
    clock->comm = (u16)comm;
    clock->reason = (u8)excess.reason;
    clock->calibrated = excess.reason == TIMING_FINE;
    clock->samples = (u16)excess.samples;
    clock->excess_median_ns = excess.median_ns;
    clock->excess_spread_ns = excess.spread_ns;
    clock->excess_busy_ns = excess.busy_ns;
    clock->excess_idle_ns = excess.idle_ns;
    if (identity_current_gpu(&gpu)) memcpy(clock->gpu_uuid, gpu.uuid, sizeof gpu.uuid);
}

// Under the lock of init.
void event_pool_open(u32 comm) {
    if (!timing_policy.by_events) return;
    int mode = cuda_enter();
    cuda_context context = NULL;
    bool current = cuda.context_current(&context) == 0 && context;
    struct pool *pool = current ? event_pool_of(context) : NULL;
    bool usable = pool && !__atomic_load_n(&pool->given_up, __ATOMIC_RELAXED);
    if (current && !usable && pool_count < MAX_POOLS) {
        pool = &event_pools[pool_count];
        pool->context = context;
        if (make_events(pool)) {
            calibrate(pool, comm);
            event_pool_begin_clock(pool);
            __atomic_store_n(&pool_count, pool_count + 1, __ATOMIC_RELEASE);
        } else {
            log_note("no CUDA events could be made; launches of a context are not timed");
            *pool = (struct pool){0};
        }
    }
    cuda_leave(mode);
}

// Launches that failed never stop. So many at once are no launches under way.
static void take_back_abandoned(struct pool *pool) {
    u32 started = 0;
    for (u32 i = 0; i < pool->pair_count; i++)
        started += __atomic_load_n(&pool->pairs[i].state, __ATOMIC_RELAXED) == PAIR_STARTED;
    if (started < pool->pair_count / 2) return;
    for (u32 i = 0; i < pool->pair_count; i++) {
        u32 expected = PAIR_STARTED;
        if (__atomic_compare_exchange_n(&pool->pairs[i].state, &expected, PAIR_FREE, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            event_pool_count_launch(TIMING_UNFINISHED);
    }
}

struct pair *event_pool_take(struct pool *pool) {
    u32 first = __atomic_fetch_add(&pool->next_pair, 1, __ATOMIC_RELAXED);
    for (u32 i = 0; i < pool->pair_count; i++) {
        struct pair *pair = &pool->pairs[(first + i) % pool->pair_count];
        u32 expected = PAIR_FREE;
        if (__atomic_compare_exchange_n(&pair->state, &expected, PAIR_STARTED, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return pair;
    }
    take_back_abandoned(pool);
    return NULL;
}
