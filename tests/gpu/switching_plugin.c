// A profiler plugin for the overhead measurement: three plugins in one place, switched between
// calls.
//
// Fresh communicators differ by more than a recorder costs. Here one communicator is measured with
// each of them in turn: (e) empty, (c) reads the clock once a callback and does nothing else, (o)
// the plugin named by SWITCH_TO, whose events all of them get. NCCL calls through the table that it
// found in its plugin, so a switch is a write to that table: each of them is called as if it were
// alone. That NCCL does so is checked: overhead.py counts what the third one recorded, and the
// driver looks at the second one's clock.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../native/src/clock.h"
#include "../../native/src/nccl_abi.h"

#define EXPORT __attribute__((visibility("default")))

// v5 to v7 differ in events, not in functions.
static struct nccl_profiler_v7 other;
EXPORT volatile uint64_t switching_plugin_ticks;  // of the second one's last callback

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

static nccl_result start_empty(void *context, void **handle, const struct nccl_descr *descr) {
    (void)context, (void)descr;
    *handle = (void *)1;
    return 0;
}
static nccl_result stop_empty(void *handle) { return (void)handle, 0; }
static nccl_result state_empty(void *handle, int state, const union nccl_state_args *arguments) {
    return (void)handle, (void)state, (void)arguments, 0;
}

static nccl_result start_clock(void *context, void **handle, const struct nccl_descr *descr) {
    (void)context, (void)descr;
    *handle = (void *)1;
    switching_plugin_ticks = clock_counter();
    return 0;
}
static nccl_result stop_clock(void *handle) {
    (void)handle;
    switching_plugin_ticks = clock_counter();
    return 0;
}
static nccl_result state_clock(void *handle, int state, const union nccl_state_args *arguments) {
    (void)handle, (void)state, (void)arguments;
    switching_plugin_ticks = clock_counter();
    return 0;
}

static nccl_result finalize(void *context) { return other.finalize(context); }

#define TABLE(version)                                                 \
    EXPORT struct nccl_profiler_v##version ncclProfiler_v##version = { \
        "switching", init_v##version, start_empty, stop_empty, state_empty, finalize};
TABLE(5)
TABLE(6)
TABLE(7)

// While nothing is under way; what is still open stays open.
#define SWITCH(table, start, stop, state)                             \
    __atomic_store_n(&(table).startEvent, start, __ATOMIC_RELAXED),   \
        __atomic_store_n(&(table).stopEvent, stop, __ATOMIC_RELAXED), \
        __atomic_store_n(&(table).recordEventState, state, __ATOMIC_RELAXED)
#define SWITCH_ALL(start, stop, state)                                                        \
    SWITCH(ncclProfiler_v5, start, stop, state), SWITCH(ncclProfiler_v6, start, stop, state), \
        SWITCH(ncclProfiler_v7, start, stop, state)

EXPORT void switching_plugin_switch(int kind) {
    if (kind == 'o') SWITCH_ALL(other.startEvent, other.stopEvent, other.recordEventState);
    else if (kind == 'c') SWITCH_ALL(start_clock, stop_clock, state_clock);
    else SWITCH_ALL(start_empty, stop_empty, state_empty);
}
