// Profiler plugins of known behaviour, for the tests of their comparison. KNOWN_PROFILER says
// which:
//
//   all      records every collective
//   third    drops every third call
//   short    reports 10 % too little
//   slow     busy-waits KNOWN_US microseconds (5) in each callback of a call
//   crash    ends the process with SIGSEGV in the tenth call
//   silent   writes nothing
//   buffer   writes everything in the end: a SIGKILL takes it all
//
// Writes NCCL Inspector's lines to NCCL_INSPECTOR_DUMP_DIR/<pid>.log.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../../native/src/nccl_abi.h"

enum { MOST = 1 << 16, CRASHES_AT = 10 };

struct call {
    const char *function;
    unsigned long sequence, size_bytes;
    uint64_t longest_ns;
    int channels_left;
};
struct channel {
    struct call *call;
    uint64_t start_ns;
};
// What a handle points to; the first word tells calls and channels apart.
struct handle {
    int is_channel;
    union {
        struct call call;
        struct channel channel;
    };
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle handles[MOST];
static atomic_int used;
static FILE *file;
static int rank, ranks, calls;
static uint64_t communicator;

static const char *behaviour(void) {
    const char *text = getenv("KNOWN_PROFILER");
    return text ? text : "all";
}
static int is(const char *name) { return strcmp(behaviour(), name) == 0; }

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void wait_a_while(void) {
    const char *text = getenv("KNOWN_US");
    uint64_t end_ns = now_ns() + (text ? strtoul(text, NULL, 10) : 5) * 1000;
    while (is("slow") && now_ns() < end_ns) continue;
}

static nccl_result init(void **context, uint64_t id, int *mask, const char *name, int nodes,
                        int of_ranks, int own_rank, nccl_log_fn log) {
    (void)name, (void)nodes, (void)log;
    *context = (void *)1;
    *mask = NCCL_COLL | NCCL_KERNEL_CH;
    rank = own_rank, ranks = of_ranks, communicator = id;
    const char *folder = getenv("NCCL_INSPECTOR_DUMP_DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.log", folder ? folder : ".", getpid());
    if (folder) mkdir(folder, 0700);
    file = is("silent") ? NULL : fopen(path, "w");
    static char buffer[1 << 22];  // larger than what a test writes
    if (file) setvbuf(file, buffer, is("buffer") ? _IOFBF : _IOLBF, sizeof buffer);
    return 0;
}

static size_t element_bytes(const char *datatype) {
    return strstr(datatype, "64") ? 8 : strstr(datatype, "32") ? 4 : strstr(datatype, "16") ? 2 : 1;
}

static void write_line(const struct call *call) {
    uint64_t time_ns = is("short") ? call->longest_ns * 9 / 10 : call->longest_ns;
    if (!file || (is("third") && call->sequence % 3 == 2)) return;
    fprintf(file,
            "{\"header\":{\"id\":\"0x%lx\",\"rank\":%d,\"n_ranks\":%d,\"nnodes\":1},"
            "\"metadata\":{\"inspector_output_format_version\":\"v4.0\",\"dump_timestamp_us\":%lu,"
            "\"hostname\":\"\",\"pid\":%d},\"coll_perf\":{\"coll\":\"%s\",\"coll_sn\":%lu,"
            "\"coll_msg_size_bytes\":%lu,\"coll_exec_time_us\":%.3f,"
            "\"coll_timing_source\":\"kernel_gpu\"}}\n",
            (unsigned long)communicator, rank, ranks, (unsigned long)(now_ns() / 1000), getpid(),
            call->function, call->sequence, call->size_bytes, (double)time_ns / 1e3);
}

static nccl_result start(void *context, void **handle, const struct nccl_descr *event) {
    (void)context;
    *handle = NULL;
    int place = atomic_fetch_add(&used, 1);
    if (place >= MOST) return 0;
    struct handle *own = &handles[place];
    if (event->type == NCCL_COLL) {
        wait_a_while();
        if (is("crash") && ++calls == CRASHES_AT) raise(SIGSEGV);
        own->call = (struct call){event->coll.func, event->coll.seqNumber,
                                  event->coll.count * element_bytes(event->coll.datatype), 0,
                                  event->coll.nChannels};
    } else {
        own->is_channel = 1;
        own->channel =
            (struct channel){&((struct handle *)event->parentObj)->call, event->kernelCh.pTimer};
    }
    *handle = own;
    return 0;
}

static nccl_result stop(void *pointer) {
    struct handle *handle = pointer;
    if (handle && !handle->is_channel) wait_a_while();
    return 0;
}

static nccl_result state(void *pointer, int number, const union nccl_state_args *args) {
    struct handle *handle = pointer;
    if (!handle || !handle->is_channel || number != NCCL_KERNEL_CH_STOP) return 0;
    struct call *call = handle->channel.call;
    pthread_mutex_lock(&lock);
    uint64_t time_ns = args->kernelCh.pTimer - handle->channel.start_ns;
    if (time_ns > call->longest_ns) call->longest_ns = time_ns;
    if (--call->channels_left == 0) write_line(call);
    pthread_mutex_unlock(&lock);
    return 0;
}

static nccl_result finalize(void *context) {
    (void)context;
    if (file) fclose(file);
    file = NULL;
    return 0;
}

__attribute__((visibility("default")))
const struct nccl_profiler_v5 ncclProfiler_v5 = {"known", init, start, stop, state, finalize};
