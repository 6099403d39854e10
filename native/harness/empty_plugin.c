// An empty profiler plugin: asks for events and ignores them. What NCCL itself costs with any
// plugin loaded.
//
// NCCLSCOPE_EMPTY_EVENTS: the events to ask for, as a mask (all that the interface has).
// NCCLSCOPE_EMPTY_COUNTS: a directory; calls are counted there, in 8 bytes of a file for each
//   process, which can be read while it runs and after its death.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))

static int events(int known) {
    const char *text = getenv("NCCLSCOPE_EMPTY_EVENTS");
    return text ? (int)strtol(text, NULL, 0) & known : known;
}

static _Atomic uint64_t *calls;  // NULL: not counted
static uint64_t counted;         // the events that are a call

// Communicators that open at once map the same file.
static void open_counts(int mask) {
    const char *directory = getenv("NCCLSCOPE_EMPTY_COUNTS");
    if (calls || !directory || !*directory) return;
    uint64_t api = NCCL_COLL_API | NCCL_P2P_API;
    counted = (uint64_t)mask & api ? api : NCCL_COLL | NCCL_P2P;
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, sizeof *calls) == 0) {
        void *mapped = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) calls = mapped;
    }
    close(fd);
}

static nccl_result open_comm(void **context, int *mask, int known) {
    *context = (void *)1;
    *mask = events(known);
    open_counts(*mask);
    return 0;
}
static nccl_result init_v1(void **context, int *mask) {
    return open_comm(context, mask, NCCL_EVENTS_V1);
}
static nccl_result init_v3(void **context, int *mask) {
    return open_comm(context, mask, NCCL_EVENTS_V3);
}
static nccl_result init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
                           int ranks, int rank, nccl_log_fn log) {
    (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
    return open_comm(context, mask, NCCL_EVENTS_V3);
}
#define INIT(version)                                                                            \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {        \
        (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;                   \
        return open_comm(context, mask, NCCL_EVENTS_V##version);                                 \
    }
INIT(5)
INIT(6)
INIT(7)

// A handle that is not NULL, or NCCL would leave out the states and stops.
#define START(version, descr)                                                           \
    static nccl_result start_v##version(void *context, void **handle, const descr *d) { \
        (void)context;                                                                  \
        if (calls && (d->type & counted))                                               \
            atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);                  \
        *handle = (void *)1;                                                            \
        return 0;                                                                       \
    }
START(1, struct nccl_descr_v1)
START(2, struct nccl_descr_v2)
START(3, struct nccl_descr_v3)
START(4, struct nccl_descr)

static nccl_result stop(void *handle) { return (void)handle, 0; }
static nccl_result finalize(void *context) { return (void)context, 0; }
static nccl_result state_v1(void *handle, int state, const union nccl_state_args_v1 *args) {
    return (void)handle, (void)state, (void)args, 0;
}
static nccl_result state_v4(void *handle, int state, const union nccl_state_args *args) {
    return (void)handle, (void)state, (void)args, 0;
}

EXPORT const struct nccl_profiler_v1 ncclProfiler_v1 = {"empty", init_v1,  start_v1,
                                                        stop,    state_v1, finalize};
EXPORT const struct nccl_profiler_v2 ncclProfiler_v2 = {"empty", init_v1,  start_v2,
                                                        stop,    state_v1, finalize};
EXPORT const struct nccl_profiler_v3 ncclProfiler_v3 = {"empty", init_v3,  start_v3,
                                                        stop,    state_v1, finalize};
EXPORT const struct nccl_profiler_v4 ncclProfiler_v4 = {"empty", init_v4,  start_v4,
                                                        stop,    state_v4, finalize};
EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {"empty", init_v5,  start_v4,
                                                        stop,    state_v4, finalize};
EXPORT const struct nccl_profiler_v6 ncclProfiler_v6 = {"empty", init_v6,  start_v4,
                                                        stop,    state_v4, finalize};
EXPORT const struct nccl_profiler_v7 ncclProfiler_v7 = {"empty", init_v7,  start_v4,
                                                        stop,    state_v4, finalize};
