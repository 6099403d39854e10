// The helper thread: one loop that drains, beats and looks at the control file.
#define _GNU_SOURCE
#include "helper.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "arena.h"
#include "attach.h"
#include "clock.h"
#include "comm.h"
#include "config.h"
#include "context.h"
#include "control.h"
#include "disk_waits.h"
#include "drain.h"
#include "event_pool.h"
#include "graph_markers.h"
#include "launch_events.h"
#include "live.h"
#include "log.h"
#include "meta.h"
#include "range_text.h"
#include "recording_mode.h"
#include "salvage.h"
#include "sampled_launches.h"
#include "sigbus_guard.h"
#include "sink.h"
#include "tracker.h"
#include "training_steps.h"

#define SECOND_NS 1000000000ull
#define PERIOD_NS 10000000ull      // between looks at the streams
#define BUSY_PERIOD_NS 1000000ull  // while much is written
// A stream that fills no chunk is drained this often. With PATIENCE_MS an open event is on disk
// after 1.5 s; readers of a running job expect it within 2 s.
#define DRAIN_PERIOD_NS 500000000ull
#define CROWD_PERIOD_NS 50000000ull  // while streams may run out: looks for exited threads
#define PATIENCE_MS 1000u            // for the end of an open event
#define CONTROL_PERIOD_NS 500000000ull
// At exit, what cannot be written is tried again for a moment: a full disk may have room again.
#define LAST_ATTEMPTS 4
#define LAST_ATTEMPT_NS 50000000ull
#define COUNTS_PATIENCE_NS 100000000ull  // for the GPU's last counts, at exit
#define COMFORTABLE_CHUNKS 512u          // 32 MB, populated in the background right after the start

static const char *folder;
static struct clock_pair first_pair;
static u64 ticks_per_ms;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static clockid_t wait_clock = CLOCK_MONOTONIC;  // the condition's
static enum { RUNNING, FINISHING, FINISHED } phase;
static bool woken, truncation_noted;

// ---- what a pass does ----
// True when there is more to come.
static bool drain_meta(void) {
    static union slot batch[META_SLOTS];
    bool more = !range_text_announce(training_steps_text());
    if (!sink_is_open()) return false;
    context_write();
    size_t slots = meta_peek(batch, META_SLOTS);
    if (!slots || !sink_meta(batch, slots)) return false;
    meta_release(slots);
    return more;
}

// While nothing can be written, the ring of metadata is left to what comes only once.
static bool has_room_for_repeats(void) { return sink_is_open() || meta_has_spare_room(); }

static void write_counters(u64 now) {
    static u64 written[COUNTER_COUNT][COUNTER_EVENTS];
    static u32 folder_number;
    if (folder_number != sink_folders()) memset(written, 0, sizeof written);
    folder_number = sink_folders();
    if (!has_room_for_repeats()) return;
    for (unsigned counter = 0; counter < COUNTER_COUNT; counter++)
        for (unsigned event = 0; event < COUNTER_EVENTS; event++) {
            u64 value = __atomic_load_n(arena_counter(counter, event), __ATOMIC_RELAXED);
            if (value == written[counter][event]) continue;
            union slot slot = {0};
            slot.count.value = value;
            slot.count.t0 = now;
            slot.count.counter = (u16)counter;
            slot.count.event = (u16)event;
            if (meta_append(KIND_count, &slot)) written[counter][event] = value;
        }
}

static enum sink_use use_of_sink(void) {
    if (config.ring_bytes) return TO_RING;
    return config.mode == MODE_PROFILE ? TO_NOWHERE : TO_DISK;
}

