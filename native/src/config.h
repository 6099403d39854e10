// What the environment asks for. Read once, at the first init.
#ifndef NCCLSCOPE_CONFIG_H
#define NCCLSCOPE_CONFIG_H

#include <limits.h>
#include <stdbool.h>

#include "nccl_abi.h"
#include "ncclscope/format.h"

// What each mode asks NCCL for.
enum {
    PROFILE_EVENTS = NCCL_COLL | NCCL_P2P | NCCL_KERNEL_CH | NCCL_GROUP_API | NCCL_COLL_API |
        NCCL_P2P_API | NCCL_CE_COLL | NCCL_CE_SYNC | NCCL_CE_BATCH,
    TRACE_EVENTS = PROFILE_EVENTS | NCCL_GROUP | NCCL_PROXY_OP | NCCL_KERNEL_LAUNCH |
        NCCL_KERNEL_PHASE,
    FULL_EVENTS = NCCL_EVENTS_NEWEST,
};

// How much PyTorch is asked to say.
enum torch_level { TORCH_AUTO, TORCH_OFF, TORCH_STEPS, TORCH_MODULES };

struct config {
    bool disabled;       // NCCLSCOPE_DISABLE=1
    enum mode mode;      // NCCLSCOPE_MODE
    u32 events;          // NCCLSCOPE_EVENTS (mask) or the mode's, before the interface's own limit
    u32 first_events;    // the same at the first init
    bool events_listed;  // by NCCLSCOPE_EVENTS
    enum gpu_timing
        gpu_timing_asked;  // NCCLSCOPE_GPU_TIMING; timing_policy.h says what is in force
    bool graph_markers;    // NCCLSCOPE_GRAPH_MARKERS=0: none
    u64 arena_bytes;       // NCCLSCOPE_ARENA: upper limit; 0 = decide
    u64 ring_bytes;        // NCCLSCOPE_RING: keep this much in memory, write it on request; 0 = no
    u64 disk_limit_bytes;  // NCCLSCOPE_DISK_LIMIT: per process
    u64 exit_wait_ns;      // NCCLSCOPE_EXIT_WAIT
    bool ranges;           // NCCLSCOPE_RANGES=off records no ranges
    enum torch_level torch;      // NCCLSCOPE_TORCH
    char capture_dir[PATH_MAX];  // NCCLSCOPE_DIR, expanded and absolute
    char chain[PATH_MAX];        // NCCLSCOPE_CHAIN: another plugin that gets all callbacks, too
    char complaint[256];         // what could not be understood, for the log
};

extern struct config config;

void config_read(void);
const char *config_mode_name(void);
u32 config_mode_events(enum mode mode);
const char *config_timing_name(enum gpu_timing timing);
enum gpu_timing config_timing_by_name(const char *name);  // 0: there is none
// The mode of a name; 0: there is none.
enum mode config_mode_by_name(const char *name);

#endif
