// The driver below the simulated runtime, as far as bench's reference kernel and the recorder's
// sampling need it.
//
// As with the real one: an event that is queried or made while a thread captures in global mode, or
// this thread does in thread-local mode, is an error and invalidates the capture, unless the
// calling thread's own mode is relaxed. Events and streams belong to a context (contexts.h); one of
// a destroyed context gives 709.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "cuda_api.h"
#include "driver.h"
#include "faults.h"
#include "settings.h"
#include "stream.h"

enum {
    REFERENCE_NS = 20000,
    EVENT_NS = 2000,  // what an event takes on the GPU: its excess over the kernel behind it
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    CONTEXT_DESTROYED = 709,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_IS_INVALIDATED = 901,
    MODE_GLOBAL = 0,
};

// ---- capture modes ----
static _Thread_local int thread_mode = MODE_GLOBAL;

static int exchange_mode(int *mode) {
    int error = fault_of_call("cuThreadExchangeStreamCaptureMode"), before = thread_mode;
    if (error) return error;
    thread_mode = *mode;
    *mode = before;
    return 0;
}

// The error of a call that captures forbid; 0: none does.
static int forbidden(void) {
    return stream_invalidate_captures(thread_mode) ? CAPTURE_UNSUPPORTED : 0;
}

// The error of what cannot be added to an invalidated capture any more.
static int invalidated(cudaStream_t stream) {
    bool is = stream_capture_status(stream_of(stream)) == CAPTURE_INVALIDATED;
    return is ? CAPTURE_IS_INVALIDATED : 0;
}

static int is_capturing(cudaStream_t stream, int *status) {
    int error = fault_of_call("cuStreamIsCapturing");
    *status = 0;
    if (error == FAULT_CAPTURING) *status = 1;
    if (error) return error == FAULT_CAPTURING ? 0 : error;
    *status = stream_capture_status(stream_of(stream));
    return 0;
}

static int capture_info(cudaStream_t stream, int *status, uint64_t *id, void *graph,
                        void *dependencies, void *count) {
    (void)graph, (void)dependencies, (void)count;
    int error = fault_of_call("cuStreamGetCaptureInfo_v2");
    *status = error ? 0 : stream_capture_status(stream_of(stream));
    if (*status == CAPTURE_ACTIVE && id) *id = stream_capture_id(stream_of(stream));
    return error;
}

// ---- events ----
struct driver_event {
    cudaEvent_t event;
    struct context *context;
    uint64_t generation;
    bool recorded, in_graph;
};

static int event_problem(const struct driver_event *event) {
    if (!event) return INVALID_VALUE;
    return event->generation != event->context->generation ? CONTEXT_DESTROYED : 0;
}

static int create_event(struct driver_event **event, unsigned flags) {
    (void)flags;
    int error = fault_of_call("cuEventCreate");
    if (!error) error = forbidden();
    if (!error && !context_current()) error = INVALID_CONTEXT;
    if (error) return error;
    *event = calloc(1, sizeof **event);
    (*event)->context = context_current();
    (*event)->generation = (*event)->context->generation;
    return (int)cudaEventCreate(&(*event)->event);
}

static int64_t run_delay(struct task *task, uint64_t number, int64_t start_ns) {
    (void)task, (void)number;
    return start_ns + EVENT_NS;
}
static void free_task(struct task *task) { free(task); }

static int record_event(struct driver_event *event, cudaStream_t stream) {
    int error = fault_of_call("cuEventRecord");
    if (!error) error = event_problem(event);
    if (!error) error = invalidated(stream);
    if (error) return error;
    struct stream *queue = stream_of(stream);
    event->in_graph = stream_captures(queue);
    event->recorded = true;
    error = (int)cudaEventRecord(event->event, stream);
    struct task *delay = calloc(1, sizeof *delay);
    *delay = (struct task){.run = run_delay, .release = free_task, .holders = 1};
    stream_add(queue, delay);
    return error;
}

