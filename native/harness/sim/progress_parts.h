// What a progress thread works on: kernels that it waits for, and network transfers (transfer.c).
#ifndef NCCLSCOPE_SIM_PROGRESS_PARTS_H
#define NCCLSCOPE_SIM_PROGRESS_PARTS_H

#include <pthread.h>

#include "profiler.h"
#include "progress.h"

enum { MAX_DEPTH = 8 };

struct step {
    void *handle;
    int64_t done_ns;  // of a transfer that is on its way
};

struct item {
    struct item *next;
    bool is_kernel, finished;
    void *handle;
    uint64_t append;  // number of the append that it came with
    // kernels
    void *parent;
    struct channel *channel;
    int channel_number, direction;
    uint64_t number;
    bool started, phases;
    // proxies
    struct proxy_op op;
    struct run *run;
    struct step steps[MAX_DEPTH];
    int posted, moved, passed, done;  // steps so far: sent or received; handed to the GPU; over
    uint64_t base;                    // steps on this connection before
    size_t size_bytes;                // of the last transfer, as NCCL reports it
    bool in_progress;
};

struct progress {
    struct fabric *fabric;
    uint64_t appends;
    void *context;
    int rank;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item *prepared, *waiting, *active;  // added; appended; taken up
    bool is_proxy, ending, draining;
    uint64_t bases[2][MAX_RANKS][MAX_CHANNELS];
};

// What progress threads tell the plugin.
static inline void *report_start(struct progress *progress, struct host_event event) {
    void *handle = NULL;
    host_start(&profiler, progress->context, &handle, &event);
    return handle;
}

static inline void report_state(void *handle, int which, size_t argument) {
    bool of_step = which >= NCCL_STEP_SEND_GPU_WAIT && which <= NCCL_STEP_RECV_GPU_WAIT;
    if (handle)
        host_state(&profiler, handle, which, !(profiler.version <= 3 && of_step), argument, 0);
}

static inline void report_stop(void *handle) {
    if (handle) host_stop(&profiler, handle);
}

// From 2.27 on a transfer is reported when it is taken up, before with its first step.
void transfer_start(struct progress *progress, struct item *item);
// Whether it got on; `next_ns` is when it will.
bool transfer_progress(struct progress *progress, struct item *item, int64_t *next_ns);

#endif
