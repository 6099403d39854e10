// Records events around launches, and reads them.
//
// The clock of a pool is that of its reference event: the start event of an earlier launch. CUDA
// gives distances between events in ms as a float, which is good to half a microsecond at 8 s. So
// the reference moves on: once a launch is read that started more than a second after it, the start
// event of that launch becomes the reference, and its place on the clock is the sum of all the
// distances before. After a gap of a minute the sum would be off by microseconds: a new clock
// begins.
#include "launch_events.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clock.h"
#include "event_pool.h"
#include "graph_markers.h"
#include "nccl_abi.h"
#include "timing_policy.h"
#include "writer.h"

#define READS_A_STOP 4u      // a query and two distances take 1 to 5 µs
#define READ_TOGETHER 4u     // in profile mode: the driver's code is not in the caches at first
#define NOT_READY_A_STOP 2u  // of different streams, so one need not be behind the other
#define CLOCK_START_NS 1e9   // so that a launch before the reference has a time above 0
#define REFERENCE_AGE_NS 1e9
#define LONGEST_GAP_NS 60e9

// ---- a sample: where a launch's pair is, or why it has none ----
#define UNTIMED_SAMPLE 0x80000000u

static u32 sample_of(const struct pool *pool, const struct pair *pair) {
    return 1 + ((u32)(pool - event_pools) << 16 | (u32)(pair - pool->pairs));
}
static struct pool *pool_of(u32 sample) { return &event_pools[(sample - 1) >> 16]; }
static struct pair *pair_of(u32 sample) { return &pool_of(sample)->pairs[(sample - 1) & 0xFFFF]; }

static void write_time(const struct slot_launch_time *time, bool of_group) {
    u64 handle;
    struct writer *writer = writer_of_thread();
    event_pool_count_launch((enum timing_reason)time->reason);
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

// CUDA's errors 900 to 909 are about captures, as of the legacy stream while another one is
// captured: they say nothing about the context.
static bool is_of_capture(int error) { return error >= 900 && error <= 909; }

// ---- a launch ----
static u32 try_start(cuda_stream stream, u32 comm, u64 *capture) {
    cuda_context context = NULL;
    int status = 0, error = cuda.context_current(&context);
    struct pool *pool = error == 0 && context ? event_pool_of(context) : NULL;
    if (!pool) return UNTIMED_SAMPLE | TIMING_UNKNOWN_CONTEXT;
    if (__atomic_load_n(&pool->given_up, __ATOMIC_RELAXED)) return UNTIMED_SAMPLE | TIMING_GIVEN_UP;
    error = cuda.stream_is_capturing(stream, &status);
    if (is_of_capture(error)) return UNTIMED_SAMPLE | TIMING_CAPTURE_BEGAN;
    if (error != 0) {
        event_pool_note_error(pool, "cuStreamIsCapturing", error);
        return UNTIMED_SAMPLE | TIMING_CUDA_ERROR;
    }
    if (status != 0) {
        *capture = graph_markers_note_launch(context, stream, comm);
        return UNTIMED_SAMPLE | TIMING_CAPTURED;
    }
    // One launch that does not end keeps the places behind it.
    u64 unread = __atomic_load_n(&pool->newest_order, __ATOMIC_RELAXED) -
                 __atomic_load_n(&pool->read_order, __ATOMIC_RELAXED);
    struct pair *pair = unread < POOL_PAIRS ? event_pool_take(pool) : NULL;
    if (!pair) return UNTIMED_SAMPLE | TIMING_POOL_EMPTY;
    pair->launch = 0;
    pair->stream = stream;
    pair->t0 = clock_ticks();
    error = cuda.event_record(pair->start, stream);
    if (error == 0) return sample_of(pool, pair);
    event_pool_set_state(pair, PAIR_FREE);
    event_pool_note_error(pool, "cuEventRecord", error);
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
        event_pool_count_launch(TIMING_CAPTURED);
        sample.sample = 0;
    } else arena_count(COUNTER_launches_sampled, NCCL_NUMBER(NCCL_KERNEL_LAUNCH));
    return sample;
}

