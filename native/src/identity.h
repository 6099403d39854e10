// Who this process is: host, pid, job, ranks, command line. Read at the first init, stored in every
// file header.
#ifndef NCCLSCOPE_IDENTITY_H
#define NCCLSCOPE_IDENTITY_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "ncclscope/format.h"

void identity_host(char *out, size_t size);
const char *identity_global_rank(void);      // "" where no launcher says
time_t identity_process_started(pid_t pid);  // wall clock, to the second
u64 identity_start_ticks(pid_t pid);  // as /proc/PID/stat gives it, to tell reused pids apart

// What the recorder adds to what the system knows.
struct identity_facts {
    const char *mode, *capture_dir, *process_folder, *arena_path;
    const void *nccl_address;  // any address inside the NCCL that called
    const char *gpu_timing_asked, *gpu_timing_in_force, *gpu_timing_reason;
    const char *graph_markers;  // "on", or why not
};
// key NUL value NUL …; returns the bytes used.
size_t identity_write(char *out, size_t size, const struct identity_facts *facts);

// The GPU that is current in this thread, through an already loaded CUDA driver; false where there
// is none.
struct gpu {
    u8 uuid[16];
    char bus_id[32];
};
_Bool identity_current_gpu(struct gpu *gpu);

#endif
