// Profiler plugins of known behaviour, for the tests of their comparison. KNOWN_PROFILER says
// which:
//
//   all      records every collective
//   third    drops every third call
//   short    reports 10 % too little
//   slow     busy-waits KNOWN_US microseconds (5) of CPU time in the start and the stop of a call
//   crash    ends the process with SIGSEGV in the tenth call
//   silent   writes nothing
//   buffer   writes everything in the end: a SIGKILL takes it all
//
// KNOWN_FORMAT says whose files it writes, where that profiler's own variables say:
//
//   inspector  NCCL_INSPECTOR_DUMP_DIR/<pid>.log, a line for each call (the default)
//   comma      NCCL_PROFILER_LATENCY_FILE with the process id for %p, a line for each call, and
//              nothing unless NCCL_PROFILER_USE_GPUVIZ is false
//   ncclsee    ncclsee_0/<pid>.csv in the current directory, totals at the end, with the bytes that
//              NCCL moves instead of those of the call
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
static int writes(const char *format) {
    const char *text = getenv("KNOWN_FORMAT");
    return strcmp(text ? text : "inspector", format) == 0;
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void wait_a_while(void) {
    if (!is("slow")) return;
    const char *text = getenv("KNOWN_US");
    // Of CPU time, or a busy machine would take a part of the wait for its own.
    uint64_t end_ns =
        clock_ns(CLOCK_THREAD_CPUTIME_ID) + (text ? strtoul(text, NULL, 10) : 5) * 1000;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) continue;
}

static int find_path(char *path, size_t size) {
    const char *variable =
        writes("comma") ? "NCCL_PROFILER_LATENCY_FILE" : "NCCL_INSPECTOR_DUMP_DIR";
    const char *text = getenv(variable), *shown = getenv("NCCL_PROFILER_USE_GPUVIZ");
    if (writes("ncclsee")) {
        mkdir("ncclsee_0", 0700);
        snprintf(path, size, "ncclsee_0/%d.csv", getpid());
        return 1;
    }
    if (writes("comma")) {
        const char *place = text ? strstr(text, "%p") : NULL;
        if (!place || !shown || strcmp(shown, "false") != 0) return 0;
        snprintf(path, size, "%.*s%d%s", (int)(place - text), text, getpid(), place + 2);
        return 1;
    }
    if (text) mkdir(text, 0700);
    snprintf(path, size, "%s/%d.log", text ? text : ".", getpid());
    return 1;
}

static nccl_result init(void **context, uint64_t id, int *mask, const char *name, int nodes,
                        int of_ranks, int own_rank, nccl_log_fn log) {
    (void)name, (void)nodes, (void)log;
    *context = (void *)1;
    *mask = NCCL_COLL | NCCL_KERNEL_CH;
    rank = own_rank, ranks = of_ranks, communicator = id;
    char path[4096];
    file = find_path(path, sizeof path) && !is("silent") ? fopen(path, "w") : NULL;
    static char buffer[1 << 22];  // larger than what a test writes
    if (file) setvbuf(file, buffer, is("buffer") ? _IOFBF : _IOLBF, sizeof buffer);
    return 0;
}

static size_t element_bytes(const char *datatype) {
    return strstr(datatype, "64") ? 8 : strstr(datatype, "32") ? 4 : strstr(datatype, "16") ? 2 : 1;
}

static void write_comma(const struct call *call) {
    uint64_t end_ns = now_ns();
    fprintf(file,
            "{\"args\":{\"size\":%lu},\"cat\":\"COLL\",\"child_start_ts\":%.3f,"
            "\"child_dur\":%.3f,\"comm_hash\":\"0x%lx\",\"dur\":%.3f,\"name\":\"%s\","
            "\"ph\":\"X\",\"rank\":%d,\"seq_num\":%lu,\"ts\":%.3f,\"algo\":\"ring\","
            "\"proto\":\"simple\",\"n_max_channel\":1,\"proxyops\":[]}\n",
            call->size_bytes, (double)(end_ns - call->longest_ns) / 1e3,
            (double)call->longest_ns / 1e3, (unsigned long)communicator,
            (double)(2 * call->longest_ns) / 1e3,
            strcmp(call->function, "AllReduce") == 0 ? "all_reduce" : "all_gather", rank,
            call->sequence, (double)(end_ns - 2 * call->longest_ns) / 1e3);
}

// Totals of both functions, each in one range of sizes. An AllReduce moves its bytes twice.
static struct total {
    const char *function;
    unsigned long moves, calls, size_bytes;
    double time_us;
} totals[] = {{"AllReduce", 2, 0, 0, 0}, {"AllGather", 0, 0, 0, 0}};

static void add_to_totals(const struct call *call) {
    for (int i = 0; i < 2; i++) {
        if (strcmp(call->function, totals[i].function) != 0) continue;
        totals[i].calls++;
        unsigned long moves = totals[i].moves ? totals[i].moves : (unsigned long)ranks;
        totals[i].size_bytes += call->size_bytes * moves;
        totals[i].time_us += (double)call->longest_ns / 1e3;
    }
}

static void write_totals(void) {
    fputs("CollectiveType,BucketLabel,BucketMin,BucketMax,Calls,BytesTransferred,TotalTime_us\n",
          file);
    for (int i = 0; i < 2; i++)
        fprintf(file, "%s,0-65536,0,65536,%lu,%lu,%.6f\n", totals[i].function, totals[i].calls,
                totals[i].size_bytes, totals[i].time_us);
    fputs("Group,N/A,0,0,9,0,12.000000\n", file);
}

static void write_line(const struct call *call) {
    uint64_t time_ns = is("short") ? call->longest_ns * 9 / 10 : call->longest_ns;
    if (!file || (is("third") && call->sequence % 3 == 2)) return;
    if (writes("ncclsee")) return add_to_totals(call);
    if (writes("comma")) return write_comma(call);
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
    if (file && writes("ncclsee")) write_totals();
    if (file) fclose(file);
    file = NULL;
    return 0;
}

__attribute__((visibility("default")))
const struct nccl_profiler_v5 ncclProfiler_v5 = {"known", init, start, stop, state, finalize};
