// A small kernel of ours, in PTX that the driver compiles: it counts replays of graphs, and shows
// how much longer than a kernel the time between two events around it is.
//
// The counters lie in host memory of our own, registered with CUDA by context. CUDA does not free
// such memory when a context is destroyed, so the helper thread may read it at any time.
#ifndef NCCLSCOPE_MARKER_KERNEL_H
#define NCCLSCOPE_MARKER_KERNEL_H

#include "cuda_driver.h"

#define MARKER_ROUNDS 32u  // half of them behind other work, half on an idle stream
#define MARKERS_A_CONTEXT 4096u

struct marker_count {  // written by the GPU
    u64 launches;      // how often the marker ran
    u64 gpu_ns;        // %globaltimer when it last began
};

// What the GPU has written so far; zeros for NULL.
static inline struct marker_count marker_kernel_read(const struct marker_count *count) {
    if (!count) return (struct marker_count){0};
    return (struct marker_count){__atomic_load_n(&count->launches, __ATOMIC_RELAXED),
                                 __atomic_load_n(&count->gpu_ns, __ATOMIC_RELAXED)};
}

struct marker_kernel {
    cuda_context context;
    enum timing_reason reason;  // TIMING_FINE: it can be launched
    cuda_kernel count, span;
    struct marker_count *counts;  // MARKERS_A_CONTEXT of them
    u64 device_counts;            // where the GPU finds them
    u32 used;
};

// At init, under its lock, with that context current: loads the kernel once. Never NULL.
struct marker_kernel *marker_kernel_load(cuda_context context);
// The one of a context; NULL: none was loaded.
struct marker_kernel *marker_kernel_of(cuda_context context);

struct marker_round {
    cuda_event start, stop;
};
struct marker_excess {
    enum timing_reason reason;
    u32 samples;
    u64 median_ns, spread_ns;
    u32 busy_ns, idle_ns;
};
// Launches markers between events on a stream of its own and waits for them, for a bounded time.
struct marker_excess marker_kernel_measure_excess(struct marker_kernel *kernel,
                                                  const struct marker_round *rounds);

#endif
