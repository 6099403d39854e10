// A small kernel of ours, in PTX that the driver compiles: it counts replays of graphs, and shows
// how much longer than a kernel the time between two events around it is.
//
// Replays are counted in the GPU's memory, because the way to host memory takes 4 µs of each. Once
// a millisecond a marker writes its count to host memory. That memory is our own and only
// registered with CUDA, which does not free it when a context is destroyed: the helper thread may
// read it at any time. It is behind by the replays of the last millisecond, until
// marker_kernel_read_last copies the GPU's counts. Where the GPU's memory cannot be had, markers
// count in host memory.
#ifndef NCCLSCOPE_MARKER_KERNEL_H
#define NCCLSCOPE_MARKER_KERNEL_H

#include "cuda_driver.h"

#define MARKER_ROUNDS 32u  // half of them behind other work, half on an idle stream
#define MARKERS_A_CONTEXT 4096u

struct marker_count {  // written by the GPU
    u64 launches;      // how often the marker ran
    u64 gpu_ns;        // %globaltimer when it last began
};

// What the GPU has written so far.
static inline struct marker_count marker_kernel_read(const struct marker_count *count) {
    return (struct marker_count){__atomic_load_n(&count->launches, __ATOMIC_RELAXED),
                                 __atomic_load_n(&count->gpu_ns, __ATOMIC_RELAXED)};
}

struct marker_kernel {
    cuda_context context;
    enum timing_reason reason;  // TIMING_FINE: it can be launched
    cuda_kernel count, count_in_gpu, span;
    struct marker_count *counts;  // MARKERS_A_CONTEXT of them
    u64 device_counts;            // where the GPU finds them
    u32 used;
    // ---- counts in the GPU's memory ----
    u64 gpu_counts;  // 0: none
    u32 in_gpu;      // they are zero and ready to count in
    cuda_stream stream;
    int device;                 // whose primary context this is; -1: it is another one
    u64 nonce;                  // in their first place, which no marker uses
    struct marker_count *last;  // copies of them
    u32 reading, has_last;
};

// What a marker has counted, as far as it is known; zeros for number 0.
struct marker_count marker_kernel_count(const struct marker_kernel *kernel, u32 number);
// Between cuda_enter and cuda_leave: puts the marker of this number into the stream.
bool marker_kernel_launch(const struct marker_kernel *kernel, u32 number, cuda_stream stream);
// Copies the GPU's counts on a stream of its own, and looks for that long whether it is done.
// False: the counts in host memory are all there is, and may be too low.
bool marker_kernel_read_last(struct marker_kernel *kernel, u64 patience_ns);
// All that were loaded.
u32 marker_kernel_list(struct marker_kernel **list);

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
