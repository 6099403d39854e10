// Progress threads.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "progress_parts.h"
#include "settings.h"
#include "stream.h"

enum { DRAIN_NS = 2000000000 };

// ---- runs ----
struct run *run_make(void) {
    struct run *run = calloc(1, sizeof *run);
    run->holders = 1;
    return run;
}
struct run *run_hold(struct run *run) {
    __atomic_add_fetch(&run->holders, 1, __ATOMIC_RELAXED);
    return run;
}
void run_release(struct run *run) {
    if (__atomic_sub_fetch(&run->holders, 1, __ATOMIC_ACQ_REL) == 0) free(run);
}

// ---- adding ----
static struct item *add(struct progress *progress) {
    struct item *item = calloc(1, sizeof *item), **end = &progress->prepared;
    while (*end) end = &(*end)->next;
    return *end = item;
}

void progress_add_kernel(struct progress *progress, void *parent, struct channel *channel,
                         int channel_number, int direction, uint64_t number, bool phases) {
    struct item *item = add(progress);
    item->is_kernel = true;
    item->parent = parent;
    item->channel = channel;
    item->channel_number = channel_number;
    item->direction = direction;
    item->number = number;
    item->phases = phases;
}

void progress_add_proxy(struct progress *progress, const struct proxy_op *op, struct run *run) {
    struct item *item = add(progress);
    uint64_t *base = &progress->bases[op->is_send][op->peer][op->channel];
    item->op = *op;
    item->run = run_hold(run);
    item->base = *base;
    *base += (uint64_t)op->steps;
}

void progress_append(struct progress *progress) {
    pthread_mutex_lock(&progress->lock);
    if (progress->prepared) progress->appends++;
    for (struct item *item = progress->prepared; item; item = item->next)
        item->append = progress->appends;
    struct item **end = &progress->waiting;
    while (*end) end = &(*end)->next;
    *end = progress->prepared;
    progress->prepared = NULL;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->lock);
    fabric_ring(progress->fabric);
}

// ---- ProxyCtrl ----
static bool reports_control(void) { return profiler_wants(profiler_mask(), NCCL_PROXY_CTRL); }

static void *control(struct progress *progress, int which, int argument) {
    if (!reports_control()) return NULL;
    void *handle = report_start(progress, (struct host_event){.type = NCCL_PROXY_CTRL});
    if (which) report_state(handle, which, (size_t)argument);
    return handle;
}

// ---- kernels ----
static bool stamped(const struct stamp *stamps, uint64_t number, uint64_t *gpu_ns) {
    const struct stamp *stamp = &stamps[number % STAMPS];
    if (__atomic_load_n(&stamp->number, __ATOMIC_ACQUIRE) < number) return false;
    *gpu_ns = __atomic_load_n(&stamp->gpu_ns, __ATOMIC_RELAXED);
    return true;
}

// 2.31 reports what a kernel did: waiting for the first data, work, the last barrier.
static void report_phases(struct progress *progress, struct item *item, uint64_t from,
                          uint64_t to) {
    static const char *const names[] = {"initial_sync", "compute", "final_sync"};
    uint64_t times[4] = {from, from + 224, to - 384, to};
    if (to < from + 1000) return;
    for (int phase = 0; phase < 3; phase++) {
        void *handle = report_start(progress, (struct host_event){.type = NCCL_KERNEL_PHASE,
                                                                  .parent = item->handle,
                                                                  .channel = item->channel_number,
                                                                  .phase = phase,
                                                                  .phase_name = names[phase],
                                                                  .timer = times[phase]});
        report_state(handle, NCCL_KERNEL_PHASE_STOP, times[phase + 1]);
        report_stop(handle);
    }
}

static bool progress_kernel(struct progress *progress, struct item *item) {
    uint64_t from = 0, to = 0;
    bool moved = false;
    if (!item->started && stamped(item->channel->starts, item->number, &from)) {
        item->started = moved = true;
        item->handle = report_start(progress, (struct host_event){.type = NCCL_KERNEL_CH,
                                                                  .parent = item->parent,
                                                                  .channel = item->channel_number,
                                                                  .timer = from});
    }
    if (item->started && stamped(item->channel->stops, item->number, &to)) {
        stamped(item->channel->starts, item->number, &from);
        bool *has_phases = &item->channel->stops[item->number % STAMPS].has_phases;
        if (item->phases && __atomic_exchange_n(has_phases, false, __ATOMIC_RELAXED))
            report_phases(progress, item, from, to);
        if (profiler.version >= 4) report_state(item->handle, NCCL_KERNEL_CH_STOP, to);
        report_stop(item->handle);
        item->finished = moved = true;
    }
    return moved;
}

