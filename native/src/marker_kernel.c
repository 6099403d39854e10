// Loads the marker kernel, and measures with it.
#define _GNU_SOURCE
#include "marker_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "clock.h"

#define MAX_KERNELS 32u  // contexts
// Waiting is done in the thread that makes a communicator: the helper thread cannot, as it must not
// touch a context that may be gone. A GPU that has not begun after the first time is taken by
// something that lasts; one that takes turns between programs comes to each round after some ms.
#define FIRST_PATIENCE_NS 100000000u
#define PATIENCE_NS 300000000u
#define SPAN_NS 5000ull    // of a measured marker
#define DELAY_NS 60000ull  // of the work before it: longer than three launches take

// count: adds one to a counter, and keeps the time. count_in_gpu: adds one to a counter in the
// GPU's memory, behind which is the time of the last publication; after a millisecond it publishes
// count and time to host memory. Its time is that of a load. Two instances of a graph may run it at
// once: then the smaller count may be published last. span: keeps when it began and ended, after
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
    ".visible .entry ncclscope_count_in_gpu(.param .u64 place, .param .u64 published)\n{\n"
    "  .reg .b64 %rd<7>;\n  .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [place];\n"
    "  red.global.add.u64 [%rd1], 1;\n"
    "  ld.volatile.global.u64 %rd2, [%rd1+8];\n"
    "  mov.u64 %rd3, %globaltimer;\n"
    "  sub.u64 %rd4, %rd3, %rd2;\n"
    "  setp.lt.u64 %p1, %rd4, 1000000;\n"
    "  @%p1 bra DONE;\n"
    "  ld.param.u64 %rd5, [published];\n"
    "  ld.volatile.global.u64 %rd6, [%rd1];\n"
    "  st.volatile.global.u64 [%rd1+8], %rd3;\n"
    "  st.volatile.global.u64 [%rd5], %rd6;\n"
    "  st.volatile.global.u64 [%rd5+8], %rd3;\n"
    "DONE:\n"
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

// The device of a context that is its primary one; -1: it is not, or nothing is known.
static int device_of_primary(cuda_context context) {
    cuda_context primary = NULL;
    unsigned flags = 0;
    int device = -1, active = 0;
    if (cuda.context_device(&device) != 0) return -1;
    // Retaining one that is not active would make it.
    if (cuda.primary_state(device, &flags, &active) != 0 || !active) return -1;
    if (cuda.primary_retain(&primary, device) != 0) return -1;
    cuda.primary_release(device);
    return primary == context ? device : -1;
}

// Zeros on the GPU, behind a nonce by which they are known again: a context that was made anew may
// have something else at their address. They are ready once the stream has got behind the copy.
static void prepare_gpu_counts(struct marker_kernel *kernel, cuda_module module) {
    const size_t bytes = MARKERS_A_CONTEXT * sizeof *kernel->counts;
    if (cuda_missing_for_memory() ||
        cuda.module_kernel(&kernel->count_in_gpu, module, "ncclscope_count_in_gpu") != 0 ||
        cuda.memory_allocate(&kernel->gpu_counts, bytes) != 0) {
        kernel->gpu_counts = 0;
        return;
    }
    kernel->device = device_of_primary(kernel->context);
    kernel->nonce = clock_realtime_ns() ^ kernel->gpu_counts << 20 ^ 0x9E3779B97F4A7C15u;
    kernel->last[0].launches = kernel->nonce;
    if (cuda.copy_to_gpu(kernel->gpu_counts, kernel->last, bytes, kernel->stream) != 0)
        kernel->gpu_counts = 0;
}

