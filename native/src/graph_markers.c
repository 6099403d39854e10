// Captures, and their markers.
#include "graph_markers.h"

#include "clock.h"
#include "comm.h"
#include "config.h"
#include "marker_kernel.h"
#include "meta.h"
#include "sink.h"

#define MAX_CAPTURES 8192u  // a power of two
#define PROBES 64u
#define WRITES_A_SECOND 512u  // of the metadata's ring

static struct capture {
    u64 id;     // 0: free
    u32 ready;  // the fields below are set
    u32 launches;
    const struct marker_kernel *kernel;  // NULL: not counted
    u32 marker;
    u32 exact;  // nothing can replay it any more, and the last count was read
    u16 comm;
    u8 reason;
    // ---- the helper's ----
    bool written;
    u64 written_replays;
    u32 written_launches;
    bool written_exact;
} captures[MAX_CAPTURES];

// The entry of a capture; `is_new` where this call made it. NULL: no room.
static struct capture *entry_of(u64 id, bool *is_new) {
    u32 hash = (u32)(id * 0x9E3779B97F4A7C15u >> 40);
    for (u32 probe = 0; probe < PROBES; probe++) {
        struct capture *capture = &captures[(hash + probe) % MAX_CAPTURES];
        u64 expected = 0;
        *is_new = __atomic_compare_exchange_n(&capture->id, &expected, id, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE);
        if (*is_new || expected == id) return capture;
    }
    return NULL;
}

static enum timing_reason put_marker(struct capture *capture, cuda_context context,
                                     cuda_stream stream) {
    if (!config.graph_markers) return TIMING_SWITCHED_OFF;
    struct marker_kernel *kernel = marker_kernel_of(context);
    if (!kernel) return TIMING_UNKNOWN_CONTEXT;
    if (kernel->reason != TIMING_FINE) return kernel->reason;
    u32 number = __atomic_fetch_add(&kernel->used, 1, __ATOMIC_RELAXED);
    if (number >= MARKERS_A_CONTEXT) return TIMING_NO_ROOM;
    // In the stream. As a branch beside
    // the collectives (cuGraphAddKernelNode) nothing would wait for it, but such a graph is no
    // chain any more: CUDA then took 1.3 times as long for 20 AllReduces of 64 bytes.
    if (!marker_kernel_launch(kernel, number, stream)) return TIMING_CUDA_ERROR;
    capture->kernel = kernel;
    capture->marker = number;
    if (!__atomic_load_n(&kernel->in_gpu, __ATOMIC_ACQUIRE)) capture->exact = 1;
    return TIMING_FINE;
}

u64 graph_markers_note_launch(cuda_context context, cuda_stream stream, u32 comm) {
    int status = 0;
    u64 id = 0;
    bool is_new = false;
    if (!cuda.capture_info || cuda.capture_info(stream, &status, &id, NULL, NULL, NULL) != 0 || !id)
        return 0;
    struct capture *capture = entry_of(id, &is_new);
    if (!capture) return id;
    if (is_new) {
        capture->comm = (u16)comm;
        capture->reason = (u8)put_marker(capture, context, stream);
        __atomic_store_n(&capture->ready, 1, __ATOMIC_RELEASE);
    }
    __atomic_fetch_add(&capture->launches, 1, __ATOMIC_RELAXED);
    return id;
}

// ---- the last counts ----
static bool is_of(const struct capture *capture, const struct marker_kernel *kernel) {
    return __atomic_load_n(&capture->ready, __ATOMIC_ACQUIRE) && capture->kernel == kernel &&
           !__atomic_load_n(&capture->exact, __ATOMIC_RELAXED);
}

// A graph that holds calls of a communicator keeps it from being destroyed, so once that is gone
// nothing replays the graph.
static bool is_over(const struct capture *capture, bool last) {
    return last || (capture->comm < NO_COMM && !comm_is_open(capture->comm));
}

static void close_captures_of(struct marker_kernel *kernel, bool last, u64 patience_ns) {
    bool wanted = false;
    for (u32 i = 0; i < MAX_CAPTURES && !wanted; i++)
        wanted = is_of(&captures[i], kernel) && is_over(&captures[i], last);
    if (!wanted || !marker_kernel_read_last(kernel, patience_ns)) return;
    for (u32 i = 0; i < MAX_CAPTURES; i++)
        if (is_of(&captures[i], kernel) && is_over(&captures[i], last))
            __atomic_store_n(&captures[i].exact, 1, __ATOMIC_RELEASE);
}

void graph_markers_close(bool last, u64 patience_ns) {
    struct marker_kernel *kernels;
    u32 count = marker_kernel_list(&kernels);
    for (u32 i = 0; i < count; i++)
        if (__atomic_load_n(&kernels[i].used, __ATOMIC_RELAXED) > MARKER_ROUNDS)
            close_captures_of(&kernels[i], last, patience_ns);
}

// ---- on record ----
static bool write_one(struct capture *capture) {
    bool exact = __atomic_load_n(&capture->exact, __ATOMIC_ACQUIRE);
    struct marker_count count = {0};
    if (capture->kernel) count = marker_kernel_count(capture->kernel, capture->marker);
    u64 replays = count.launches;
    u32 launches = __atomic_load_n(&capture->launches, __ATOMIC_RELAXED);
    if (replays < capture->written_replays) replays = capture->written_replays;
    if (capture->written && replays == capture->written_replays &&
        launches == capture->written_launches && exact == capture->written_exact)
        return false;
    union slot slot = {0};
    slot.graph_replays.capture = __atomic_load_n(&capture->id, __ATOMIC_RELAXED);
    slot.graph_replays.replays = replays;
    slot.graph_replays.t0 = clock_ticks();
    slot.graph_replays.gpu_last_ns = count.gpu_ns;
    slot.graph_replays.marker = capture->marker;
    slot.graph_replays.comm = capture->comm;
    slot.graph_replays.reason = capture->reason;
    slot.graph_replays.launches = launches;
    slot.graph_replays.at_least = capture->kernel && !exact;
    if (!meta_append(KIND_graph_replays, &slot)) return false;
    capture->written = true;
    capture->written_replays = replays;
    capture->written_launches = launches;
    capture->written_exact = exact;
    return true;
}

void graph_markers_write(bool everything) {
    static u32 next, folder_number;
    u32 written = 0;
    if (folder_number != sink_folders()) {  // the metadata was begun anew
        for (u32 i = 0; i < MAX_CAPTURES; i++) captures[i].written = false;
        folder_number = sink_folders();
    }
    for (u32 i = 0; i < MAX_CAPTURES && (everything || written < WRITES_A_SECOND); i++) {
        struct capture *capture = &captures[next++ % MAX_CAPTURES];
        if (__atomic_load_n(&capture->ready, __ATOMIC_ACQUIRE)) written += write_one(capture);
    }
}
