// Making, launching and running plans.
#define _GNU_SOURCE
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "reduce.h"
#include "report.h"
#include "runtime.h"
#include "settings.h"

enum { SLEEP_NS = 20000000, RANK_SPREAD_NS = 96 };

// ---- making ----
// Collectives by size, largest first, of equal ones the last called; messages by round.
struct sortable {
    struct work work;
    size_t traffic;
    int place;
    bool comes_first;  // Broadcast and Reduce on one host
};

static int by_schedule(const void *a, const void *b) {
    const struct sortable *x = a, *y = b;
    bool x_message = work_is_message(&x->work), y_message = work_is_message(&y->work);
    if (x_message != y_message) return x_message - y_message;
    if (!x_message) {
        if (x->comes_first != y->comes_first) return y->comes_first - x->comes_first;
        if (x->traffic != y->traffic) return x->traffic > y->traffic ? -1 : 1;
        return y->place - x->place;
    }
    if (x->work.order != y->work.order) return x->work.order - y->work.order;
    if (x->work.round != y->work.round) return x->work.round - y->work.round;
    return (int)x->work.spec.function - (int)y->work.spec.function;
}

static void place_message(const struct comm *comm, struct work *work, int (*before)[MAX_RANKS]) {
    int sends = work->spec.function == SEND;
    int distance = sends ? work->spec.root - comm->rank : comm->rank - work->spec.root;
    work->round = tuning_round((distance + comm->ranks) % comm->ranks, comm->ranks);
    work->order = before[sends][work->spec.root]++;
    size_t bytes = work->spec.count * datatype_bytes(work->spec.type);
    int chunk = bytes <= 16 << 10 ? 32 << 10 : 128 << 10;
    work->tuning = (struct tuning){
        .first_channel = tuning_message_channel(work->round, comm->nodes > 1),
        .channels = 1,
        .chunk_bytes = chunk,
        .steps = (int)(bytes / (size_t)chunk + (bytes % (size_t)chunk != 0 || bytes == 0))};
}

static bool goes_unreported(const struct comm *comm, const struct work *work) {
    if (work_is_message(work)) return false;
    bool gathers_instead = work->spec.function == BROADCAST && settings()->version >= 22902;
    bool hidden = settings()->symmetric && settings()->version < 23100;
    return comm->ranks == 1 || gathers_instead || hidden;
}

static _Thread_local int holds_next;
void ncclscopeHold(int what) { holds_next = what; }

static int64_t plan_run(struct task *task, uint64_t number, int64_t start_ns);
static uint64_t plan_ticket(struct task *task);

static void plan_release(struct task *task) {
    struct plan *plan = (struct plan *)task;
    for (int i = 0; i < plan->count; i++)
        if (plan->works[i].run) run_release(plan->works[i].run);
    free(plan);
}

static void share_channels(struct plan *plan, const struct sortable *sorted) {
    struct tuning *tunings = calloc((size_t)plan->collectives, sizeof *tunings);
    size_t *traffic = calloc((size_t)plan->collectives, sizeof *traffic);
    for (int i = 0; i < plan->collectives; i++) {
        tunings[i] = plan->works[i].tuning;
        traffic[i] = sorted[i].traffic;
    }
    tuning_share_channels(tunings, traffic, plan->collectives);
    for (int i = 0; i < plan->collectives; i++) plan->works[i].tuning = tunings[i];
    free(tunings);
    free(traffic);
}

struct plan *plan_make(struct comm *comm, struct stream *stream, const struct work *works,
                       int count, void *group_api) {
    struct plan *plan = calloc(1, sizeof *plan + (size_t)count * sizeof *works);
    struct sortable *sorted = calloc((size_t)count, sizeof *sorted);
    int before[2][MAX_RANKS] = {0};
    for (int i = 0; i < count; i++) {
        enum function function = works[i].spec.function;
        sorted[i] =
            (struct sortable){works[i], tuning_traffic(&works[i].spec, comm->ranks), i,
                              comm->nodes == 1 && (function == BROADCAST || function == REDUCE)};
        sorted[i].work.unreported = goes_unreported(comm, &works[i]);
        if (work_is_message(&works[i])) place_message(comm, &sorted[i].work, before);
        else plan->collectives++;
    }
    qsort(sorted, (size_t)count, sizeof *sorted, by_schedule);
    for (int i = 0; i < count; i++) {
        plan->works[i] = sorted[i].work;
        if (i < plan->collectives)
            plan->works[i].tuning = tuning_of(&plan->works[i].spec, comm->ranks, comm->nodes > 1,
                                              plan->collectives > 1, i);
    }
    if (comm->nodes == 1 && plan->collectives > 1) share_channels(plan, sorted);
    free(sorted);
    plan->comm = comm;
    plan->shown_stream = stream;
    plan->stream = stream_of(stream);
    plan->captured = stream_captures(plan->stream);
    plan->group_api = group_api;
    plan->holds = holds_next;
    holds_next = 0;
    plan->count = count;
    plan->task = (struct task){
        .run = plan_run, .launch = plan_ticket, .release = plan_release, .holders = 2};
    return plan;
}

