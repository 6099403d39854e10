// Starts and ends the recorder in its host process.
#define _GNU_SOURCE
#include "plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach.h"
#include "chain.h"
#include "config.h"
#include "cuda_driver.h"
#include "event_filter.h"
#include "event_pool.h"
#include "graph_markers.h"
#include "helper.h"
#include "identity.h"
#include "intern.h"
#include "launch_events.h"
#include "log.h"
#include "meta.h"
#include "range.h"
#include "sigbus_guard.h"
#include "tally.h"
#include "timing_policy.h"
#include "version.h"

#define FINALIZE_PATIENCE_NS 5000000u  // for counts on the GPU; the process's end is another chance

// Not zero, not an address: handed out where nothing is recorded.
#define IDLE_CONTEXT ((void *)(uintptr_t)1)

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;  // init and finalize only
static bool started;
static char process_folder[400];

static u64 random_nonce(void) {
    u64 random = 0;
    if (syscall(SYS_getrandom, &random, sizeof random, 1) != sizeof random)
        random = (clock_monotonic_ns() + (u64)getpid()) * 0x9E3779B97F4A7C15u;
    return 0x8000 + (random >> 7) % 0x7F00;  // no address of either architecture starts so
}

static void name_process(void) {
    char host[256];
    identity_host(host, sizeof host);
    for (char *c = host; *c; c++)
        if (*c == '/' || *c == '.') *c = '_';
    snprintf(process_folder, sizeof process_folder, "%s.%d.%llu", host, (int)getpid(),
             (unsigned long long)identity_start_ticks(getpid()));
}

// "on", or why graph replays are not counted.
static const char *graph_markers_text(void) {
    static char text[96];
    if (!timing_by_events()) return "off: only with sampled GPU timing";
    if (!config.graph_markers) return "off: NCCLSCOPE_GRAPH_MARKERS=0";
    if (!cuda_missing_for_markers()) return "on";
    snprintf(text, sizeof text, "off: the driver lacks %s", cuda_missing_for_markers());
    return text;
}

static void fill_header(const struct clock_pair *pair, const void *nccl_address) {
    static const char schema[] = FORMAT_SCHEMA;
    struct file_header *header = (struct file_header *)arena.base;
    memcpy(header->magic, FORMAT_MAGIC, sizeof header->magic);
    header->endian = FORMAT_ENDIAN;
    header->major = FORMAT_MAJOR;
    header->minor = FORMAT_MINOR;
    header->file_kind = FILE_ARENA;
    header->header_bytes = MAX_HEADER_BYTES;
    header->slot_bytes = SLOT_BYTES;
    header->schema_offset = sizeof *header;
    header->schema_bytes = sizeof schema - 1;
    header->identity_offset = header->schema_offset + header->schema_bytes;
    memcpy(arena.base + header->schema_offset, schema, header->schema_bytes);
    struct identity_facts facts = {
        .mode = config_mode_name(),
        .capture_dir = config.capture_dir,
        .process_folder = process_folder,
        .arena_path = arena.path,
        .nccl_address = nccl_address,
        .gpu_timing_asked = config_timing_name(config.gpu_timing_asked),
        .gpu_timing_in_force = config_timing_name(timing_policy.in_force),
        .gpu_timing_reason = timing_policy.reason,
        .graph_markers = graph_markers_text(),
    };
    header->identity_bytes = (u32)identity_write(
        arena.base + header->identity_offset, MAX_HEADER_BYTES - header->identity_offset, &facts);
    header->nonce = callback_state.nonce;
    header->clock_kind = callback_state.clock;
    header->start_ticks = pair->ticks_before;
    header->start_monotonic_ns = pair->monotonic_ns;
    header->start_realtime_ns = pair->realtime_ns;
    header->pid = (u32)getpid();
}

static void in_fork_child(void) {
    callback_state.recording = false;
    range_in_fork_child();
    tally_forget();
    writer_self = (struct writer){0};
    arena_forget();
}

static void at_exit(void) {
    if (__atomic_load_n(&callback_state.recording, __ATOMIC_RELAXED))
        helper_finish(config.exit_wait_ns);
}

