// Synthetic load: threads that call a plugin as NCCL does, at a pace, until they end or are killed.
#define _GNU_SOURCE
#include "load.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../src/nccl_abi.h"
#include "host.h"
#include "play.h"

enum { MAX_THREADS = 16384, MAX_COMMS = 4096, MAX_CHANNELS = 64, STEP_STATES = 3 };

static const struct load_options *options;
static struct host host;
static void *contexts[MAX_COMMS];
static uint64_t callbacks_total;  // of threads that have ended

// Callbacks that took long, by what the kernel did with their thread meanwhile. A callback that
// waits for a lock, a page or a disk gives its core up of its own accord; one that is preempted, or
// whose core the host took away, would have been without a plugin too.
#define LONG_CALLBACK_NS 100000
enum { BLOCKED, PREEMPTED, NEITHER, LONG_KINDS };
static const char *const long_names[LONG_KINDS] = {"blocked", "preempted", "neither"};

struct stalls {
    int64_t longest;  // ns, of all callbacks
    uint64_t count[LONG_KINDS];
    int64_t longest_of[LONG_KINDS];
    uint64_t page_faults;
    struct rusage seen;  // since when switches count for the next long callback
};

// ---- pace and death ----
struct worker {
    int number;
    uint64_t callbacks, refused;
    int64_t started;  // ns
    struct stalls stalls;
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void called(struct worker *worker) {
    worker->callbacks++;
    if (options->die_at &&
        __atomic_add_fetch(&callbacks_total, 1, __ATOMIC_RELAXED) == options->die_at)
        kill(getpid(), SIGKILL);
    if (options->rate <= 0 || worker->callbacks % 64) return;
    int64_t due = worker->started + (int64_t)((double)worker->callbacks * 1e9 / options->rate);
    int64_t early = due - now_ns();
    if (early > 100000) nanosleep(&(struct timespec){early / 1000000000, early % 1000000000}, NULL);
    if (options->stalls) getrusage(RUSAGE_THREAD, &worker->stalls.seen);
}

// Around a callback, when its length matters.
static int64_t before_call(void) { return options->stalls ? now_ns() : 0; }

static void note_long_callback(struct stalls *stalls, int64_t length) {
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    int kind = now.ru_nvcsw != stalls->seen.ru_nvcsw     ? BLOCKED
               : now.ru_nivcsw != stalls->seen.ru_nivcsw ? PREEMPTED
                                                         : NEITHER;
    stalls->seen = now;
    stalls->count[kind]++;
    if (length > stalls->longest_of[kind]) stalls->longest_of[kind] = length;
}

static void after_call(struct worker *worker, int64_t before) {
    if (!options->stalls) return;
    int64_t length = now_ns() - before;
    if (length > worker->stalls.longest) worker->stalls.longest = length;
    if (length >= LONG_CALLBACK_NS) note_long_callback(&worker->stalls, length);
}

static void add_stalls(struct stalls *sum, const struct stalls *more) {
    if (more->longest > sum->longest) sum->longest = more->longest;
    sum->page_faults += more->page_faults;
    for (int kind = 0; kind < LONG_KINDS; kind++) {
        sum->count[kind] += more->count[kind];
        if (more->longest_of[kind] > sum->longest_of[kind])
            sum->longest_of[kind] = more->longest_of[kind];
    }
}

static void print_stalls(const struct stalls *stalls) {
    printf("longest callback %.1f us\n", (double)stalls->longest / 1e3);
    for (int kind = 0; kind < LONG_KINDS; kind++)
        printf("%s %llu callbacks of 100 us or more, longest %.1f us\n", long_names[kind],
               (unsigned long long)stalls->count[kind], (double)stalls->longest_of[kind] / 1e3);
    printf("page faults %llu\n", (unsigned long long)stalls->page_faults);
}

static bool wants(int events) { return (host.mask & events) != 0; }

static void *start(struct worker *worker, void *context, const struct host_event *event) {
    void *handle = NULL;
    int64_t before = before_call();
    host_start(&host, context, &handle, event);
    after_call(worker, before);
    if (!handle) worker->refused++;
    called(worker);
    return handle;
}

static void stop(struct worker *worker, void *handle) {
    if (!handle) return;
    int64_t before = before_call();
    host_stop(&host, handle);
    after_call(worker, before);
    called(worker);
}

static void state(struct worker *worker, void *handle, int number, bool has_args, uint64_t arg) {
    if (!handle) return;
    int64_t before = before_call();
    host_state(&host, handle, number, has_args, arg, 0);
    after_call(worker, before);
    called(worker);
}

// ---- one collective as NCCL reports it: API and launch, then proxy ops, steps and kernel channels
// ----
static void one_collective(struct worker *worker, uint64_t number) {
    void *context = contexts[number % (uint64_t)options->comms];
    void *group_api = NULL, *call = NULL, *launch, *group = NULL, *coll = NULL;
    void *kernels[MAX_CHANNELS] = {0}, *ops[2 * MAX_CHANNELS] = {0}, *steps[2 * MAX_CHANNELS] = {0};
    bool api = host.version >= NCCL_FIRST_WITH_CALLS;
    int rank = 3;
    if (api && wants(NCCL_GROUP_API | NCCL_COLL_API | NCCL_COLL)) {
        group_api =
            start(worker, context, &(struct host_event){.type = NCCL_GROUP_API, .depth = 1});
        state(worker, group_api, NCCL_GROUP_START_DONE, false, 0);
        call = start(worker, context,
                     &(struct host_event){.type = NCCL_COLL_API,
                                          .parent = group_api,
                                          .func = "AllReduce",
                                          .count = 1 << 20,
                                          .dtype = "ncclFloat32",
                                          .stream = 0x1000});
        stop(worker, call);
        state(worker, group_api, NCCL_GROUP_END_BEGINS, false, 0);
        if (wants(NCCL_KERNEL_LAUNCH)) {
            launch = start(worker, context,
                           &(struct host_event){
                               .type = NCCL_KERNEL_LAUNCH, .parent = group_api, .stream = 0x1000});
            stop(worker, launch);
        }
    }
    if (wants(NCCL_GROUP | NCCL_COLL))
        group = start(worker, context, &(struct host_event){.type = NCCL_GROUP});
    if (wants(NCCL_COLL) && (group || api))
        coll = start(worker, context,
                     &(struct host_event){.type = NCCL_COLL,
                                          .parent = api ? call : group,
                                          .parent_group = group,
                                          .rank = rank,
                                          .seq = number,
                                          .func = "AllReduce",
                                          .func_number = 4,
                                          .count = 1 << 20,
                                          .dtype = "ncclFloat32",
                                          .dtype_number = 7,
                                          .channels = options->channels,
                                          .warps = 16,
                                          .algo = "RING",
                                          .algo_number = 1,
                                          .proto = "SIMPLE",
                                          .proto_number = 2,
                                          .comm_hash = 0xC0FFEE,
                                          .send = 0x2000,
                                          .recv = 0x3000});
    stop(worker, coll);
    stop(worker, group);
    stop(worker, group_api);
    if (wants(NCCL_PROXY_CTRL)) {
        void *ctrl = start(worker, context, &(struct host_event){.type = NCCL_PROXY_CTRL});
        state(worker, ctrl, NCCL_CTRL_APPEND, true, 0);
        state(worker, ctrl, NCCL_CTRL_APPEND_END, true, 2 * (uint64_t)options->channels);
        stop(worker, ctrl);
    }
    if (wants(NCCL_PROXY_OP))
        for (int k = 0; k < 2 * options->channels; k++) {
            ops[k] = start(worker, context,
                           &(struct host_event){.type = NCCL_PROXY_OP,
                                                .parent = coll,
                                                .rank = rank,
                                                .pid = (int)getpid(),
                                                .channel = k / 2,
                                                .peer = k & 1 ? 2 : 4,
                                                .steps = options->steps,
                                                .chunk_size = 1 << 19,
                                                .is_send = k & 1});
            if (host.version >= NCCL_FIRST_WITH_STAMPS)
                state(worker, ops[k], NCCL_OP_IN_PROGRESS, true, 0);
        }
    if (wants(NCCL_KERNEL_CH))
        for (int k = 0; k < options->channels; k++)
            kernels[k] = start(worker, context,
                               &(struct host_event){.type = NCCL_KERNEL_CH,
                                                    .parent = coll,
                                                    .channel = k,
                                                    .timer = 1000000 + number});
    if (wants(NCCL_PROXY_STEP))
        for (int step = 0; step < options->steps; step++) {
            static const int states[2][STEP_STATES] = {
                {NCCL_STEP_RECV_WAIT, NCCL_STEP_RECV_FLUSH_WAIT, NCCL_STEP_RECV_GPU_WAIT},
                {NCCL_STEP_SEND_GPU_WAIT, NCCL_STEP_SEND_PEER_WAIT, NCCL_STEP_SEND_WAIT}};
            for (int k = 0; k < 2 * options->channels; k++)
                steps[k] = start(
                    worker, context,
                    &(struct host_event){
                        .type = NCCL_PROXY_STEP, .parent = ops[k], .rank = rank, .step = step});
            for (int s = 0; s < STEP_STATES; s++)
                for (int k = 0; k < 2 * options->channels; k++)
                    if (host.version >= NCCL_FIRST_WITH_STAMPS ||
                        states[k & 1][s] != NCCL_STEP_SEND_PEER_WAIT)
                        state(worker, steps[k], states[k & 1][s],
                              host.version >= NCCL_FIRST_WITH_STAMPS, 1 << 19);
            for (int k = 0; k < 2 * options->channels; k++) stop(worker, steps[k]);
        }
    for (int k = 0; k < options->channels; k++) {
        if (host.version >= NCCL_FIRST_WITH_STAMPS)
            state(worker, kernels[k], NCCL_KERNEL_CH_STOP, true, 2000000 + number);
        stop(worker, kernels[k]);
    }
    for (int k = 0; k < 2 * options->channels; k++) stop(worker, ops[k]);
}

// ---- self-checking events: everything a reader finds can be computed from the event's number and
// thread ---- The oracle is shared memory that survives this process: what NCCL knows to be on
// record.
struct oracle {
    _Alignas(64) uint64_t started;
    uint64_t stopped, refused;
};
static struct oracle *oracle;

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15ull;
    return x ^ x >> 29;
}

