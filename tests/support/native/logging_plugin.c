// A profiler plugin that writes down every callback, with serial numbers for handles and contexts,
// in the transcripts' form: cb, ctx, h, p, type, group, s. For the tests of chained plugins.
//
// LOGGING_PLUGIN_FILE: where to; LOGGING_PLUGIN_EVENTS: its mask; LOGGING_PLUGIN_INIT: what init returns.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static unsigned long contexts, handles;

static int number_in(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? (int)strtol(text, NULL, 0) : otherwise;
}

static nccl_result log_init(void **context, int *mask, int events) {
    pthread_mutex_lock(&lock);
    if (!file) file = fopen(getenv("LOGGING_PLUGIN_FILE"), "w");
    setvbuf(file, NULL, _IOLBF, 0);
    *context = (void *)++contexts;
    *mask = number_in("LOGGING_PLUGIN_EVENTS", events) & events;
    fprintf(file, "{\"cb\":\"init\",\"ctx\":%lu}\n", contexts);
    pthread_mutex_unlock(&lock);
    return number_in("LOGGING_PLUGIN_INIT", 0);
}

static nccl_result log_start(void *context, void **handle, unsigned long type, void *parent, void *group) {
    pthread_mutex_lock(&lock);
    *handle = (void *)++handles;
    fprintf(file, "{\"cb\":\"start\",\"ctx\":%lu,\"h\":%lu,\"p\":%lu,\"type\":%lu,\"group\":%lu}\n",
            (unsigned long)context, handles, (unsigned long)parent, type, (unsigned long)group);
    pthread_mutex_unlock(&lock);
    return 0;
}

static nccl_result stop(void *handle) {
    pthread_mutex_lock(&lock);
    fprintf(file, "{\"cb\":\"stop\",\"h\":%lu}\n", (unsigned long)handle);
    pthread_mutex_unlock(&lock);
    return 0;
}

static nccl_result log_state(void *handle, int state) {
    pthread_mutex_lock(&lock);
    fprintf(file, "{\"cb\":\"state\",\"h\":%lu,\"s\":%d}\n", (unsigned long)handle, state);
    pthread_mutex_unlock(&lock);
    return 0;
}
static nccl_result state_v1(void *handle, int state, const union nccl_state_args_v1 *args) {
    (void)args;
    return log_state(handle, state);
}
static nccl_result state_v4(void *handle, int state, const union nccl_state_args *args) {
    (void)args;
    return log_state(handle, state);
}

static nccl_result finalize(void *context) {
    pthread_mutex_lock(&lock);
    fprintf(file, "{\"cb\":\"finalize\",\"ctx\":%lu}\n", (unsigned long)context);
    pthread_mutex_unlock(&lock);
    return 0;
}

#define INIT_EARLY(version, events) \
    static nccl_result init_v##version(void **context, int *mask) { return log_init(context, mask, events); }
INIT_EARLY(1, NCCL_EVENTS_V1)
INIT_EARLY(2, NCCL_EVENTS_V1)
INIT_EARLY(3, NCCL_EVENTS_V3)
static nccl_result init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
                           nccl_log_fn log) {
    (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
    return log_init(context, mask, NCCL_EVENTS_V3);
}
#define INIT(version)                                                                                       \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, int nodes, \
                                       int ranks, int rank, nccl_log_fn log) {                              \
        (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;                              \
        return log_init(context, mask, NCCL_EVENTS_V##version);                                             \
    }
INIT(5)
INIT(6)
INIT(7)

#define START_EARLY(version)                                                                              \
    static nccl_result start_v##version(void *context, void **handle, const struct nccl_descr_v##version *d) { \
        return log_start(context, handle, d->type, d->parentObj, NULL);                                   \
    }
START_EARLY(1)
START_EARLY(2)
START_EARLY(3)
static nccl_result start_v4(void *context, void **handle, const struct nccl_descr *d) {
    return log_start(context, handle, *(const uint8_t *)d, d->parentObj, NULL);
}
static nccl_result start_v5(void *context, void **handle, const struct nccl_descr *d) {
    void *group = d->type == NCCL_COLL ? d->coll.parentGroup : d->type == NCCL_P2P ? d->p2p.parentGroup : NULL;
    return log_start(context, handle, d->type, d->parentObj, group);
}

EXPORT const struct nccl_profiler_v1 ncclProfiler_v1 = {"logging", init_v1, start_v1, stop, state_v1, finalize};
EXPORT const struct nccl_profiler_v2 ncclProfiler_v2 = {"logging", init_v2, start_v2, stop, state_v1, finalize};
EXPORT const struct nccl_profiler_v3 ncclProfiler_v3 = {"logging", init_v3, start_v3, stop, state_v1, finalize};
EXPORT const struct nccl_profiler_v4 ncclProfiler_v4 = {"logging", init_v4, start_v4, stop, state_v4, finalize};
EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {"logging", init_v5, start_v5, stop, state_v4, finalize};
EXPORT const struct nccl_profiler_v6 ncclProfiler_v6 = {"logging", init_v6, start_v5, stop, state_v4, finalize};
EXPORT const struct nccl_profiler_v7 ncclProfiler_v7 = {"logging", init_v7, start_v5, stop, state_v4, finalize};