static void heartbeat(bool ended) {
    struct clock_pair pair = clock_sample();
    struct file_header *header = (struct file_header *)arena.base;
    struct sink_totals totals = sink_totals();
    u64 hz = clock_hz_between(&first_pair, &pair);
    __atomic_store_n(&header->clock_hz, hz, __ATOMIC_RELAXED);
    __atomic_store_n(&header->heartbeat_ns, pair.monotonic_ns, __ATOMIC_RELAXED);
    ticks_per_ms = hz / 1000;
    tracker_expire(&pair, hz, ended);
    training_steps_use_rate(hz);
    event_pool_look_after();
    if (ended) launch_events_count_unread();
    graph_markers_write(ended);
    arena_look_after_files();
    sink_look_after_files();
    if (sigbus_guard_was_needed() && !truncation_noted) {
        log_note("somebody truncated %s; events in it are lost", arena.path);
        truncation_noted = true;
    }
    if (has_room_for_repeats()) meta_sync(&pair, totals.slots, totals.bytes);
    live_write(&pair, ended);
    write_counters(pair.ticks_after);  // after live_write, which counts what it had to fold
}

static bool free_below(u32 fraction) {
    return __atomic_load_n(&arena.free_count, __ATOMIC_RELAXED) < arena.chunks_ready / fraction;
}

// During a slow write nobody adds memory, so a slow disk gets all there may be beforehand.
// Otherwise the arena grows to twice of what is in use: the next wait may be as long as the last.
static void keep_memory_ready(void) {
    while ((arena.chunks_ready < COMFORTABLE_CHUNKS || disk_is_slow() || free_below(2)) &&
           arena_grow()) {
    }
}

static bool streams_are_scarce(void) {
    return __atomic_load_n(&streams_used, __ATOMIC_RELAXED) > MAX_STREAMS / 32;
}

static struct drain_pass this_pass(bool everything) {
    return (struct drain_pass){.use = use_of_sink(),
                               .now = clock_ticks(),
                               .patience = PATIENCE_MS * ticks_per_ms,
                               .everything = everything,
                               .scarce = free_below(2) || streams_are_scarce()};
}

static u64 pass(bool everything) {
    struct drain_pass now = this_pass(everything);
    u64 visited = 0;
    if (sink_is_open() || now.use != TO_DISK) visited = drain_streams(&now);
    drain_meta();
    return visited;
}

static void apply_control(void) {
    struct control_request request;
    recording_mode_check_deadline();
    if (!control_poll(&request, folder)) return;
    // What was recorded until now goes where the mode until now sends it.
    pass(true);
    recording_mode_apply(&request);
    if (request.kernel_steps) attach_take_kernels(request.kernel_steps, request.kernels_after_ns);
    struct drain_pass now = this_pass(true);
    if (request.copy_out && now.use == TO_RING && sink_is_open()) drain_copy_out(&now);
}

static void write_end(void) {
    union slot slot = {0};
    slot.end.t0 = clock_ticks();
    slot.end.slots_written = sink_totals().slots;
    slot.end.comms_open = comm_open_count();
    meta_append(KIND_end, &slot);
}

static bool open_sink(void) {
    sink_look_after_files();
    return sink_is_open() || sink_open(folder);
}

// Counts and metadata. What could not be written before is tried again.
static bool write_rest(void) {
    if (!open_sink()) return false;
    struct clock_pair pair = clock_sample();
    bool written = live_write(&pair, true);
    write_counters(pair.ticks_after);
    graph_markers_write(true);
    sampled_launches_write_graph_calls();
    while (drain_meta()) {
    }
    return written && meta_is_empty();
}

static void sleep_ns(u64 ns) {
    struct timespec length = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
    nanosleep(&length, NULL);
}

// An End slot says that everything is written: without it readers look for the arena, and say that
// counts end early if there is none.
static void finish(void) {
    bool open = open_sink(), complete = false;
    while (pass(true)) {
    }
    if (open && use_of_sink() == TO_RING) {
        struct drain_pass now = this_pass(true);
        drain_copy_out(&now);
    }
    graph_markers_close(true, COUNTS_PATIENCE_NS);
    heartbeat(true);
    for (int attempt = 0; attempt < LAST_ATTEMPTS && !complete; attempt++) {
        if (attempt) sleep_ns(LAST_ATTEMPT_NS);
        complete = write_rest();
    }
    if (!complete) return;  // the arena stays for whoever comes to salvage it
    write_end();
    drain_meta();
    // With communicators still open, NCCL's threads may go on calling until the process is gone:
    // what they write then stays in a small arena for salvage.
    if (comm_open_count() == 0 && meta_is_empty()) arena_unlink();
    else arena_shrink();
}