static int query_event(struct driver_event *event) {
    int error = fault_of_call("cuEventQuery");
    if (!error) error = forbidden();
    if (!error) error = event_problem(event);
    if (error) return error;
    if (event->in_graph) return INVALID_VALUE;
    return event->recorded ? (int)cudaEventQuery(event->event) : 0;
}

static int elapsed_time(float *ms, struct driver_event *start, struct driver_event *stop) {
    int error = fault_of_call("cuEventElapsedTime");
    if (!error) error = event_problem(start);
    if (!error) error = event_problem(stop);
    if (error) return error;
    if (start->in_graph || stop->in_graph || !start->recorded || !stop->recorded)
        return INVALID_VALUE;
    return (int)cudaEventElapsedTime(ms, start->event, stop->event);
}

static int create_stream(cudaStream_t *stream, unsigned flags) {
    int error = fault_of_call("cuStreamCreate");
    return error ? error : (int)cudaStreamCreateWithFlags(stream, flags);
}

// ---- memory: the GPU's addresses are the host's ----
static int register_memory(void *memory, size_t bytes, unsigned flags) {
    (void)memory, (void)bytes, (void)flags;
    return fault_of_call("cuMemHostRegister_v2");
}
static int device_pointer(uint64_t *device, void *memory, unsigned flags) {
    (void)flags;
    *device = (uint64_t)(uintptr_t)memory;
    return fault_of_call("cuMemHostGetDevicePointer_v2");
}

// Memory of a context that is gone cannot be copied. Of other memory nothing is known.
enum { MAX_ALLOCATIONS = 64 };
static struct allocation {
    uint64_t address;
    struct context *context;
    uint64_t generation;
} allocations[MAX_ALLOCATIONS];
static _Atomic int allocation_count;

static int allocate_memory(uint64_t *device, size_t bytes) {
    int error = fault_of_call("cuMemAlloc_v2");
    if (!error) error = forbidden();
    if (!error && !context_current()) error = INVALID_CONTEXT;
    if (error) return error;
    struct context *context = context_current();
    *device = (uint64_t)(uintptr_t)malloc(bytes);
    memset((void *)(uintptr_t)*device, 0xA5, bytes);
    int place = allocation_count++;
    if (place < MAX_ALLOCATIONS)
        allocations[place] = (struct allocation){*device, context, context->generation};
    return 0;
}

static bool is_gone(uint64_t address) {
    for (int i = 0; i < allocation_count && i < MAX_ALLOCATIONS; i++)
        if (allocations[i].address == address)
            return allocations[i].generation != allocations[i].context->generation;
    return false;
}

struct copy {
    struct task task;
    void *to;
    const void *from;
    size_t bytes;
};
static int64_t run_copy(struct task *task, uint64_t number, int64_t start_ns) {
    (void)number;
    struct copy *copy = (struct copy *)task;
    // Word by word, as a GPU's copy engine does: whoever reads meanwhile sees whole words.
    uint64_t *to = copy->to;
    const uint64_t *from = copy->from;
    for (size_t i = 0; i < copy->bytes / sizeof *to; i++)
        __atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    return start_ns + 1000;
}
static int add_copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    struct copy *copy = calloc(1, sizeof *copy);
    copy->task = (struct task){.run = run_copy, .release = free_task, .holders = 1};
    copy->to = to;
    copy->from = from;
    copy->bytes = bytes;
    stream_add(stream_of(stream), &copy->task);
    return 0;
}
static int copy_to_gpu(uint64_t to, const void *from, size_t bytes, cudaStream_t stream) {
    int error = fault_of_call("cuMemcpyHtoDAsync_v2");
    if (!error && is_gone(to)) error = INVALID_VALUE;
    return error ? error : add_copy((void *)(uintptr_t)to, from, bytes, stream);
}
static int copy_to_host(void *to, uint64_t from, size_t bytes, cudaStream_t stream) {
    int error = fault_of_call("cuMemcpyDtoHAsync_v2");
    if (!error && is_gone(from)) error = INVALID_VALUE;
    return error ? error : add_copy(to, (const void *)(uintptr_t)from, bytes, stream);
}
static int query_stream(cudaStream_t stream) {
    int error = fault_of_call("cuStreamQuery");
    return error ? error : (int)cudaStreamQuery(stream);
}

