// Loads the marker kernel, and measures with it.
#define _GNU_SOURCE
#include "marker_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "clock.h"

#define MAX_KERNELS 32u  // contexts
#define PATIENCE_NS 300000000u
#define SPAN_NS 5000ull    // of a measured marker
#define DELAY_NS 60000ull  // of the work before it: longer than three launches take

// count: adds one to a counter, and keeps the time. span: keeps when it began and ended, after
// wait_ns at least.
static const char ptx[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry ncclscope_count(.param .u64 place)\n{\n"
    "  .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [place];\n"
    "  mov.u64 %rd2, %globaltimer;\n"
    "  atom.global.add.u64 %rd3, [%rd1], 1;\n"
    "  st.global.u64 [%rd1+8], %rd2;\n"
    "  ret;\n}\n"
    ".visible .entry ncclscope_span(.param .u64 place, .param .u64 wait_ns)\n{\n"
    "  .reg .b64 %rd<6>;\n  .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [place];\n"
    "  ld.param.u64 %rd2, [wait_ns];\n"
    "  mov.u64 %rd3, %globaltimer;\n"
    "LOOP:\n"
    "  mov.u64 %rd4, %globaltimer;\n"
    "  sub.u64 %rd5, %rd4, %rd3;\n"
    "  setp.lt.u64 %p1, %rd5, %rd2;\n"
    "  @%p1 bra LOOP;\n"
    "  st.global.u64 [%rd1], %rd3;\n"
    "  st.global.u64 [%rd1+8], %rd4;\n"
    "  ret;\n}\n";

static struct marker_kernel kernels[MAX_KERNELS];
static u32 kernel_count;

struct marker_kernel *marker_kernel_of(cuda_context context) {
    u32 used = __atomic_load_n(&kernel_count, __ATOMIC_ACQUIRE);
    for (u32 i = used; i-- > 0;)
        if (kernels[i].context == context) return &kernels[i];
    return NULL;
}

static enum timing_reason load(struct marker_kernel *kernel) {
    const size_t bytes = MARKERS_A_CONTEXT * sizeof *kernel->counts;
    cuda_module module;
    if (cuda_missing_for_markers()) return TIMING_NO_FUNCTION;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return TIMING_NO_MARKER;
    if (cuda.host_register(memory, bytes, CUDA_HOST_MAPPED) != 0 ||
        cuda.host_device_pointer(&kernel->device_counts, memory, 0) != 0 ||
        cuda.module_load(&module, ptx) != 0 ||
        cuda.module_kernel(&kernel->count, module, "ncclscope_count") != 0 ||
        cuda.module_kernel(&kernel->span, module, "ncclscope_span") != 0)
        return TIMING_NO_MARKER;  // the memory stays: CUDA may know it
    kernel->counts = memory;
    kernel->used = MARKER_ROUNDS;  // the first are those that measure
    return TIMING_FINE;
}

struct marker_kernel *marker_kernel_load(cuda_context context) {
    static struct marker_kernel none = {.reason = TIMING_NO_ROOM};
    if (kernel_count == MAX_KERNELS) return &none;
    struct marker_kernel *kernel = &kernels[kernel_count];
    kernel->context = context;
    kernel->reason = load(kernel);
    __atomic_store_n(&kernel_count, kernel_count + 1, __ATOMIC_RELEASE);
    return kernel;
}

// ---- the excess of events over a kernel ----
static bool launch_span(const struct marker_kernel *kernel, u32 place, u64 wait_ns,
                        cuda_stream stream) {
    u64 address = kernel->device_counts + place * sizeof *kernel->counts;
    void *arguments[] = {&address, &wait_ns};
    return cuda.launch(kernel->span, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL) == 0;
}

static bool launch_round(const struct marker_kernel *kernel, const struct marker_round *rounds,
                         u32 i, bool busy, cuda_stream stream) {
    return (!busy || launch_span(kernel, i, DELAY_NS, stream)) &&
           cuda.event_record(rounds[i].start, stream) == 0 &&
           launch_span(kernel, i, SPAN_NS, stream) &&
           cuda.event_record(rounds[i].stop, stream) == 0;
}

// Bounded: the GPU may be busy with a kernel that waits for this very host.
static bool wait_for(cuda_event event, u64 deadline_ns) {
    for (;;) {
        int error = cuda.event_query(event);
        if (error != CUDA_NOT_READY) return error == 0;
        if (clock_monotonic_ns() > deadline_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static i64 excess_of(const struct marker_kernel *kernel, const struct marker_round *rounds, u32 i) {
    float ms = 0;
    if (cuda.event_elapsed(&ms, rounds[i].start, rounds[i].stop) != 0) return -1;
    struct marker_count times = marker_kernel_read(&kernel->counts[i]);  // of a span: begin and end
    return (i64)((double)ms * 1e6) - (i64)(times.gpu_ns - times.launches);
}

static int by_value(const void *left, const void *right) {
    i64 a = *(const i64 *)left, b = *(const i64 *)right;
    return a < b ? -1 : a > b;
}
// Sorts, and gives the value at a share of them.
static i64 quantile(i64 *values, u32 count, u32 percent) {
    qsort(values, count, sizeof *values, by_value);
    return values[(count - 1) * percent / 100];
}
static u64 above_zero(i64 value) { return value > 0 ? (u64)value : 0; }

static enum timing_reason run_rounds(const struct marker_kernel *kernel,
                                     const struct marker_round *rounds, cuda_stream stream) {
    u64 deadline_ns = clock_monotonic_ns() + PATIENCE_NS;
    const u32 busy = MARKER_ROUNDS / 2;
    for (u32 i = 0; i < MARKER_ROUNDS; i++) {
        if (!launch_round(kernel, rounds, i, i < busy, stream)) return TIMING_CUDA_ERROR;
        bool wait = i >= busy - 1;  // the stream is idle when the next one comes
        if (wait && !wait_for(rounds[i].stop, deadline_ns)) return TIMING_GPU_BUSY;
    }
    return TIMING_FINE;
}

struct marker_excess marker_kernel_measure_excess(struct marker_kernel *kernel,
                                                  const struct marker_round *rounds) {
    struct marker_excess excess = {.reason = kernel->reason};
    cuda_stream stream;
    const u32 half = MARKER_ROUNDS / 2;
    if (excess.reason != TIMING_FINE) return excess;
    if (cuda.stream_create(&stream, CUDA_STREAM_NON_BLOCKING) != 0) {
        excess.reason = TIMING_CUDA_ERROR;
        return excess;
    }
    // The first launch of a kernel loads it.
    launch_span(kernel, 0, 0, stream);
    excess.reason = run_rounds(kernel, rounds, stream);
    if (excess.reason != TIMING_FINE) return excess;
    i64 values[MARKER_ROUNDS];
    for (u32 i = 0; i < MARKER_ROUNDS; i++) {
        values[i] = excess_of(kernel, rounds, i);
        if (values[i] < -1000000000) excess.reason = TIMING_CUDA_ERROR;
    }
    excess.samples = MARKER_ROUNDS;
    excess.busy_ns = (u32)above_zero(quantile(values, half, 50));
    excess.idle_ns = (u32)above_zero(quantile(values + half, half, 50));
    excess.median_ns = above_zero(quantile(values, MARKER_ROUNDS, 50));
    excess.spread_ns =
        above_zero(quantile(values, MARKER_ROUNDS, 95) - quantile(values, MARKER_ROUNDS, 5)) / 2;
    return excess;
}