static void start(int version, const void *nccl_address) {
    started = true;
    config_read();
    if (config.disabled) {
        range_begin(false);
        return;
    }
    cuda_driver_find(nccl_address);
    timing_policy_choose(version);
    timing_policy_settle_groups();
    clock_choose();
    struct clock_pair before = clock_sample();
    u64 nonce = random_nonce();
    name_process();
    attach_use_folder(process_folder);
    // Without the first, fork children would write into the parent's arena.
    if (pthread_atfork(NULL, NULL, in_fork_child) != 0 || !arena_create(process_folder)) {
        range_begin(false);
        return;
    }
    callback_state.nonce = nonce;
    fill_header(&before, nccl_address);
    meta_sync(&before, 0, 0);
    struct clock_pair after =
        clock_sample();  // two pairs give the counter's rate, whatever happens next
    ((struct file_header *)arena.base)->clock_hz = clock_hz_between(&before, &after);
    meta_sync(&after, 0, 0);
    tally_setup();
    callback_state.fast_events = NCCL_EVENTS_NEWEST;
    writer_locate();
    stream_setup_all(nonce);
    range_begin(config.ranges);
    if (arena.fd >= 0) sigbus_guard_install();
    atexit(at_exit);
    if (arena_refused[0]) log_keep("shared memory is not used: ", arena_refused);
    if (!helper_start(process_folder))
        log_note(arena.fd >= 0 ? "no helper thread; recording ends when the arena is full"
                               : "no helper thread and no shared memory; nothing will be left");
    if (config.complaint[0]) log_note("%s", config.complaint);  // `run` prints it at the end
}

static void log_banner(void) {
    if (config.disabled) log_line("disabled by NCCLSCOPE_DISABLE");
    else if (!callback_state.recording) log_line("no memory to record into; nothing is recorded");
    else
        log_line("%s records in %s mode to %s/%s (%u MB %s%s%s); GPU timing: %s%s%s",
                 NCCLSCOPE_VERSION, config_mode_name(), config.capture_dir, process_folder,
                 arena.chunk_limit >> (20 - CHUNK_SLOTS_LOG2 - 6),
                 arena.fd >= 0 ? "shared memory" : "private memory", arena_refused[0] ? ": " : "",
                 arena_refused, config_timing_name(timing_policy.in_force),
                 config.complaint[0] ? "; " : "", config.complaint);
}

nccl_result plugin_init(void **context, int *mask, struct comm_description *description,
                        nccl_log_fn log, const void *nccl_address) {
    pthread_mutex_lock(&lifecycle);
    bool first = !started;
    if (first) start((int)description->version, nccl_address);
    pthread_mutex_unlock(&lifecycle);
    log_use(log);
    if (first) log_banner();
    int version = (int)description->version;
    u32 interface_events = nccl_events_of(version);
    bool active = __atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE);
    u32 events = __atomic_load_n(&config.events, __ATOMIC_RELAXED);
    description->mask = active ? events & interface_events : 0;
    *context = active ? comm_open(description) : IDLE_CONTEXT;
    range_know_interface(description->version);
    if (active) {
        pthread_mutex_lock(&lifecycle);
        event_pool_open(comm_number_in(*context));
        pthread_mutex_unlock(&lifecycle);
    }
    u32 chained = 0;
    if (active && config.chain[0]) {
        pthread_mutex_lock(&lifecycle);
        chain_load(version);
        pthread_mutex_unlock(&lifecycle);
        chained = chain_init(*context, version, description, log);
        if (callback_state.chained)
            __atomic_store_n(&callback_state.fast_events, 0, __ATOMIC_RELAXED);
    }
    // Only under the lock, and before the helper may want to change it.
    pthread_mutex_lock(&lifecycle);
    if (active) event_filter_remember_mask(mask, version, chained);
    pthread_mutex_unlock(&lifecycle);
    // One word for all communicators of this NCCL.
    __atomic_store_n(mask, (int)(description->mask | (chained & interface_events)),
                     __ATOMIC_RELAXED);
    if (active) attach_request();
    log_pending();
    return 0;
}

nccl_result plugin_finalize(void *context) {
    if (!__atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE)) return 0;
    chain_finalize(context);
    comm_close(context);
    launch_events_close(comm_open_count() == 0);
    graph_markers_close(comm_open_count() == 0, FINALIZE_PATIENCE_NS);
    if (comm_open_count() == 0) {
        intern_forget_addresses();
        helper_wake();
    }
    log_pending();
    return 0;
}
