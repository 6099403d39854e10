// NCCL's proxy progress thread, and the profiler's own thread of 2.31 and later: they report
// kernels and network transfers while these go on.
//
// Host and device each number the works of a channel, and a kernel event gets the stamps of the
// host's number. Where the device counts a work that the host does not, later events carry earlier
// stamps: that is how NCCL's defects come about, and they come about here in the same way.
#ifndef NCCLSCOPE_SIM_PROGRESS_H
#define NCCLSCOPE_SIM_PROGRESS_H

#include "fabric.h"

enum { STAMPS = 64 };

// The works of a channel: NCCL's ring of stamps.
struct channel {
    uint64_t device_count, host_count;
    struct stamp {
        uint64_t number, gpu_ns;
        bool has_phases;  // of stops: collectives write them, whoever asks first gets them
    } starts[STAMPS], stops[STAMPS];
    int stolen;  // works to come whose kernel event a Broadcast has taken away
};

// One execution of an operation, shared by the stream's thread and the proxies.
struct run {
    int holders;
    int64_t start_ns, end_ns;         // 0: not yet; atomic
    uint64_t received[MAX_CHANNELS];  // steps; atomic
    int holds;                        // what it does not get past: ncclscopeHold
};
struct run *run_make(void);
struct run *run_hold(struct run *run);
void run_release(struct run *run);

struct progress;

// When a step may be sent: with the kernel; when what it passes on has come, a turn of the ring
// later, or at once.
enum after { AFTER_START, AFTER_TURN_BEFORE, AFTER_SAME_STEP };

// A network transfer of one operation, channel and direction.
struct proxy_op {
    void *parent;
    int mask, channel, peer, steps, chunk_bytes, is_send;
    enum after after;
    int steps_per_turn, depth;  // depth: steps that are posted at a time
    size_t step_bytes;
    int64_t step_ns;
};

struct progress *progress_make(struct fabric *fabric, void *context, int rank, bool is_proxy);
// A kernel event: `number` as the host counts; direction 0 receives, 1 sends, 2 is a collective.
void progress_add_kernel(struct progress *progress, void *parent, struct channel *channel,
                         int channel_number, int direction, uint64_t number, bool phases);
void progress_add_proxy(struct progress *progress, const struct proxy_op *op, struct run *run);
// What was added since takes effect, as one append.
void progress_append(struct progress *progress);
// drain: until everything is reported; else what is left of the last append is thrown away.
void progress_end(struct progress *progress, bool drain);

#endif