// ---- the thread ----
static bool pass(struct progress *progress, int64_t *next_ns) {
    // On one channel and in one direction, one after the other.
    bool kernel_busy[MAX_CHANNELS][3] = {0}, transfer_busy[2][MAX_RANKS][MAX_CHANNELS] = {0};
    bool moved = false;
    for (struct item *item = progress->active; item; item = item->next) {
        bool *busy = item->is_kernel
                         ? &kernel_busy[item->channel_number][item->direction]
                         : &transfer_busy[item->op.is_send][item->op.peer][item->op.channel];
        if (*busy) continue;
        moved |= item->is_kernel ? progress_kernel(progress, item)
                                 : transfer_progress(progress, item, next_ns);
        *busy = !item->finished;
    }
    for (struct item **place = &progress->active; *place;) {
        struct item *item = *place;
        if (item->finished) {
            *place = item->next;
            free(item);
        } else {
            place = &item->next;
        }
    }
    return moved;
}

static void take_up(struct progress *progress, struct item *added) {
    void *append = control(progress, 17, 0);
    int count = 0;
    struct item **end = &progress->active;
    while (*end) end = &(*end)->next;
    *end = added;
    for (struct item *item = added; item; item = item->next) {
        count++;
        if (!item->is_kernel && settings()->version >= 22700) transfer_start(progress, item);
    }
    report_state(append, NCCL_CTRL_APPEND_END, (size_t)count);
    report_stop(append);
}

// Sleeps while there is nothing to do; NULL at the end.
static struct item *next_items(struct progress *progress, bool reports) {
    pthread_mutex_lock(&progress->lock);
    if (!progress->active && !progress->waiting && !progress->ending) {
        void *sleep = reports ? control(progress, 15, 0) : NULL;
        while (!progress->waiting && !progress->ending)
            pthread_cond_wait(&progress->changed, &progress->lock);
        report_state(sleep, 16, 0);
        report_stop(sleep);
    }
    struct item *added = progress->waiting;
    progress->waiting = NULL;
    pthread_mutex_unlock(&progress->lock);
    return added;
}

// Whether all but the last append is reported.
static bool only_last_left(const struct progress *progress, const struct item *item) {
    for (; item; item = item->next)
        if (item->append < progress->appends) return false;
    return true;
}

static bool is_over(struct progress *progress, int64_t *give_up_ns) {
    if (fabric_aborted(progress->fabric)) return true;
    pthread_mutex_lock(&progress->lock);
    bool ending = progress->ending, drains = progress->draining;
    bool empty = !progress->active && !progress->waiting;
    bool last =
        only_last_left(progress, progress->active) && only_last_left(progress, progress->waiting);
    pthread_mutex_unlock(&progress->lock);
    if (!ending) return false;
    if (!*give_up_ns) *give_up_ns = sim_now_ns() + DRAIN_NS;
    return empty || (!drains && last) || sim_now_ns() > *give_up_ns;
}

static void free_items(struct item *item) {
    while (item) {
        struct item *next = item->next;
        if (item->run && !item->finished) run_release(item->run);
        free(item);
        item = next;
    }
}

static void *make_progress(void *argument) {
    struct progress *progress = argument;
    int64_t give_up_ns = 0;
    bool is_proxy = progress->is_proxy;
    if (is_proxy) report_stop(control(progress, NCCL_CTRL_IDLE, 0));
    while (!is_over(progress, &give_up_ns)) {
        uint32_t heard = fabric_bell(progress->fabric);
        struct item *added = next_items(progress, is_proxy);
        if (added && is_proxy) take_up(progress, added);
        else if (added) {
            struct item **end = &progress->active;
            while (*end) end = &(*end)->next;
            *end = added;
        }
        int64_t next_ns = FOR_EVER;
        // Up to 2.26 every turn of the loop is an event.
        if (is_proxy && settings()->version < 22700 && progress->active)
            report_stop(control(progress, 0, 0));
        if (!pass(progress, &next_ns) && progress->active)
            fabric_wait_bell(progress->fabric, heard, next_ns);
    }
    free_items(progress->active);
    free_items(progress->waiting);
    host_thread_done();
    return NULL;
}

struct progress *progress_make(struct fabric *fabric, void *context, int rank, bool is_proxy) {
    struct progress *progress = calloc(1, sizeof *progress);
    progress->fabric = fabric;
    progress->context = context;
    progress->rank = rank;
    progress->is_proxy = is_proxy;
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->changed, NULL);
    pthread_create(&progress->thread, NULL, make_progress, progress);
    pthread_setname_np(progress->thread, is_proxy ? "NCCL Progress" : "NCCL Profiler");
    return progress;
}

void progress_end(struct progress *progress, bool drain) {
    pthread_mutex_lock(&progress->lock);
    progress->ending = true;
    progress->draining = drain;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->lock);
    fabric_ring(progress->fabric);
    pthread_join(progress->thread, NULL);
    free_items(progress->prepared);
    free(progress);
}
