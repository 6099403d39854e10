// The capture's control file: requests to the processes of a running job.
#ifndef NCCLSCOPE_CONTROL_H
#define NCCLSCOPE_CONTROL_H

#include <stdbool.h>

#include "ncclscope/format.h"

struct control_request {
    bool copy_out;               // write the ring to disk
    bool reset;                  // record again what was recorded at the start
    enum mode mode;              // 0: as it is
    u32 events;                  // instead of the mode's; 0: the mode's
    enum gpu_timing gpu_timing;  // sampled or off; 0: as it is
    u64 seconds;                 // after which it is reset; 0: never
    u64 calls;                   // the same
    u64 kernel_steps;            // whose CUDA kernels are wanted; 0: none are
    u64 kernels_after_ns;        // wall clock: not before this time
};

// Helper thread, twice a second: true when the file says something new to this process.
bool control_poll(struct control_request *request, const char *process_folder);

#endif
