// Pools of CUDA events, and reading them.
//
// The clock of a pool is that of its reference event: the start event of an earlier launch. CUDA
// gives distances between events in ms as a float, which is good to half a microsecond at 8 s. So
// the reference moves on: once a launch is read that started more than a second after it, the start
// event of that launch becomes the reference, and its place on the clock is the sum of all the
// distances before. After a gap of a minute the sum would be off by microseconds: a new clock
// begins.
#include "launch_events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "clock.h"
#include "cuda_driver.h"
#include "graph_markers.h"
#include "identity.h"
#include "log.h"
#include "marker_kernel.h"
#include "meta.h"
#include "nccl_abi.h"
#include "timing_policy.h"
#include "writer.h"

#define POOL_PAIRS 256u      // launches whose times are not read yet; a power of two
#define MAX_POOLS 32u        // contexts of a process, also those that were destroyed
#define READS_A_STOP 4u      // a query and two distances take 1 to 5 µs
#define NOT_READY_A_STOP 2u  // of different streams, so one need not be behind the other
#define ERRORS_IN_A_ROW 8u   // until a context is given up
#define CLOCK_START_NS 1e9   // so that a launch before the reference has a time above 0
#define REFERENCE_AGE_NS 1e9
#define LONGEST_GAP_NS 60e9

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
static struct pool pools[MAX_POOLS];
static u32 pool_count, clock_count;

// ---- a sample: where a launch's pair is, or why it has none ----
#define UNTIMED_SAMPLE 0x80000000u

static u32 sample_of(const struct pool *pool, const struct pair *pair) {
    return 1 + ((u32)(pool - pools) << 16 | (u32)(pair - pool->pairs));
}
static struct pool *pool_of(u32 sample) { return &pools[(sample - 1) >> 16]; }
static struct pair *pair_of(u32 sample) { return &pool_of(sample)->pairs[(sample - 1) & 0xFFFF]; }

static void count(enum timing_reason reason) {
    enum counter counter = COUNTER_launches_cuda_error;
    if (reason == TIMING_FINE) counter = COUNTER_launches_timed;
    if (reason == TIMING_CAPTURED) counter = COUNTER_launches_captured;
    if (reason == TIMING_CAPTURE_BEGAN) counter = COUNTER_launches_captured;
    if (reason == TIMING_POOL_EMPTY) counter = COUNTER_launches_pool_empty;
    if (reason == TIMING_UNKNOWN_CONTEXT) counter = COUNTER_launches_no_context;
    if (reason == TIMING_UNFINISHED) counter = COUNTER_launches_unfinished;
    arena_count(counter, NCCL_NUMBER(NCCL_KERNEL_LAUNCH));
}

static void write_time(const struct slot_launch_time *time, bool of_group) {
    u64 handle;
    struct writer *writer = writer_of_thread();
    count((enum timing_reason)time->reason);
    union slot *slot = writer ? writer_take(writer, 1, NO_EVENT, &handle) : NULL;
    if (!slot) return;
    memcpy(&slot->words[1], &((const union slot *)time)->words[1], SLOT_BYTES - 8);
    slot_commit(slot, head_word(KIND_launch_time, of_group, 0, handle));
}

static void write_untimed(u64 launch, bool of_group, u32 comm, u64 t0, enum timing_reason reason) {
    union slot slot = {0};
    slot.launch_time.parent = launch;
    slot.launch_time.t0 = t0;
    slot.launch_time.t1 = clock_ticks();
    slot.launch_time.comm = (u16)comm;
    slot.launch_time.reason = (u8)reason;
    write_time(&slot.launch_time, of_group);
}

// ---- errors ----
static void note_success(struct pool *pool) {
    __atomic_store_n(&pool->errors, 0, __ATOMIC_RELAXED);
}
static void note_error(struct pool *pool, const char *function, int error) {
    if (__atomic_add_fetch(&pool->errors, 1, __ATOMIC_RELAXED) != ERRORS_IN_A_ROW) return;
    pool->failed = function;
    pool->error = error;
    __atomic_store_n(&pool->given_up, 1, __ATOMIC_RELEASE);
}