// ---- launching ----
static void make_runs(struct plan *plan) {
    for (int i = 0; i < plan->count; i++) {
        if (plan->works[i].run) run_release(plan->works[i].run);
        plan->works[i].run = run_make();
        plan->works[i].run->holds = plan->holds;
    }
}

bool plan_reports_replays(const struct plan *plan) {
    for (int i = 0; i < plan->count; i++)
        if (!plan->works[i].unreported &&
            (plan->comm->nodes > 1 || work_has_kernel_events(&plan->works[i])))
            return true;
    return false;
}

// Until the communicator is aborted.
static void stand_still(const struct comm *comm) {
    while (!fabric_aborted(comm->fabric)) sim_sleep_until(sim_now_ns() + SLEEP_NS);
}

bool plan_launch(struct plan *plan) {
    runtime_use_current_device();
    make_runs(plan);
    if (plan->holds & NCCLSCOPE_HOLD_LAUNCH) stand_still(plan->comm);
    void *launch = report_launch_start(plan);
    bool is_lost = stream_capture_status(plan->stream) == CAPTURE_INVALIDATED;
    stream_add(plan->stream, &plan->task);
    report_launch_stop(launch);
    bool once = plan->captured && !plan_reports_replays(plan) && settings()->version >= 22700;
    if (!is_lost && (!plan->captured || once)) report_works(plan);
    task_release(&plan->task);
    return !is_lost;
}

static uint64_t plan_ticket(struct task *task) {
    struct comm *comm = ((struct plan *)task)->comm;
    pthread_mutex_lock(&comm->turn_lock);
    uint64_t ticket = comm->launched++;
    pthread_mutex_unlock(&comm->turn_lock);
    return ticket;
}

// ---- times ----
// From when all have come until it is over: the slowest link of the ring decides.
static int64_t wire_ns(const struct comm *comm, const struct transfer_spec *spec, int64_t at_ns) {
    double latency_ns = 0, ns_per_byte = 0;
    int turns = spec->function == ALL_REDUCE ? 2 * (comm->ranks - 1) : comm->ranks - 1;
    int64_t since_ns = work_since_first_ns(at_ns);
    for (int rank = 0; rank < comm->ranks; rank++) {
        int from = comm_global_rank(comm, rank);
        int to = comm_global_rank(comm, (rank + 1) % comm->ranks);
        double latency = settings_latency_ns(from, to);
        double per_byte = settings_ns_per_byte(from, to, since_ns);
        if (latency > latency_ns) latency_ns = latency;
        if (per_byte > ns_per_byte) ns_per_byte = per_byte;
    }
    return (int64_t)(turns * latency_ns + work_sent_bytes(comm, spec) * ns_per_byte);
}

static int64_t message_ns(const struct comm *comm, const struct transfer_spec *spec,
                          int64_t at_ns) {
    int from = comm_global_rank(comm, comm->rank), to = comm_global_rank(comm, spec->root);
    double bytes = (double)(spec->count * datatype_bytes(spec->type));
    int64_t since_ns = work_since_first_ns(at_ns);
    return (int64_t)(settings_latency_ns(from, to) +
                     bytes * settings_ns_per_byte(from, to, since_ns));
}

static void sleep_until(const struct comm *comm, int64_t t) {
    for (int64_t now; (now = sim_now_ns()) < t && !fabric_aborted(comm->fabric);)
        sim_sleep_until(t - now > SLEEP_NS ? now + SLEEP_NS : t);
}

// ---- running ----
static void stamp(const struct comm *comm, struct stamp *stamps, uint64_t number, int64_t t,
                  bool has_phases) {
    struct stamp *place = &stamps[number % STAMPS];
    __atomic_store_n(&place->gpu_ns, comm_gpu_ns(comm, t), __ATOMIC_RELAXED);
    __atomic_store_n(&place->has_phases, has_phases, __ATOMIC_RELAXED);
    __atomic_store_n(&place->number, number, __ATOMIC_RELEASE);
}

// What the device counts. A Broadcast below the API goes another way.
static bool is_counted(const struct work *work) { return !work->unreported; }

static void begin_work(struct comm *comm, struct work *work, int64_t t) {
    for (int i = 0; i < work->tuning.channels && is_counted(work); i++) {
        struct channel *channel = &comm->channels[work->tuning.first_channel + i];
        stamp(comm, channel->starts, ++channel->device_count, t, false);
    }
    __atomic_store_n(&work->run->start_ns, t, __ATOMIC_RELEASE);
    fabric_ring(comm->fabric);
}

