// A profiler plugin that writes down every callback, with serial numbers for handles and contexts,
// in the transcripts' form: cb, ctx, h, p, type, group, s. For the tests of chained plugins.
//
// LOGGING_PLUGIN_FILE: where to; LOGGING_PLUGIN_EVENTS: its mask; LOGGING_PLUGIN_INIT: what init
// returns.
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

static nccl_result log_start(void *context, void **handle, unsigned long type, void *parent,
                             void *group) {
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
#define STATE(family)                                                         \
    static nccl_result state_##family(void *handle, int state,                \
                                      const nccl_state_args_##family *args) { \
        (void)args;                                                           \
        return log_state(handle, state);                                      \
    }
STATE(early)
STATE(named)
STATE(modern)

static nccl_result finalize(void *context) {
    pthread_mutex_lock(&lock);
    fprintf(file, "{\"cb\":\"finalize\",\"ctx\":%lu}\n", (unsigned long)context);
    pthread_mutex_unlock(&lock);
    return 0;
}

#define INIT_early(version)                                         \
    static nccl_result init_v##version(void **context, int *mask) { \
        return log_init(context, mask, NCCL_EVENTS_OF(version));    \
    }
#define INIT_named(version)                                                                        \
    static nccl_result init_v##version(void **context, int *mask, const char *name, uint64_t hash, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {          \
        (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;                   \
        return log_init(context, mask, NCCL_EVENTS_OF(version));                                   \
    }
#define INIT_modern(version)                                                                     \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {        \
        (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;                   \
        return log_init(context, mask, NCCL_EVENTS_OF(version));                                 \
    }

#define TYPE_early(d) (d)->type
#define TYPE_named(d) (*(const uint8_t *)(d))
#define TYPE_modern(d) (d)->type
#define GROUP_early(d) NULL
#define GROUP_named(d) NULL
#define GROUP_modern(d)                              \
    ((d)->type == NCCL_COLL  ? (d)->coll.parentGroup \
     : (d)->type == NCCL_P2P ? (d)->p2p.parentGroup  \
                             : NULL)

#define INTERFACE(version, family, descr, bytes)                                              \
    INIT_##family(version) static nccl_result start_v##version(void *context, void **handle,  \
                                                               const descr *d) {              \
        return log_start(context, handle, TYPE_##family(d), d->parentObj, GROUP_##family(d)); \
    }                                                                                         \
    EXPORT const struct nccl_profiler_v##version ncclProfiler_v##version = {                  \
        "logging", init_v##version, start_v##version, stop, state_##family, finalize};
NCCL_INTERFACES(INTERFACE)