// ---- kernels, known by their names ----
enum kernel { NO_KERNEL, REFERENCE, COUNT, COUNT_IN_GPU, SPAN };
enum { PUBLISHED_EVERY_NS = 1000000 };
static char kernels[SPAN + 1];  // a handle is the address of its number's place

struct marker {
    struct task task;
    enum kernel kernel;
    uint64_t *place, *published, wait_ns;
};

static void count_in_gpu(const struct marker *marker, uint64_t now_ns) {
    uint64_t count = __atomic_add_fetch(&marker->place[0], 1, __ATOMIC_RELAXED);
    uint64_t last_ns = __atomic_load_n(&marker->place[1], __ATOMIC_RELAXED);
    if (now_ns - last_ns < PUBLISHED_EVERY_NS) return;
    __atomic_store_n(&marker->place[1], now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&marker->published[0], count, __ATOMIC_RELAXED);
    __atomic_store_n(&marker->published[1], now_ns, __ATOMIC_RELAXED);
}

static int64_t run_marker(struct task *task, uint64_t number, int64_t start_ns) {
    (void)number;
    struct marker *marker = (struct marker *)task;
    int64_t end_ns = start_ns + 1000;
    if (marker->kernel == COUNT) {
        __atomic_fetch_add(&marker->place[0], 1, __ATOMIC_RELAXED);
        __atomic_store_n(&marker->place[1], (uint64_t)start_ns, __ATOMIC_RELAXED);
    } else if (marker->kernel == COUNT_IN_GPU) count_in_gpu(marker, (uint64_t)start_ns);
    else {
        end_ns = start_ns + (int64_t)marker->wait_ns;
        sim_sleep_until(end_ns);
        __atomic_store_n(&marker->place[0], (uint64_t)start_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&marker->place[1], (uint64_t)end_ns, __ATOMIC_RELAXED);
    }
    return end_ns;
}

static int launch_marker(enum kernel kernel, cudaStream_t stream, void **arguments) {
    struct marker *marker = calloc(1, sizeof *marker);
    marker->task = (struct task){.run = run_marker, .release = free_task, .holders = 1};
    marker->kernel = kernel;
    marker->place = *(uint64_t **)arguments[0];
    if (kernel == SPAN) marker->wait_ns = *(uint64_t *)arguments[1];
    if (kernel == COUNT_IN_GPU) marker->published = *(uint64_t **)arguments[1];
    stream_add(stream_of(stream), &marker->task);
    return 0;
}

// The reference kernel's one argument is where it leaves its own time.
static void take_time(void *place) {
    int64_t start_ns = sim_now_ns();
    sim_sleep_until(start_ns + REFERENCE_NS);
    *(int64_t *)place = sim_now_ns() - start_ns;
}

static int load_module(void **module, const void *image) {
    static char loaded;
    int error = fault_of_call("cuModuleLoadData");
    *module = &loaded;
    if (error) return error;
    return strstr(image, ".entry reference(") || strstr(image, ".entry ncclscope_count(")
               ? 0
               : cudaErrorInvalidValue;
}

static int find_kernel(void **kernel, void *module, const char *name) {
    static const char *const names[] = {[REFERENCE] = "reference",
                                        [COUNT] = "ncclscope_count",
                                        [COUNT_IN_GPU] = "ncclscope_count_in_gpu",
                                        [SPAN] = "ncclscope_span"};
    int error = fault_of_call("cuModuleGetFunction");
    (void)module;
    for (int i = REFERENCE; !error && i <= SPAN; i++)
        if (strcmp(name, names[i]) == 0) {
            *kernel = &kernels[i];
            return 0;
        }
    return error ? error : cudaErrorInvalidValue;
}