static void end_work(struct comm *comm, struct work *work, int64_t t) {
    for (int i = 0; i < work->tuning.channels && is_counted(work); i++) {
        struct channel *channel = &comm->channels[work->tuning.first_channel + i];
        stamp(comm, channel->stops, channel->device_count, t, true);
    }
    __atomic_store_n(&work->run->end_ns, t, __ATOMIC_RELEASE);
    fabric_ring(comm->fabric);
}

static int64_t run_collective(struct comm *comm, struct work *work, int64_t start_ns) {
    begin_work(comm, work, start_ns);
    int64_t ready_ns = fabric_collective(comm->fabric, &work->spec, start_ns);
    if (ready_ns < 0) return -1;
    if (work->run->holds & NCCLSCOPE_HOLD_END) stand_still(comm);
    int64_t end_ns = start_ns + 2000;
    if (comm->ranks > 1)
        end_ns = ready_ns + wire_ns(comm, &work->spec, ready_ns) + comm->rank % 8 * RANK_SPREAD_NS;
    sleep_until(comm, end_ns);
    end_work(comm, work, end_ns);
    return end_ns;
}

static int64_t run_messages(struct comm *comm, struct work *works, int count, int64_t start_ns) {
    struct transfer_spec *specs = calloc((size_t)count, sizeof *specs);
    int64_t *ends = calloc((size_t)count, sizeof *ends), last_ns = start_ns;
    uint64_t *numbers = calloc((size_t)count, sizeof *numbers);
    for (int i = 0; i < count; i++) {
        specs[i] = works[i].spec;
        struct channel *channel = &comm->channels[works[i].tuning.first_channel];
        if (i == 0 || !work_same_round(&works[i - 1], &works[i]))
            stamp(comm, channel->starts, ++channel->device_count, start_ns, false);
        numbers[i] = channel->device_count;
        __atomic_store_n(&works[i].run->start_ns, start_ns, __ATOMIC_RELEASE);
    }
    fabric_ring(comm->fabric);
    bool fine = fabric_messages(comm->fabric, specs, count, start_ns, ends);
    if (works[0].run->holds & NCCLSCOPE_HOLD_END) stand_still(comm);
    for (int i = 0; fine && i < count; i++) ends[i] += message_ns(comm, &specs[i], ends[i]);
    for (int i = 1; fine && i < count; i++)  // the work ends with its later half
        if (work_same_round(&works[i - 1], &works[i])) {
            if (ends[i] < ends[i - 1]) ends[i] = ends[i - 1];
            ends[i - 1] = ends[i];
        }
    for (int i = 0; fine && i < count; i++) {
        bool last_half = i + 1 == count || !work_same_round(&works[i], &works[i + 1]);
        struct channel *channel = &comm->channels[works[i].tuning.first_channel];
        sleep_until(comm, ends[i]);
        if (last_half) stamp(comm, channel->stops, numbers[i], ends[i], false);
        __atomic_store_n(&works[i].run->end_ns, ends[i], __ATOMIC_RELEASE);
        if (ends[i] > last_ns) last_ns = ends[i];
    }
    fabric_ring(comm->fabric);
    free(specs);
    free(ends);
    free(numbers);
    return fine ? last_ns : -1;
}

static int64_t plan_run(struct task *task, uint64_t number, int64_t start_ns) {
    struct plan *plan = (struct plan *)task;
    struct comm *comm = plan->comm;
    pthread_mutex_lock(&comm->turn_lock);
    while (comm->run != number) pthread_cond_wait(&comm->turn_changed, &comm->turn_lock);
    if (start_ns < comm->end_ns) start_ns = comm->end_ns;
    pthread_mutex_unlock(&comm->turn_lock);

    if (plan->captured) {
        make_runs(plan);
        if (plan_reports_replays(plan)) report_works(plan);
        host_thread_done();
        if (start_ns < sim_now_ns()) start_ns = sim_now_ns();  // the kernel comes after
    }
    int64_t end_ns = start_ns;
    for (int i = 0; i < plan->collectives && end_ns >= 0; i++)
        end_ns = run_collective(comm, &plan->works[i], end_ns);
    int messages = plan->count - plan->collectives;
    if (messages && end_ns >= 0)
        end_ns = run_messages(comm, plan->works + plan->collectives, messages, end_ns);

    if (end_ns < 0) end_ns = sim_now_ns();  // aborted
    pthread_mutex_lock(&comm->turn_lock);
    comm->run++;
    comm->end_ns = end_ns;
    pthread_cond_broadcast(&comm->turn_changed);
    pthread_mutex_unlock(&comm->turn_lock);
    return end_ns;
}