static void open_oracle(const char *path) {
    size_t bytes = sizeof *oracle * MAX_THREADS;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) exit(1);
    oracle = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}

static struct host_event checked_event(uint64_t n, uint64_t thread) {
    uint64_t key = n << 8 | thread;
    switch (n % 4) {
        case 0:
            return (struct host_event){.type = NCCL_P2P,
                                       .func = "Send",
                                       .dtype = "ncclInt8",
                                       .count = n,
                                       .send = mix(key),
                                       .peer = (int)thread,
                                       .channels = (int)(n / 4 & 0xFF),
                                       .parent = (void *)mix(key + 1),
                                       .parent_group = (void *)mix(key + 2)};
        case 1:
            return (struct host_event){.type = NCCL_COLL,
                                       .func = "AllReduce",
                                       .dtype = "ncclInt8",
                                       .algo = "RING",
                                       .proto = "LL",
                                       .seq = n,
                                       .count = mix(key),
                                       .root = (int)thread,
                                       .send = mix(key + 1),
                                       .recv = mix(key + 2),
                                       .rank = (int)thread,
                                       .parent_group = (void *)mix(key + 3)};
        case 2:
            return (struct host_event){.type = NCCL_PROXY_STEP,
                                       .step = (int)n,
                                       .rank = (int)thread,
                                       .parent = (void *)mix(key)};
        default:
            return (struct host_event){.type = NCCL_KERNEL_CH,
                                       .channel = (int)thread,
                                       .timer = n,
                                       .parent = (void *)mix(key)};
    }
}

