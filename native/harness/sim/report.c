// Calls of the plugin from the caller's thread, and from the stream's thread for replays.
#define _GNU_SOURCE
#include "report.h"

#include "reduce.h"
#include "settings.h"

static const char *const function_names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                             "AllReduce", "Send",   "Recv"};

static void *start(const struct comm *comm, struct host_event event) {
    void *handle = NULL;
    host_start(&profiler, comm->context, &handle, &event);
    return handle;
}

static void state(void *handle, int which) {
    if (handle) host_state(&profiler, handle, which, false, 0, 0);
}

static void stop(void *handle) {
    if (handle) host_stop(&profiler, handle);
}

static bool has_api_events(void) { return settings()->version >= 22800; }

// API events know their rank from 2.32 on.
static int api_rank(const struct comm *comm) {
    return settings()->version >= 23200 ? comm->rank : 0;
}

// ---- calls ----
void *report_group_start(struct comm *comm, int mask, bool captured, int depth) {
    if (!has_api_events() || !profiler_wants(mask, NCCL_GROUP_API)) return NULL;
    void *handle = start(
        comm,
        (struct host_event){
            .type = NCCL_GROUP_API, .rank = api_rank(comm), .graph = captured, .depth = depth});
    state(handle, NCCL_GROUP_START_DONE);
    return handle;
}

void report_group_ends(void *group_api) { state(group_api, NCCL_GROUP_END_BEGINS); }
void report_group_stop(void *group_api) { stop(group_api); }

void *report_call(struct comm *comm, const struct work *work, void *group_api, void *stream,
                  bool captured) {
    enum nccl_event type = work_is_message(work) ? NCCL_P2P_API : NCCL_COLL_API;
    bool silent = comm->ranks == 1 && !work_is_message(work);
    if (silent || !has_api_events() || !profiler_wants(work->mask, type)) return NULL;
    void *handle =
        start(comm, (struct host_event){.type = type,
                                        .parent = group_api,
                                        .rank = api_rank(comm),
                                        .func = function_names[work->spec.function],
                                        .count = work->spec.count,
                                        .dtype = datatype_name(work->spec.type),
                                        .root = work_is_message(work) ? 0 : work->spec.root,
                                        .stream = (uint64_t)stream,
                                        .graph = captured});
    stop(handle);
    return handle;
}

// ---- launches ----
static const struct work *first_reported(const struct plan *plan) {
    for (int i = 0; i < plan->count; i++)
        if (!plan->works[i].unreported) return &plan->works[i];
    return NULL;
}

void *report_launch_start(const struct plan *plan) {
    const struct work *first = first_reported(plan);
    if (!first || !has_api_events() || !profiler_wants(first->mask, NCCL_KERNEL_LAUNCH))
        return NULL;
    return start(plan->comm, (struct host_event){.type = NCCL_KERNEL_LAUNCH,
                                                 .parent = plan->group_api,
                                                 .rank = api_rank(plan->comm),
                                                 .stream = (uint64_t)plan->shown_stream});
}

void report_launch_stop(void *launch) { stop(launch); }

// ---- works ----
static void *start_collective(const struct plan *plan, struct work *work, void *group) {
    const struct transfer_spec *spec = &work->spec;
    bool in_bytes = spec->function == ALL_GATHER || spec->function == BROADCAST;
    bool symmetric = settings()->symmetric;
    bool knows_comm = settings()->version < 22700;  // later ones do not fill it in for old plugins
    return start(plan->comm,
                 (struct host_event){
                     .type = NCCL_COLL,
                     .parent = profiler.version >= 5 ? work->api : group,
                     .parent_group = group,
                     .rank = plan->comm->rank,
                     .comm_hash = knows_comm ? plan->comm->id : 0,
                     .seq = work->sequence,
                     .func = function_names[spec->function],
                     .func_number = (int)spec->function,
                     .send = (uint64_t)spec->send,
                     .recv = (uint64_t)spec->recv,
                     .count = in_bytes ? spec->count * datatype_bytes(spec->type) : spec->count,
                     .root = spec->root,
                     .dtype = in_bytes ? "ncclInt8" : datatype_name(spec->type),
                     .dtype_number = in_bytes ? 0 : (int)spec->type,
                     .op = (uint32_t)spec->op,
                     .channels = work->tuning.shown_channels,
                     .warps = work->tuning.warps,
                     .algo = symmetric ? "RSxLD_AGxST" : work->tuning.algo,
                     .proto = symmetric ? "" : work->tuning.proto,
                     .variant = symmetric ? "AllReduce_RSxLD_AGxST" : "",
                     .symmetric = symmetric});
}