// ---- the thread ----
static struct timespec in_future(u64 ns) {
    struct timespec when = {0};
    clock_gettime(wait_clock, &when);
    u64 total = (u64)when.tv_nsec + ns;
    when.tv_sec += (time_t)(total / SECOND_NS);
    when.tv_nsec = (long)(total % SECOND_NS);
    return when;
}

// True when the process is exiting.
static bool sleep_until_next_pass(u64 ns) {
    struct timespec deadline = in_future(ns);
    int error = 0;
    pthread_mutex_lock(&lock);
    while (phase == RUNNING && !woken && !error)
        error = pthread_cond_timedwait(&changed, &lock, &deadline);
    woken = false;
    bool finishing = phase == FINISHING;
    pthread_mutex_unlock(&lock);
    // Without a clock the thread must not spin.
    if (!finishing && ((error && error != ETIMEDOUT) || (u64)deadline.tv_sec <= ns / SECOND_NS))
        sleep_ns(ns);
    return finishing;
}

static void lower_priority(void) {
    cpu_set_t all;  // NCCL narrows the affinity of the thread that created this one
    memset(&all, 0xFF, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    (void)!nice(5);  // of this thread alone; below the job, whatever that has
    pthread_setname_np(pthread_self(), "ncclscope");
}

static void *run(void *unused) {
    (void)unused;
    lower_priority();
    keep_memory_ready();  // before the first system call that may take long
    u64 next_heartbeat = 0, next_try = 0, next_drain = 0, next_control = 0, heartbeats = 0;
    for (;;) {
        u64 now = clock_monotonic_ns();
        if (!sink_is_open() && now >= next_try) {
            sink_open(folder);
            next_try = clock_monotonic_ns() + SECOND_NS;
            keep_memory_ready();
        }
        if (now >=
            next_heartbeat) {  // soon after the start again, for an idea of the counter's rate
            heartbeat(false);
            next_heartbeat = now + (heartbeats == 0   ? PERIOD_NS
                                    : heartbeats == 1 ? SECOND_NS / 10
                                                      : SECOND_NS);
            if (heartbeats++ == 1) salvage_dead_arenas();
            keep_memory_ready();
        }
        if (now >= next_control) {
            apply_control();
            next_control = now + CONTROL_PERIOD_NS;
        }
        keep_memory_ready();
        u64 visited = 0;
        if (drain_is_due() || now >= next_drain) {
            visited = pass(false);
            next_drain = now + (streams_are_scarce() ? CROWD_PERIOD_NS : DRAIN_PERIOD_NS);
        }
        bool busy = visited > CHUNK_SLOTS || free_below(2);
        if (sleep_until_next_pass(busy ? BUSY_PERIOD_NS : PERIOD_NS)) break;
    }
    finish();
    pthread_mutex_lock(&lock);
    phase = FINISHED;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

bool helper_start(const char *process_folder) {
    folder = process_folder;
    first_pair = clock_sample();
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0 ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
        pthread_cond_init(&changed, &attributes) != 0)
        wait_clock = CLOCK_REALTIME;  // as a condition is that was initialized statically
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);  // of a thread's own doing; blocked, they kill
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the host's signals are not for this thread
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, run, NULL) == 0;
    if (started) pthread_detach(thread);
    else phase = FINISHED;  // nobody to wait for at exit
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void helper_wake(void) {
    pthread_mutex_lock(&lock);
    woken = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void helper_finish(u64 wait_ns) {
    struct timespec deadline = in_future(wait_ns);
    pthread_mutex_lock(&lock);
    if (phase == RUNNING) phase = FINISHING;
    pthread_cond_broadcast(&changed);
    while (phase != FINISHED)
        if (pthread_cond_timedwait(&changed, &lock, &deadline) != 0) break;
    pthread_mutex_unlock(&lock);
}