static void checked_update(struct worker *worker, void *handle, uint64_t n, int which) {
    uint64_t key = n << 8 | (uint64_t)worker->number;
    static const int states[3] = {NCCL_STEP_SEND_GPU_WAIT, NCCL_STEP_SEND_PEER_WAIT,
                                  NCCL_STEP_SEND_WAIT};
    if (n % 4 == 2)
        state(worker, handle, states[which], true, mix(key + (uint64_t)which) & 0xFFFFFFFF);
    if (n % 4 == 3 && which == 2) state(worker, handle, NCCL_KERNEL_CH_STOP, true, mix(key + 1));
}

static void checked_events(struct worker *worker, uint64_t events) {
    enum { LAG = 128 };
    void *handles[LAG] = {0};
    struct oracle *counts = &oracle[worker->number];
    void *context = contexts[worker->number % options->comms];
    for (uint64_t n = 0; n < events; n++) {
        void **place = &handles[n % LAG];
        if (n >= LAG) {
            stop(worker, *place);
            __atomic_store_n(&counts->stopped, n - LAG + 1, __ATOMIC_RELEASE);
        }
        struct host_event event = checked_event(n, (uint64_t)worker->number);
        *place = start(worker, context, &event);
        __atomic_store_n(&counts->refused, worker->refused, __ATOMIC_RELAXED);
        __atomic_store_n(&counts->started, n + 1, __ATOMIC_RELEASE);
        for (int which = 0; which < 3; which++) {
            uint64_t lag = 16 + 32 * (uint64_t)which;
            if (n >= lag) checked_update(worker, handles[(n - lag) % LAG], n - lag, which);
        }
    }
}