void launch_events_report_failures(void) {
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (struct pool *pool = pools; pool < pools + used; pool++) {
        if (pool->reported || !__atomic_load_n(&pool->given_up, __ATOMIC_ACQUIRE)) continue;
        log_note(
            "launches of a CUDA context are not timed any more: %s failed %u times in a row, "
            "with error %d",
            pool->failed, ERRORS_IN_A_ROW, pool->error);
        pool->reported = true;
    }
}

// ---- pools ----
static struct pool *pool_of_context(cuda_context context) {
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (u32 i = used; i-- > 0;)  // a context made later may have an address of one before
        if (pools[i].context == context) return &pools[i];
    return NULL;
}

static void begin_clock(struct pool *pool) {
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
void launch_events_open(u32 comm) {
    if (!timing_policy.by_events) return;
    int mode = cuda_enter();
    cuda_context context = NULL;
    bool current = cuda.context_current(&context) == 0 && context;
    struct pool *pool = current ? pool_of_context(context) : NULL;
    bool usable = pool && !__atomic_load_n(&pool->given_up, __ATOMIC_RELAXED);
    if (current && !usable && pool_count < MAX_POOLS) {
        pool = &pools[pool_count];
        pool->context = context;
        if (make_events(pool)) {
            calibrate(pool, comm);
            begin_clock(pool);
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
            count(TIMING_UNFINISHED);
    }
}

static struct pair *take_pair(struct pool *pool) {
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
static void set_state(struct pair *pair, enum pair_state state) {
    __atomic_store_n(&pair->state, state, __ATOMIC_RELEASE);
}

// CUDA's errors 900 to 909 are about captures, as of the legacy stream while another one is
// captured: they say nothing about the context.
static bool is_of_capture(int error) { return error >= 900 && error <= 909; }

// ---- a launch ----
static u32 try_start(cuda_stream stream, u32 comm, u64 *capture) {
    cuda_context context = NULL;
    int status = 0, error = cuda.context_current(&context);
    struct pool *pool = error == 0 && context ? pool_of_context(context) : NULL;
    if (!pool) return UNTIMED_SAMPLE | TIMING_UNKNOWN_CONTEXT;
    if (__atomic_load_n(&pool->given_up, __ATOMIC_RELAXED)) return UNTIMED_SAMPLE | TIMING_GIVEN_UP;
    error = cuda.stream_is_capturing(stream, &status);
    if (is_of_capture(error)) return UNTIMED_SAMPLE | TIMING_CAPTURE_BEGAN;
    if (error != 0) {
        note_error(pool, "cuStreamIsCapturing", error);
        return UNTIMED_SAMPLE | TIMING_CUDA_ERROR;
    }
    if (status != 0) {
        *capture = graph_markers_note_launch(context, stream, comm);
        return UNTIMED_SAMPLE | TIMING_CAPTURED;
    }
    // One launch that does not end keeps the places behind it.
    u64 unread = __atomic_load_n(&pool->newest_order, __ATOMIC_RELAXED) -
                 __atomic_load_n(&pool->read_order, __ATOMIC_RELAXED);
    struct pair *pair = unread < POOL_PAIRS ? take_pair(pool) : NULL;
    if (!pair) return UNTIMED_SAMPLE | TIMING_POOL_EMPTY;
    pair->launch = 0;
    pair->stream = stream;
    pair->t0 = clock_ticks();
    error = cuda.event_record(pair->start, stream);
    if (error == 0) return sample_of(pool, pair);
    set_state(pair, PAIR_FREE);
    note_error(pool, "cuEventRecord", error);
    return UNTIMED_SAMPLE | TIMING_CUDA_ERROR;
}

struct launch_sample launch_events_start(void *stream, u32 comm) {
    struct launch_sample sample = {0};
    if (!timing_by_events() || !__atomic_load_n(&callback_state.recording, __ATOMIC_RELAXED))
        return sample;
    int mode = cuda_enter();
    sample.sample = try_start(stream, comm, &sample.capture);
    cuda_leave(mode);
    bool captured = sample.sample == (UNTIMED_SAMPLE | TIMING_CAPTURED);
    if (captured) {  // nothing was to be timed: such a launch is not running now
        count(TIMING_CAPTURED);
        sample.sample = 0;
    } else arena_count(COUNTER_launches_sampled, NCCL_NUMBER(NCCL_KERNEL_LAUNCH));
    return sample;
}

void launch_events_bind(u32 sample, u64 launch, bool of_group) {
    if (!sample || (sample & UNTIMED_SAMPLE)) {
        if (sample && !launch) count((enum timing_reason)(sample & 0xFF));
        return;
    }
    struct pair *pair = pair_of(sample);
    pair->launch = launch;
    pair->of_group = of_group;
    if (launch) return;
    set_state(pair, PAIR_FREE);
    count(TIMING_POOL_EMPTY);
}

// ---- reading ----
static void swap_events(cuda_event *a, cuda_event *b) {
    cuda_event other = *a;
    *a = *b;
    *b = other;
}

// Both events are over. False: CUDA does not give their distance.
static bool read_pair(struct pool *pool, struct pair *pair, struct slot_launch_time *time) {
    float since_ms = 0, duration_ms = 0;
    int error = cuda.event_elapsed(&duration_ms, pair->start, pair->stop);
    if (error == 0 && pool->has_reference)
        error = cuda.event_elapsed(&since_ms, pool->reference, pair->start);
    if (error == 0 && pool->has_reference && fabs((double)since_ms * 1e6) > LONGEST_GAP_NS)
        begin_clock(pool);
    double start_ns =
        pool->has_reference ? pool->reference_ns + (double)since_ms * 1e6 : CLOCK_START_NS;
    if (error != 0 || !(duration_ms >= 0) || !(start_ns >= 0)) {
        if (error != 0) note_error(pool, "cuEventElapsedTime", error);
        return false;
    }
    note_success(pool);
    time->gpu_start_ns = (u64)start_ns;
    time->gpu_stop_ns = (u64)(start_ns + (double)duration_ms * 1e6);
    time->clock = pool->clock.event_clock.clock;
    if (!pool->has_reference || start_ns - pool->reference_ns > REFERENCE_AGE_NS) {
        swap_events(&pool->reference, &pair->start);
        pool->reference_ns = start_ns;
        pool->has_reference = true;
    }
    return true;
}

// False: the GPU has not finished it.
static bool read_if_finished(struct pool *pool, struct pair *pair, bool give_up) {
    union slot slot = {0};
    struct slot_launch_time *time = &slot.launch_time;
    int error = cuda.event_query(pair->stop);
    time->t1 = clock_ticks();
    if (error == CUDA_NOT_READY && !give_up) return false;
    set_state(pair, PAIR_READING);
    time->parent = pair->launch;
    time->t0 = pair->t0;
    time->comm = pair->comm;
    if (error == CUDA_NOT_READY) time->reason = TIMING_UNFINISHED;
    else if (error != 0) {
        note_error(pool, "cuEventQuery", error);
        time->reason = TIMING_CUDA_ERROR;
    } else if (!read_pair(pool, pair, time)) time->reason = TIMING_CUDA_ERROR;
    bool of_group = pair->of_group;
    set_state(pair, PAIR_FREE);
    write_time(time, of_group);
    return true;
}

static void read_some(struct pool *pool, u32 most, u32 most_not_ready, bool give_up) {
    if (__atomic_exchange_n(&pool->reading, 1, __ATOMIC_ACQUIRE)) return;
    u64 newest = __atomic_load_n(&pool->newest_order, __ATOMIC_ACQUIRE);
    u32 read = 0, not_ready = 0;
    for (u64 order = pool->read_order + 1; order <= newest; order++) {
        u64 *at = &pool->pending[order % (2 * POOL_PAIRS)];
        u64 place = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (place >> 16 != order || read == most || not_ready == most_not_ready) break;
        if (place & 0xFFFF) {  // else it was read before one that came earlier
            struct pair *pair = &pool->pairs[(place & 0xFFFF) - 1];
            if (!read_if_finished(pool, pair, give_up)) {
                not_ready++;
                continue;
            }
            read++;
            *at = order << 16;
        }
        if (order == pool->read_order + 1)
            __atomic_store_n(&pool->read_order, order, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&pool->reading, 0, __ATOMIC_RELEASE);
}

static enum timing_reason try_stop(struct pool *pool, const struct pair *pair) {
    int status = 0, error = cuda.stream_is_capturing(pair->stream, &status);
    if ((error == 0 && status != 0) || is_of_capture(error)) return TIMING_CAPTURE_BEGAN;
    if (error == 0) error = cuda.event_record(pair->stop, pair->stream);
    if (error == 0) return TIMING_FINE;
    note_error(pool, "cuEventRecord", error);
    return TIMING_CUDA_ERROR;
}

void launch_events_stop(u32 sample, u64 launch, bool of_group, u32 comm) {
    if (!sample) return;
    if (sample & UNTIMED_SAMPLE) {
        enum timing_reason reason = (enum timing_reason)(sample & 0xFF);
        write_untimed(launch, of_group, comm, clock_ticks(), reason);
        return;
    }
    struct pool *pool = pool_of(sample);
    struct pair *pair = pair_of(sample);
    if (pair->launch != launch || __atomic_load_n(&pair->state, __ATOMIC_RELAXED) != PAIR_STARTED)
        return;  // given up meanwhile
    int mode = cuda_enter();
    enum timing_reason reason = try_stop(pool, pair);
    pair->comm = (u16)comm;
    if (reason == TIMING_FINE) {
        set_state(pair, PAIR_PENDING);
        u64 order = __atomic_add_fetch(&pool->newest_order, 1, __ATOMIC_RELAXED);
        u64 place = order << 16 | (1 + (u64)(pair - pool->pairs));
        __atomic_store_n(&pool->pending[order % (2 * POOL_PAIRS)], place, __ATOMIC_RELEASE);
    } else {
        u64 t0 = pair->t0;
        set_state(pair, PAIR_FREE);
        write_untimed(launch, of_group, comm, t0, reason);
    }
    read_some(pool, READS_A_STOP, NOT_READY_A_STOP, false);
    cuda_leave(mode);
}

void launch_events_note_captured_group(u64 group, u32 comm, u64 capture) {
    u64 handle;
    struct writer *writer = writer_of_thread();
    union slot *slot = writer ? writer_take(writer, 1, NO_EVENT, &handle) : NULL;
    if (!slot) return;
    memset(&slot->words[1], 0, SLOT_BYTES - 8);
    slot->launch_time.parent = group;
    slot->launch_time.t0 = slot->launch_time.t1 = clock_ticks();
    slot->launch_time.gpu_start_ns = capture;
    slot->launch_time.comm = (u16)comm;
    slot->launch_time.reason = TIMING_CAPTURED;
    slot_commit(slot, head_word(KIND_launch_time, true, 0, handle));
}

void launch_events_close(bool last) {
    if (!timing_policy.by_events) return;
    int mode = cuda_enter();
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (u32 i = 0; i < used; i++)
        if (!__atomic_load_n(&pools[i].given_up, __ATOMIC_RELAXED) || last)
            read_some(&pools[i], POOL_PAIRS, last ? POOL_PAIRS : NOT_READY_A_STOP, last);
    cuda_leave(mode);
}

void launch_events_count_unread(void) {
    u32 used = __atomic_load_n(&pool_count, __ATOMIC_ACQUIRE);
    for (u32 i = 0; i < used; i++)
        for (u32 k = 0; k < pools[i].pair_count; k++)
            if (__atomic_load_n(&pools[i].pairs[k].state, __ATOMIC_RELAXED) != PAIR_FREE)
                count(TIMING_UNFINISHED);
}