void launch_events_bind(u32 sample, u64 launch, bool of_group) {
    if (!sample || (sample & UNTIMED_SAMPLE)) {
        if (sample && !launch) event_pool_count_launch((enum timing_reason)(sample & 0xFF));
        return;
    }
    struct pair *pair = pair_of(sample);
    pair->launch = launch;
    pair->of_group = of_group;
    if (launch) return;
    event_pool_set_state(pair, PAIR_FREE);
    event_pool_count_launch(TIMING_POOL_EMPTY);
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
        event_pool_begin_clock(pool);
    double start_ns =
        pool->has_reference ? pool->reference_ns + (double)since_ms * 1e6 : CLOCK_START_NS;
    if (error != 0 || !(duration_ms >= 0) || !(start_ns >= 0)) {
        if (error != 0) event_pool_note_error(pool, "cuEventElapsedTime", error);
        return false;
    }
    event_pool_note_success(pool);
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
    event_pool_set_state(pair, PAIR_READING);
    time->parent = pair->launch;
    time->t0 = pair->t0;
    time->comm = pair->comm;
    if (error == CUDA_NOT_READY) time->reason = TIMING_UNFINISHED;
    else if (error != 0) {
        event_pool_note_error(pool, "cuEventQuery", error);
        time->reason = TIMING_CUDA_ERROR;
    } else if (!read_pair(pool, pair, time)) time->reason = TIMING_CUDA_ERROR;
    bool of_group = pair->of_group;
    event_pool_set_state(pair, PAIR_FREE);
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

// Where single launches go on record, how soon a launch was seen to be over bounds its place on the
// host's clock: everything is read as soon as possible. In profile mode only its duration counts.
static bool is_time_to_read(struct pool *pool) {
    if (!callback_state_drops_works()) return true;
    u64 unread = __atomic_load_n(&pool->newest_order, __ATOMIC_RELAXED) -
                 __atomic_load_n(&pool->read_order, __ATOMIC_RELAXED);
    bool due = __atomic_exchange_n(&pool->read_due, 0, __ATOMIC_RELAXED);
    return due || unread >= READ_TOGETHER;
}

static enum timing_reason try_stop(struct pool *pool, const struct pair *pair) {
    int status = 0, error = cuda.stream_is_capturing(pair->stream, &status);
    if ((error == 0 && status != 0) || is_of_capture(error)) return TIMING_CAPTURE_BEGAN;
    if (error == 0) error = cuda.event_record(pair->stop, pair->stream);
    if (error == 0) return TIMING_FINE;
    event_pool_note_error(pool, "cuEventRecord", error);
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
        event_pool_set_state(pair, PAIR_PENDING);
        u64 order = __atomic_add_fetch(&pool->newest_order, 1, __ATOMIC_RELAXED);
        u64 place = order << 16 | (1 + (u64)(pair - pool->pairs));
        __atomic_store_n(&pool->pending[order % (2 * POOL_PAIRS)], place, __ATOMIC_RELEASE);
    } else {
        u64 t0 = pair->t0;
        event_pool_set_state(pair, PAIR_FREE);
        write_untimed(launch, of_group, comm, t0, reason);
    }
    if (is_time_to_read(pool)) read_some(pool, READS_A_STOP, NOT_READY_A_STOP, false);
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
    u32 used = event_pool_count();
    for (u32 i = 0; i < used; i++)
        if (!__atomic_load_n(&event_pools[i].given_up, __ATOMIC_RELAXED) || last)
            read_some(&event_pools[i], POOL_PAIRS, last ? POOL_PAIRS : NOT_READY_A_STOP, last);
    cuda_leave(mode);
}

void launch_events_count_unread(void) {
    u32 used = event_pool_count();
    for (u32 i = 0; i < used; i++)
        for (u32 k = 0; k < event_pools[i].pair_count; k++)
            if (__atomic_load_n(&event_pools[i].pairs[k].state, __ATOMIC_RELAXED) != PAIR_FREE)
                event_pool_count_launch(TIMING_UNFINISHED);
}
