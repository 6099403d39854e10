// What the tracker keeps: tracker.c changes it, tracker_live.c shows it. Helper thread only.
#ifndef NCCLSCOPE_TRACKER_STATE_H
#define NCCLSCOPE_TRACKER_STATE_H

#include <stdbool.h>

#include "slot.h"

#define MAX_PENDING 16384u  // operations in flight; a power of two

struct operation {
    u64 handle;  // of its Coll or P2p; 0: free
    u64 count, t_call, t_work, order;
    u64 host_first, host_last;  // ticks: first KernelCh seen, last one ended
    u64 gpu_first, gpu_last;
    u64 t_gpu_last;  // ticks at which gpu_last was seen
    u64 group;
    struct totals_entry *entry;
    i32 peer;
    u16 comm;
    u8 func, dtype, algo, proto, channels, started, stopped;
    bool has_work, captured, no_stamp, suspect, stale;
    u32 heartbeats;  // since something happened to it; only those that follow a pass count
};
struct progress {
    u64 calls, works, done, newest_done_order, t_last_call, t_last_done, count;
    i32 root_or_peer;
    u8 func, dtype;
    bool has_api;
};

extern struct operation tracker_operations[MAX_PENDING];
extern struct progress *tracker_progress;  // by communicator; NULL before the first slot
extern u32 tracker_comms_seen;

#endif
