// An empty profiler plugin: asks for events and ignores them. What NCCL itself costs with any
// plugin loaded.
//
// NCCLSCOPE_EMPTY_EVENTS: the events to ask for, as a mask (all that the interface has).
#include <stdlib.h>

#include "../src/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))

static int events(int known) {
    const char *text = getenv("NCCLSCOPE_EMPTY_EVENTS");
    return text ? (int)strtol(text, NULL, 0) & known : known;
}

static nccl_result open_comm(void **context, int *mask, int known) {
    *context = (void *)1;
    *mask = events(known);
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
        (void)context, (void)d;                                                         \
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