// ---- threads ----
static void *work(void *argument) {
    struct worker *worker = argument;
    worker->started = now_ns();
    getrusage(RUSAGE_THREAD, &worker->stalls.seen);
    long faults_before = worker->stalls.seen.ru_minflt + worker->stalls.seen.ru_majflt;
    if (options->oracle) checked_events(worker, options->collectives);
    else
        for (uint64_t n = 0; n < options->collectives; n++) one_collective(worker, n);
    if (!options->die_at) __atomic_add_fetch(&callbacks_total, worker->callbacks, __ATOMIC_RELAXED);
    host_thread_done();
    getrusage(RUSAGE_THREAD, &worker->stalls.seen);
    worker->stalls.page_faults =
        (uint64_t)(worker->stalls.seen.ru_minflt + worker->stalls.seen.ru_majflt - faults_before);
    return NULL;
}

static struct stalls all_stalls;

static uint64_t run_threads(void) {
    static pthread_t threads[MAX_THREADS];
    static struct worker workers[MAX_THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    uint64_t refused = 0;
    int created = 0;
    for (int i = 0; i < options->threads; i++) {
        workers[i] = (struct worker){.number = i};
        if (pthread_create(&threads[i], &small, work, &workers[i]) != 0) break;
        created++;
    }
    for (int i = 0; i < created; i++) {
        pthread_join(threads[i], NULL);
        refused += workers[i].refused;
        add_stalls(&all_stalls, &workers[i].stalls);
    }
    return refused;
}

int load(const struct load_options *chosen) {
    options = chosen;
    if (options->threads > MAX_THREADS || options->comms > MAX_COMMS ||
        options->channels > MAX_CHANNELS) {
        fprintf(stderr, "at most %d threads, %d communicators, %d channels\n", MAX_THREADS,
                MAX_COMMS, MAX_CHANNELS);
        return 2;
    }
    if (!host_load(&host, options->plugin, options->version)) return 1;
    if (options->oracle) open_oracle(options->oracle);
    for (int i = 0; i < options->comms; i++)
        host_init(&host, &contexts[i],
                  &(struct host_comm){0xC0FFEE + (uint64_t)i, "world", 2, 16, 3});
    uint64_t refused = 0;
    for (int generation = 0; generation < options->generations; generation++) {
        if (generation && options->pause_ms)
            nanosleep(
                &(struct timespec){options->pause_ms / 1000, options->pause_ms % 1000 * 1000000L},
                NULL);
        refused += run_threads();
    }
    if (options->end == END_KILL) kill(getpid(), SIGKILL);
    if (options->end == END_FINALIZE)
        for (int i = 0; i < options->comms; i++) host_finalize(&host, contexts[i]);
    printf("made %llu callbacks of interface v%d, %llu starts refused\n",
           (unsigned long long)callbacks_total, options->version, (unsigned long long)refused);
    if (options->stalls) print_stalls(&all_stalls);
    return 0;
}
