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
// ---- one object for each interface version ----
static nccl_result stop(void *handle) { return (void)handle, 0; }
static nccl_result finalize(void *context) { return (void)context, 0; }
#define STATE(family)                                                         \
    static nccl_result state_##family(void *handle, int state,                \
                                      const nccl_state_args_##family *args) { \
        return (void)handle, (void)state, (void)args, 0;                      \
    }
STATE(early)
STATE(named)
STATE(modern)

#define INIT_early(version)                                         \
    static nccl_result init_v##version(void **context, int *mask) { \
        return open_comm(context, mask, NCCL_EVENTS_OF(version));   \
    }
#define INIT_named(version)                                                                        \
    static nccl_result init_v##version(void **context, int *mask, const char *name, uint64_t hash, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {          \
        (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;                   \
        return open_comm(context, mask, NCCL_EVENTS_OF(version));                                  \
    }
#define INIT_modern(version)                                                                     \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {        \
        (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;                   \
        return open_comm(context, mask, NCCL_EVENTS_OF(version));                                \
    }

// A handle that is not NULL, or NCCL would leave out the states and stops.
#define INTERFACE(version, family, descr, bytes)                                             \
    INIT_##family(version) static nccl_result start_v##version(void *context, void **handle, \
                                                               const descr *d) {             \
        (void)context;                                                                       \
        if (calls && (d->type & counted))                                                    \
            atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);                       \
        *handle = (void *)1;                                                                 \
        return 0;                                                                            \
    }                                                                                        \
    EXPORT const struct nccl_profiler_v##version ncclProfiler_v##version = {                 \
        "empty", init_v##version, start_v##version, stop, state_##family, finalize};
NCCL_INTERFACES(INTERFACE)
