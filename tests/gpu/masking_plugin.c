// A profiler plugin that is the one named by SWITCH_TO, whose events can be switched off and on.
//
// Processes differ from each other by more than sampled timing costs. Here one communicator is
// measured with events and without, in turn. Off means that NCCL's mask is 0: NCCL makes no
// callback then and does, besides testing the mask, what it does without a plugin.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../native/src/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))

static int *nccl_mask, wanted;

// v5 to v7 differ in events, not in functions. NCCL calls through the table that it found here.
static nccl_result init(const char *symbol, struct nccl_profiler_v7 *table, void **context,
                        uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank,
                        nccl_log_fn log) {
    const char *path = getenv("SWITCH_TO");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct nccl_profiler_v7 *other = library ? dlsym(library, symbol) : NULL;
    if (!other) {
        fprintf(stderr, "masking plugin: %s\n", path ? dlerror() : "SWITCH_TO is not set");
        abort();
    }
    table->startEvent = other->startEvent;
    table->stopEvent = other->stopEvent;
    table->recordEventState = other->recordEventState;
    table->finalize = other->finalize;
    nccl_result result = other->init(context, id, mask, name, nodes, ranks, rank, log);
    nccl_mask = mask, wanted = *mask;
    return result;
}

#define TABLE(version)                                                                           \
    EXPORT struct nccl_profiler_v##version ncclProfiler_v##version;                              \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {        \
        return init("ncclProfiler_v" #version, (void *)&ncclProfiler_v##version, context, id,    \
                    mask, name, nodes, ranks, rank, log);                                        \
    }                                                                                            \
    EXPORT struct nccl_profiler_v##version ncclProfiler_v##version = {"masking",                 \
                                                                      .init = init_v##version};
TABLE(5)
#ifndef V5_ALONE  // for a plugin that has no later table
TABLE(6)
TABLE(7)
#endif

// While nothing is under way.
EXPORT void masking_plugin_set(int on) {
    __atomic_store_n(nccl_mask, on ? wanted : 0, __ATOMIC_RELAXED);
}