static enum timing_reason load(struct marker_kernel *kernel) {
    const size_t bytes = MARKERS_A_CONTEXT * sizeof *kernel->counts;
    cuda_module module;
    if (cuda_missing_for_markers()) return TIMING_NO_FUNCTION;
    struct marker_count *memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return TIMING_NO_MARKER;
    if (cuda.host_register(memory, 2 * bytes, CUDA_HOST_MAPPED) != 0 ||
        cuda.host_device_pointer(&kernel->device_counts, memory, 0) != 0 ||
        cuda.module_load(&module, ptx) != 0 ||
        cuda.module_kernel(&kernel->count, module, "ncclscope_count") != 0 ||
        cuda.module_kernel(&kernel->span, module, "ncclscope_span") != 0)
        return TIMING_NO_MARKER;  // the memory stays: CUDA may know it
    kernel->counts = memory;
    kernel->last = memory + MARKERS_A_CONTEXT;
    kernel->used = MARKER_ROUNDS;  // the first are those that measure
    if (cuda.stream_create(&kernel->stream, CUDA_STREAM_NON_BLOCKING) != 0) kernel->stream = NULL;
    else prepare_gpu_counts(kernel, module);
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

u32 marker_kernel_list(struct marker_kernel **list) {
    *list = kernels;
    return __atomic_load_n(&kernel_count, __ATOMIC_ACQUIRE);
}

// ---- counting ----
bool marker_kernel_launch(const struct marker_kernel *kernel, u32 number, cuda_stream stream) {
    u64 published = kernel->device_counts + number * sizeof *kernel->counts;
    u64 place = kernel->gpu_counts + number * sizeof *kernel->counts;
    void *in_host[] = {&published}, *in_gpu[] = {&place, &published};
    bool gpu = __atomic_load_n(&kernel->in_gpu, __ATOMIC_ACQUIRE);
    return cuda.launch(gpu ? kernel->count_in_gpu : kernel->count, 1, 1, 1, 1, 1, 1, 0, stream,
                       gpu ? in_gpu : in_host, NULL) == 0;
}

struct marker_count marker_kernel_count(const struct marker_kernel *kernel, u32 number) {
    if (!number) return (struct marker_count){0};
    struct marker_count count = marker_kernel_read(&kernel->counts[number]);
    if (!__atomic_load_n(&kernel->has_last, __ATOMIC_ACQUIRE)) return count;
    u64 last = __atomic_load_n(&kernel->last[number].launches, __ATOMIC_RELAXED);
    if (last > count.launches) count.launches = last;
    return count;
}

static bool wait_for_copy(const struct marker_kernel *kernel, u64 patience_ns) {
    u64 deadline_ns = clock_monotonic_ns() + patience_ns;
    for (;;) {
        bool is_last = clock_monotonic_ns() > deadline_ns;  // however long this thread had to wait
        int error = cuda.stream_query(kernel->stream);
        if (error != CUDA_NOT_READY) return error == 0;
        if (is_last) return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

// An earlier copy that took longer than its patience may still be under way and write the nonce
// again. It is on the same stream: once the stream is idle, both have arrived.
static bool copy_counts(struct marker_kernel *kernel, u64 patience_ns) {
    u32 used = __atomic_load_n(&kernel->used, __ATOMIC_RELAXED);
    if (used > MARKERS_A_CONTEXT) used = MARKERS_A_CONTEXT;
    __atomic_store_n(&kernel->last[0].launches, 0, __ATOMIC_RELAXED);
    return cuda.copy_to_host(kernel->last, kernel->gpu_counts, used * sizeof *kernel->last,
                             kernel->stream) == 0 &&
           wait_for_copy(kernel, patience_ns) &&
           __atomic_load_n(&kernel->last[0].launches, __ATOMIC_ACQUIRE) == kernel->nonce;
}

// Makes the context current for a moment, where it is its device's primary one and alive: nothing
// can be asked of another one that may be gone.
static bool copy_in_context(struct marker_kernel *kernel, u64 patience_ns) {
    cuda_context current = NULL;
    unsigned flags = 0;
    int active = 0;
    if (cuda.context_current(&current) != 0) return false;
    if (current == kernel->context) return copy_counts(kernel, patience_ns);
    if (kernel->device < 0) return false;
    if (cuda.primary_state(kernel->device, &flags, &active) != 0 || !active) return false;
    if (cuda.context_push(kernel->context) != 0) return false;
    bool copied = copy_counts(kernel, patience_ns);
    cuda.context_pop(&current);
    return copied;
}

bool marker_kernel_read_last(struct marker_kernel *kernel, u64 patience_ns) {
    if (!__atomic_load_n(&kernel->in_gpu, __ATOMIC_ACQUIRE)) return true;
    if (__atomic_exchange_n(&kernel->reading, 1, __ATOMIC_ACQUIRE)) return false;
    int mode = cuda_enter();
    bool copied = copy_in_context(kernel, patience_ns);
    cuda_leave(mode);
    __atomic_store_n(&kernel->has_last, copied, __ATOMIC_RELEASE);
    __atomic_store_n(&kernel->reading, 0, __ATOMIC_RELEASE);
    return copied;
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
    u64 now_ns = clock_monotonic_ns(), deadline_ns = now_ns + PATIENCE_NS;
    const u32 busy = MARKER_ROUNDS / 2;
    for (u32 i = 0; i < MARKER_ROUNDS; i++) {
        if (!launch_round(kernel, rounds, i, i < busy, stream)) return TIMING_CUDA_ERROR;
        if (i == 0 && !wait_for(rounds[0].start, now_ns + FIRST_PATIENCE_NS))
            return TIMING_GPU_BUSY;
        bool wait = i >= busy - 1;  // the stream is idle when the next one comes
        if (wait && !wait_for(rounds[i].stop, deadline_ns)) return TIMING_GPU_BUSY;
    }
    return TIMING_FINE;
}

struct marker_excess marker_kernel_measure_excess(struct marker_kernel *kernel,
                                                  const struct marker_round *rounds) {
    struct marker_excess excess = {.reason = kernel->reason};
    const u32 half = MARKER_ROUNDS / 2;
    if (excess.reason != TIMING_FINE) return excess;
    if (!kernel->stream) {
        excess.reason = TIMING_CUDA_ERROR;
        return excess;
    }
    // The first launch of a kernel loads it.
    launch_span(kernel, 0, 0, kernel->stream);
    excess.reason = run_rounds(kernel, rounds, kernel->stream);
    if (excess.reason != TIMING_FINE) return excess;
    if (kernel->gpu_counts) __atomic_store_n(&kernel->in_gpu, 1, __ATOMIC_RELEASE);
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