static void *start_message(const struct plan *plan, struct work *work, void *group) {
    const struct transfer_spec *spec = &work->spec;
    bool sends = spec->function == SEND;
    return start(plan->comm,
                 (struct host_event){.type = NCCL_P2P,
                                     .parent = profiler.version >= 5 ? work->api : group,
                                     .parent_group = group,
                                     .rank = plan->comm->rank,
                                     .comm_hash = settings()->version < 22700 ? plan->comm->id : 0,
                                     .func = function_names[spec->function],
                                     .func_number = sends ? 6 : 7,
                                     .send = (uint64_t)(sends ? spec->send : spec->recv),
                                     .dtype = datatype_name(spec->type),
                                     .dtype_number = (int)spec->type,
                                     .count = spec->count,
                                     .peer = spec->root,
                                     .channels = 1});
}

// ---- handing on: kernels ----
static void hand_kernel(struct comm *comm, const struct work *work, int channel_number,
                        int direction, uint64_t number) {
    bool phases = settings()->version >= 23100 && settings()->version < 23200 &&
                  profiler_wants(work->mask, NCCL_KERNEL_PHASE);
    progress_add_kernel(comm->poller, work->event, &comm->channels[channel_number], channel_number,
                        direction, number, phases);
}

static void hand_collective_kernel(struct comm *comm, const struct work *work, int channel_number) {
    struct channel *channel = &comm->channels[channel_number];
    bool wanted = work_has_kernel_events(work), newer = settings()->version >= 23100;
    if (newer && !wanted) return;  // the device counts it, the host does not
    if (newer && channel->stolen) {
        channel->stolen--;
        return;
    }
    channel->host_count++;
    if (wanted) hand_kernel(comm, work, channel_number, 2, channel->host_count);
}

// A lone Broadcast of 2.31 and later takes the kernel event of the channel's next work.
static void steal_kernels(struct comm *comm, const struct plan *plan) {
    const struct work *work = &plan->works[0];
    bool steals = settings()->version >= 23100 && plan->count == 1 &&
                  work->spec.function == BROADCAST && comm->ranks > 1;
    for (int i = 0; steals && i < work->tuning.channels; i++) comm->channels[i].stolen++;
}

// The host's number of a message's work; 0 where it has none: up to 2.30 copies to oneself, from
// 2.31 on what nobody asked for.
static uint64_t count_message(struct comm *comm, const struct work *work) {
    bool newer = settings()->version >= 23100;
    if (newer ? !work_has_kernel_events(work) : work_is_self(comm, work)) return 0;
    return ++comm->channels[work->tuning.first_channel].host_count;
}

// ---- handing on: network transfers ----
static void hand_transfer(struct comm *comm, const struct work *work, int channel, int peer,
                          bool is_send, enum after after) {
    if (!comm_over_network(comm, comm->rank, peer)) return;
    const struct tuning *tuning = &work->tuning;
    double bytes = work_is_message(work)
                       ? (double)(work->spec.count * datatype_bytes(work->spec.type))
                       : work_sent_bytes(comm, &work->spec) / tuning->channels;
    bool flags_double_it = tuning->proto && tuning->proto[0] == 'L';  // of the LL protocol
    bool in_halves = tuning->proto && tuning->proto[0] == 'S';
    int from = comm_global_rank(comm, comm->rank), to = comm_global_rank(comm, peer);
    double step_bytes = bytes / tuning->steps;
    int64_t since_ns = work_since_first_ns(sim_now_ns());
    double step_ns =
        settings_latency_ns(from, to) + step_bytes * settings_ns_per_byte(from, to, since_ns);
    progress_add_proxy(
        comm->proxy,
        &(struct proxy_op){.parent = work->event,
                           .mask = work->mask,
                           .channel = channel,
                           .peer = peer,
                           .steps = tuning->steps,
                           .chunk_bytes = tuning->chunk_bytes,
                           .is_send = is_send,
                           .after = after,
                           .steps_per_turn = in_halves ? 2 : 1,
                           .depth = in_halves ? 4 : 8,
                           .step_bytes = (size_t)(step_bytes * (flags_double_it ? 2 : 1)),
                           .step_ns = (int64_t)step_ns},
        work->run);
}

