// A profiler plugin of known cost: each call of rank 0, for which the others wait, takes BURNT_US
// microseconds longer, and more on a busy machine. What it really took is in the file BURNT_LOG.pid
// at any time: microseconds, call by call.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../../../native/src/nccl_abi.h"

static long burnt_us;
static long calls;
static int log_file = -1;

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static nccl_result init(void **context, uint64_t id, int *mask, const char *name, int nodes,
                        int ranks, int rank, nccl_log_fn log) {
    (void)id, (void)name, (void)nodes, (void)ranks, (void)log;
    *context = (void *)1;
    *mask = NCCL_EVENTS_OF(5) &
            ~(NCCL_PROXY_STEP | NCCL_PROXY_CTRL | NCCL_NET_PLUGIN);  // as trace mode
    const char *text = getenv("BURNT_US");
    burnt_us = text && rank == 0 ? atol(text) : 0;
    const char *folder = getenv("BURNT_LOG");
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", folder ? folder : "burnt", getpid());
    if (burnt_us && folder) log_file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    return 0;
}
static nccl_result start(void *context, void **handle, const struct nccl_descr *event) {
    (void)context;
    *handle = (void *)1;
    if (event->type != NCCL_COLL_API || burnt_us == 0) return 0;
    long began_us = now_us();
    while (now_us() < began_us + burnt_us) continue;
    long took_us = now_us() - began_us;
    off_t place = calls++ * (off_t)sizeof took_us;
    if (log_file >= 0 && pwrite(log_file, &took_us, sizeof took_us, place) < 0) log_file = -1;
    return 0;
}
static nccl_result stop(void *handle) { return (void)handle, 0; }
static nccl_result state(void *handle, int number, const union nccl_state_args *args) {
    return (void)handle, (void)number, (void)args, 0;
}
static nccl_result finalize(void *context) { return (void)context, 0; }

__attribute__((visibility("default")))
const struct nccl_profiler_v5 ncclProfiler_v5 = {"burning", init, start, stop, state, finalize};
