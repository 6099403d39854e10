// Cost of a callback: replays what NCCL calls for one multi-node ring AllReduce through several
// plugins, interleaved.
//
// usage: callback_cost ROUNDS COLLECTIVES CHANNELS STEPS deep|coll|clock CPU NAME=PLUGIN…
// Prints one line per plugin: name, callbacks per collective, then ns per callback for each round
// (thread CPU time). "clock" replays nothing: it prints the cost of one counter read instead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../native/src/nccl_abi.h"

enum { MAX_PLUGINS = 8, MAX_ROUNDS = 64, MAX_CHANNELS = 64 };

struct plugin {
    const char *name;
    const struct nccl_profiler_v6 *volatile calls;
    void *context;
    int mask;
    double ns[MAX_ROUNDS];
    uint64_t callbacks;
};

static void quiet(int level, unsigned long flags, const char *file, int line, const char *format,
                  ...) {
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct nccl_descr d;
static union nccl_state_args a;

#define START(handle, event_type, parent_handle, fill) \
    do {                                               \
        memset(&d, 0, sizeof d);                       \
        d.type = event_type;                           \
        d.parentObj = parent_handle;                   \
        fill;                                          \
        p->calls->startEvent(p->context, &handle, &d); \
        calls++;                                       \
    } while (0)
#define STATE(handle, number, args)                                            \
    do {                                                                       \
        if (handle) p->calls->recordEventState(handle, number, args), calls++; \
    } while (0)
#define STOP(handle)                                      \
    do {                                                  \
        if (handle) p->calls->stopEvent(handle), calls++; \
    } while (0)

static uint64_t collective(struct plugin *p, int number, int channels, int steps) {
    uint64_t calls = 0;
    void *group_api = 0, *call = 0, *group = 0, *coll = 0, *launch = 0, *ctrl = 0;
    static void *kernels[MAX_CHANNELS], *ops[2 * MAX_CHANNELS], *step_of[2 * MAX_CHANNELS];
    if (p->mask & (NCCL_GROUP_API | NCCL_COLL | NCCL_COLL_API)) {
        START(group_api, NCCL_GROUP_API, 0, d.groupApi.groupDepth = 1);
        STATE(group_api, NCCL_GROUP_START_DONE, 0);
        START(call, NCCL_COLL_API, group_api,
              (d.collApi.func = "AllReduce", d.collApi.count = 1 << 20,
               d.collApi.datatype = "ncclFloat32", d.collApi.stream = &d));
        STATE(group_api, NCCL_GROUP_END_BEGINS, 0);
    }
    if (p->mask & NCCL_COLL) {
        START(group, NCCL_GROUP, 0, (void)0);
        START(coll, NCCL_COLL, call,
              (d.rank = 3, d.coll.parentGroup = group, d.coll.seqNumber = (uint64_t)number,
               d.coll.func = "AllReduce", d.coll.count = 1 << 20, d.coll.datatype = "ncclFloat32",
               d.coll.nChannels = (uint8_t)channels, d.coll.nWarps = 16, d.coll.algo = "RING",
               d.coll.proto = "SIMPLE"));
    }
    if (p->mask & NCCL_KERNEL_LAUNCH) {
        START(launch, NCCL_KERNEL_LAUNCH, group_api, (void)0);
        STOP(launch);
    }
    STOP(coll);
    STOP(group);
    STOP(call);
    STOP(group_api);
    if (p->mask & NCCL_PROXY_CTRL) {
        START(ctrl, NCCL_PROXY_CTRL, 0, (void)0);
        memset(&a, 0, sizeof a);
        STATE(ctrl, 17, &a);
        a.proxyCtrl.appendedProxyOps = 2 * channels;
        STATE(ctrl, NCCL_CTRL_APPEND_END, &a);
        STOP(ctrl);
    }
    if (p->mask & NCCL_PROXY_OP)
        for (int k = 0; k < 2 * channels; k++) {
            ops[k] = 0;
            START(ops[k], NCCL_PROXY_OP, coll,
                  (d.rank = 3, d.proxyOp.pid = 1, d.proxyOp.channelId = (uint8_t)(k / 2),
                   d.proxyOp.peer = k & 1 ? 2 : 4, d.proxyOp.nSteps = steps,
                   d.proxyOp.chunkSize = 1 << 19, d.proxyOp.isSend = k & 1));
            memset(&a, 0, sizeof a);
            STATE(ops[k], NCCL_OP_IN_PROGRESS, &a);
        }
    if (p->mask & NCCL_KERNEL_CH)
        for (int k = 0; k < channels; k++) {
            kernels[k] = 0;
            START(kernels[k], NCCL_KERNEL_CH, coll,
                  (d.kernelCh.channelId = (uint8_t)k,
                   d.kernelCh.pTimer = 1000000 + (uint64_t)number));
        }
    if (p->mask & NCCL_PROXY_STEP)
        for (int step = 0; step < steps; step++) {
            static const int states[2][3] = {{10, 11, 12}, {8, 20, 9}};
            for (int k = 0; k < 2 * channels; k++) {
                step_of[k] = 0;
                START(step_of[k], NCCL_PROXY_STEP, ops[k], (d.rank = 3, d.proxyStep.step = step));
            }
            for (int s = 0; s < 3; s++)
                for (int k = 0; k < 2 * channels; k++) {
                    memset(&a, 0, sizeof a);
                    a.proxyStep.transSize = 1 << 19;
                    STATE(step_of[k], states[k & 1][s], &a);
                }
            for (int k = 0; k < 2 * channels; k++) STOP(step_of[k]);
        }
    if (p->mask & NCCL_KERNEL_CH)
        for (int k = 0; k < channels; k++) {
            memset(&a, 0, sizeof a);
            a.kernelCh.pTimer = 2000000 + (uint64_t)number;
            STATE(kernels[k], NCCL_KERNEL_CH_STOP, &a);
            STOP(kernels[k]);
        }
    if (p->mask & NCCL_PROXY_OP)
        for (int k = 0; k < 2 * channels; k++) STOP(ops[k]);
    return calls;
}

static void *idle(void *unused) {
    pause();
    return unused;
}

static void load(struct plugin *plugin, char *argument, int coll_only) {
    char *path = strchr(argument, '=');
    *path++ = 0;
    plugin->name = argument;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    plugin->calls = dlsym(library, "ncclProfiler_v6");
    plugin->calls->init(&plugin->context, 0xabcdef, &plugin->mask, "world", 2, 16, 3, quiet);
    if (coll_only) plugin->mask &= NCCL_COLL | NCCL_P2P | NCCL_KERNEL_CH;
}

static double clock_read_ns(void) {
    enum { READS = 4000000 };
    uint64_t sum = 0, before = cpu_ns();
    for (int i = 0; i < READS; i++) {
        uint64_t t;
#if defined(__aarch64__)
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
#else
        uint32_t low, high;
        __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
        t = (uint64_t)high << 32 | low;
#endif
        sum += t;
    }
    uint64_t after = cpu_ns();
    __asm__ volatile("" ::"r"(sum));
    return (double)(after - before) / READS;
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    int rounds = atoi(argv[1]), collectives = atoi(argv[2]), channels = atoi(argv[3]),
        steps = atoi(argv[4]);
    int cpu = atoi(argv[6]), plugins = argc - 7;
    struct plugin all[MAX_PLUGINS] = {0};
    pthread_t thread;
    pthread_create(&thread, NULL, idle, NULL);  // NCCL's processes have threads
    for (int i = 0; i < plugins; i++) load(&all[i], argv[7 + i], strcmp(argv[5], "coll") == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);  // after init: helper threads stay free to go elsewhere
    printf("clock 1");
    for (int round = 0; round < rounds; round++) printf(" %.3f", clock_read_ns());
    printf("\n");
    for (int round = -1; round < rounds; round++)  // the first one warms up
        for (int i = 0; i < plugins; i++) {
            uint64_t calls = 0, before = cpu_ns();
            for (int n = 0; n < collectives; n++) calls += collective(&all[i], n, channels, steps);
            uint64_t after = cpu_ns();
            all[i].callbacks = calls;
            if (round >= 0) all[i].ns[round] = (double)(after - before) / (double)calls;
            usleep(300000);  // drained before the next one
        }
    for (int i = 0; i < plugins; i++) {
        printf("%s %.0f", all[i].name, (double)all[i].callbacks / collectives);
        for (int round = 0; round < rounds; round++) printf(" %.3f", all[i].ns[round]);
        printf("\n");
        all[i].calls->finalize(all[i].context);
    }
    return 0;
}