static void hand_ring_transfers(struct comm *comm, const struct work *work, int channel) {
    int next = (comm->rank + 1) % comm->ranks, last = (comm->rank + comm->ranks - 1) % comm->ranks;
    int root = work->spec.root;
    bool sends = true, receives = true;
    enum after after = AFTER_TURN_BEFORE;
    if (work->spec.function == BROADCAST) {
        sends = next != root;
        receives = comm->rank != root;
        after = receives ? AFTER_SAME_STEP : AFTER_START;
    } else if (work->spec.function == REDUCE) {
        sends = comm->rank != root;
        receives = last != root;
        after = receives ? AFTER_SAME_STEP : AFTER_START;
    }
    // What comes from the same host comes without a proxy.
    if (!comm_over_network(comm, comm->rank, last)) after = AFTER_START;
    bool send_first = work->tuning.send_first;
    if (work->tuning.algo[0] == 'T') {  // of two ranks, one is the other's leaf
        send_first = comm->rank % 2 == 0;
        after = send_first ? AFTER_START : AFTER_SAME_STEP;
    }
    if (sends && send_first) hand_transfer(comm, work, channel, next, true, after);
    if (receives) hand_transfer(comm, work, channel, last, false, AFTER_START);
    if (sends && !send_first) hand_transfer(comm, work, channel, next, true, after);
}

// The halves of a round are one work. Proxies get the receiving one first; the profiler's own
// thread, from 2.31 on, gets them in the order of their events.
static void hand_round(struct comm *comm, struct work *first, struct work *second) {
    struct work *const halves[2] = {second ? second : first, second ? first : NULL};
    uint64_t number = count_message(comm, first);
    bool newer = settings()->version >= 23100;
    for (int i = 0; i < 2 && halves[i]; i++) {
        struct work *work = halves[i], *shown = newer && second ? halves[1 - i] : work;
        int channel = work->tuning.first_channel;
        if (!work_is_self(comm, work))
            hand_transfer(comm, work, channel, work->spec.root, work->spec.function == SEND,
                          AFTER_START);
        if (number && work_has_kernel_events(shown))
            hand_kernel(comm, shown, channel, shown->spec.function == SEND, number);
    }
}

static void hand_on(struct plan *plan) {
    struct comm *comm = plan->comm;
    for (int i = 0; i < plan->collectives; i++) {
        struct work *work = &plan->works[i];
        for (int k = 0; k < work->tuning.channels && !work->unreported; k++) {
            hand_ring_transfers(comm, work, work->tuning.first_channel + k);
            hand_collective_kernel(comm, work, work->tuning.first_channel + k);
        }
    }
    for (int i = plan->collectives; i < plan->count;) {
        struct work *first = &plan->works[i], *second = first + 1;
        bool both = i + 1 < plan->count && work_same_round(first, second);
        hand_round(comm, first, both ? second : NULL);
        i += both ? 2 : 1;
    }
    if (comm->proxy != comm->poller) progress_append(comm->proxy);
    progress_append(comm->poller);
}

static bool needs_progress(const struct plan *plan) {
    if (plan->comm->nodes > 1) return true;
    for (int i = 0; i < plan->count; i++)
        if (!plan->works[i].unreported && work_has_kernel_events(&plan->works[i])) return true;
    return false;
}

void report_works(struct plan *plan) {
    struct comm *comm = plan->comm;
    const struct work *first = first_reported(plan);
    void *group = NULL;
    pthread_mutex_lock(&comm->hand_lock);
    steal_kernels(comm, plan);
    bool has_group = first && profiler_wants(first->mask, NCCL_GROUP);
    if (has_group) group = start(comm, (struct host_event){.type = NCCL_GROUP});
    // Up to 2.27 a refused Group hides what is below it.
    bool hidden = has_group && !group && settings()->version < 22800;
    for (int i = 0; i < plan->count; i++) {
        struct work *work = &plan->works[i];
        bool message = work_is_message(work);
        work->event = NULL;
        if (work->unreported) continue;
        if (!message) work->sequence = comm->sequence[work->spec.function]++;
        if (hidden || !profiler_wants(work->mask, message ? NCCL_P2P : NCCL_COLL)) continue;
        work->event =
            message ? start_message(plan, work, group) : start_collective(plan, work, group);
    }
    if (needs_progress(plan)) {
        comm_need_progress(comm);
        hand_on(plan);
    }
    for (int i = 0; i < plan->count; i++) stop(plan->works[i].event);
    stop(group);
    pthread_mutex_unlock(&comm->hand_lock);
}