static int launch_kernel(void *kernel, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                         unsigned threads_x, unsigned threads_y, unsigned threads_z,
                         unsigned shared_bytes, cudaStream_t stream, void **arguments,
                         void **extra) {
    (void)shared_bytes, (void)extra;
    int error = fault_of_call("cuLaunchKernel");
    if (!error) error = invalidated(stream);
    if (error) return error;
    if (!kernel || !arguments || !arguments[0]) return cudaErrorInvalidValue;
    if (!blocks_x || !blocks_y || !blocks_z) return cudaErrorInvalidValue;
    if (!threads_x || !threads_y || !threads_z) return cudaErrorInvalidValue;
    enum kernel number = (enum kernel)((char *)kernel - kernels);
    if (number != REFERENCE) return launch_marker(number, stream, arguments);
    return cudaLaunchHostFunc(stream, take_time, *(void **)arguments[0]);
}

// ---- identity ----
// Known only where GPUs are in MIG mode: then each process has an instance of the first GPU, with a
// uuid of its own.
static int get_uuid(void *uuid, int device) {
    const char *rank = getenv("RANK");
    uint8_t instance[16] = {0x51, 0x30, 0x9A, 0x7E, [14] = (uint8_t)device};
    instance[15] = (uint8_t)(1 + (rank ? atoi(rank) : 0));
    memcpy(uuid, instance, sizeof instance);
    return fault_of_call("cuDeviceGetUuid_v2");
}
static int get_bus_id(char *id, int size, int device) {
    int error = fault_of_call("cuDeviceGetPCIBusId");
    return error ? error : (int)cudaDeviceGetPCIBusId(id, size, device);
}
static bool is_known(const char *name) {
    bool is_uuid = strcmp(name, "cuDeviceGetUuid_v2") == 0;
    return !fault_is_missing(name) && (settings()->mig || !is_uuid);
}

// ---- finding functions ----
void *ncclscopeSimulatedDriver(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuCtxGetCurrent", (void *)context_get_current},
        {"cuThreadExchangeStreamCaptureMode", (void *)exchange_mode},
        {"cuStreamIsCapturing", (void *)is_capturing},
        {"cuStreamGetCaptureInfo_v2", (void *)capture_info},
        {"cuStreamCreate", (void *)create_stream},
        {"cuEventCreate", (void *)create_event},
        {"cuEventRecord", (void *)record_event},
        {"cuEventQuery", (void *)query_event},
        {"cuEventElapsedTime", (void *)elapsed_time},
        {"cuMemHostRegister_v2", (void *)register_memory},
        {"cuMemHostGetDevicePointer_v2", (void *)device_pointer},
        {"cuMemAlloc_v2", (void *)allocate_memory},
        {"cuMemcpyHtoDAsync_v2", (void *)copy_to_gpu},
        {"cuMemcpyDtoHAsync_v2", (void *)copy_to_host},
        {"cuStreamQuery", (void *)query_stream},
        {"cuCtxGetDevice", (void *)context_get_device},
        {"cuDevicePrimaryCtxGetState", (void *)context_primary_state},
        {"cuDevicePrimaryCtxRetain", (void *)context_retain_primary},
        {"cuDevicePrimaryCtxRelease_v2", (void *)context_release_primary},
        {"cuCtxPushCurrent_v2", (void *)context_push},
        {"cuCtxPopCurrent_v2", (void *)context_pop},
        {"cuDeviceGetUuid_v2", (void *)get_uuid},
        {"cuDeviceGetPCIBusId", (void *)get_bus_id},
        {"cuCtxCreate_v2", (void *)context_create},
        {"cuCtxDestroy_v2", (void *)context_destroy},
        {"cuModuleLoadData", (void *)load_module},
        {"cuModuleGetFunction", (void *)find_kernel},
        {"cuLaunchKernel", (void *)launch_kernel},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0 && is_known(name)) return functions[i].function;
    return NULL;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, int *status) {
    (void)version, (void)flags;
    *status = 0;
    *function = ncclscopeSimulatedDriver(name);
    return *function ? cudaSuccess : cudaErrorInvalidValue;
}
