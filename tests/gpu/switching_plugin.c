// A profiler plugin for the overhead measurement: three plugins behind one, switched between calls.
//
// Fresh communicators differ by more than a recorder costs. Here one communicator is measured with
// each of them in turn: (e) empty, (c) reads the clock once a callback and does nothing else, (o)
// the plugin named by SWITCH_TO, whose events all of them get. Stops and states follow the handle,
// so they reach the plugin that saw the start.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../native/src/clock.h"
#include "../../native/src/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define EMPTY ((void *)1)
#define CLOCK ((void *)2)

EXPORT volatile int switching_plugin_kind = 'e';  // set by the driver while nothing is under way

// A copy: NCCL goes through one table to the plugin it calls, and so shall this one. v5 to v7
// differ in events, not in functions.
static struct nccl_profiler_v7 other;
static volatile uint64_t last_ticks;

static void read_clock(void) { last_ticks = clock_counter(); }

static nccl_result init(const char *symbol, void **context, uint64_t id, int *mask,
                        const char *name, int nodes, int ranks, int rank, nccl_log_fn log) {
    const char *path = getenv("SWITCH_TO");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct nccl_profiler_v7 *found = library ? dlsym(library, symbol) : NULL;
    if (!found) {
        fprintf(stderr, "switching plugin: %s\n", path ? dlerror() : "SWITCH_TO is not set");
        abort();
    }
    other = *found;
    return other.init(context, id, mask, name, nodes, ranks, rank, log);
}
#define INIT(version)                                                                             \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name,  \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {         \
        return init("ncclProfiler_v" #version, context, id, mask, name, nodes, ranks, rank, log); \
    }
INIT(5)
INIT(6)
INIT(7)

static nccl_result start(void *context, void **handle, const struct nccl_descr *descr) {
    int kind = switching_plugin_kind;
    if (kind == 'o') return other.startEvent(context, handle, descr);
    if (kind == 'c') read_clock();
    *handle = kind == 'c' ? CLOCK : EMPTY;
    return 0;
}
static nccl_result stop(void *handle) {
    if (handle == EMPTY) return 0;
    if (handle != CLOCK) return other.stopEvent(handle);
    read_clock();
    return 0;
}
static nccl_result state(void *handle, int state, const union nccl_state_args *arguments) {
    if (handle == EMPTY) return 0;
    if (handle != CLOCK) return other.recordEventState(handle, state, arguments);
    read_clock();
    return 0;
}
static nccl_result finalize(void *context) { return other.finalize(context); }

EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {"switching", init_v5, start,
                                                        stop,        state,   finalize};
EXPORT const struct nccl_profiler_v6 ncclProfiler_v6 = {"switching", init_v6, start,
                                                        stop,        state,   finalize};
EXPORT const struct nccl_profiler_v7 ncclProfiler_v7 = {"switching", init_v7, start,
                                                        stop,        state,   finalize};
