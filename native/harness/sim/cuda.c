// CUDA's runtime functions over simulated streams.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "driver.h"
#include "runtime.h"
#include "settings.h"
#include "stream.h"

enum { ALIGNMENT = 512, NAME_BYTES = 256, MEMORY_SIZE_OFFSET = 288 };

static _Thread_local cudaError_t last_error;
static _Thread_local int current_device;

cudaError_t runtime_fail(cudaError_t error) { return last_error = error; }
static cudaError_t fail(cudaError_t error) { return runtime_fail(error); }

// ---- what there is ----
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed now"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
};

const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].text;
    return "unrecognized error code";
}
const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].name;
    return "unrecognized error code";
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = settings()->devices;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= settings()->devices) return fail(cudaErrorInvalidDevice);
    current_device = device;
    driver_use_device(device);
    return cudaSuccess;
}
void runtime_use_current_device(void) { driver_use_device(current_device); }
cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    stream_wait_all();
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void) {
    cudaError_t error = cudaDeviceSynchronize();
    driver_reset_device(current_device);
    return error;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, (size_t)size, "0000:%02X:00.0", device + 1);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(void *properties, int device) {
    if (device < 0 || device >= settings()->devices) return fail(cudaErrorInvalidDevice);
    size_t total = settings()->memory_bytes;
    snprintf(properties, NAME_BYTES, "simulated GPU");
    memcpy((char *)properties + MEMORY_SIZE_OFFSET, &total, sizeof total);
    return cudaSuccess;
}

// ---- what a capture forbids ----
cudaError_t runtime_forbidden(cudaStream_t stream) {
    struct stream *given = stream_of(stream);
    int status = stream_capture_status(given);
    if (status == CAPTURE_NONE) return cudaSuccess;
    stream_invalidate_capture(given);
    return status == CAPTURE_ACTIVE ? cudaErrorStreamCaptureUnsupported
                                    : cudaErrorStreamCaptureInvalidated;
}

// ---- memory: blocks remember their size, so that a limit can be kept ----
static _Atomic size_t used_bytes;

struct block {
    _Alignas(ALIGNMENT) size_t bytes;
};

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *total_bytes = settings()->memory_bytes;
    *free_bytes = used_bytes < *total_bytes ? *total_bytes - used_bytes : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    runtime_use_current_device();
    size_t room = settings()->memory_bytes;
    *memory = NULL;
    if (bytes > room || used_bytes > room - bytes) return fail(cudaErrorMemoryAllocation);
    size_t whole = (bytes + sizeof(struct block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *block = aligned_alloc(ALIGNMENT, whole);
    if (!block) return fail(cudaErrorMemoryAllocation);
    block->bytes = bytes;
    used_bytes += bytes;
    *memory = block + 1;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    struct block *block = (struct block *)memory - 1;
    used_bytes -= block->bytes;
    free(block);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }

struct transfer {
    struct task task;
    void *to;
    const void *from;  // NULL: fill with value
    size_t bytes;
    int value;
};

static void free_task(struct task *task) { free(task); }

static int64_t run_transfer(struct task *task, uint64_t number, int64_t start_ns) {
    (void)number;
    struct transfer *transfer = (struct transfer *)task;
    if (transfer->from) memmove(transfer->to, transfer->from, transfer->bytes);
    else memset(transfer->to, transfer->value, transfer->bytes);
    return start_ns + 2000 + (int64_t)(transfer->bytes / 20);  // 20 GB/s
}

static cudaError_t add_transfer(struct transfer wanted, cudaStream_t stream) {
    struct transfer *transfer = malloc(sizeof *transfer);
    if (!transfer) return fail(cudaErrorMemoryAllocation);
    *transfer = wanted;
    transfer->task = (struct task){.run = run_transfer, .release = free_task, .holders = 1};
    stream_add(stream_of(stream), &transfer->task);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                            cudaStream_t stream) {
    (void)kind;
    if (bytes == 0) return cudaSuccess;
    if (!to || !from) return fail(cudaErrorInvalidValue);
    return add_transfer((struct transfer){.to = to, .from = from, .bytes = bytes}, stream);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    if (error == cudaSuccess) stream_wait(stream_of(NULL));
    return error;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    if (!memory) return fail(cudaErrorInvalidValue);
    return add_transfer((struct transfer){.to = memory, .bytes = bytes, .value = value}, stream);
}
cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
    cudaError_t error = cudaMemsetAsync(memory, value, bytes, NULL);
    if (error == cudaSuccess) stream_wait(stream_of(NULL));
    return error;
}

// ---- streams ----
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    runtime_use_current_device();
    *stream = stream_make();
    return *stream ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if ((uintptr_t)stream <= 2) return fail(cudaErrorInvalidResourceHandle);
    stream_destroy(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cudaError_t error = runtime_forbidden(stream);
    if (error) return fail(error);
    stream_wait(stream_of(stream));
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return stream_idle(stream_of(stream)) ? cudaSuccess : cudaErrorNotReady;
}

struct host_call {
    struct task task;
    void (*function)(void *);
    void *data;
};

static int64_t run_host_call(struct task *task, uint64_t number, int64_t start_ns) {
    (void)number;
    struct host_call *call = (struct host_call *)task;
    call->function(call->data);
    int64_t now_ns = sim_now_ns();
    return now_ns > start_ns ? now_ns : start_ns;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    if (!function) return fail(cudaErrorInvalidValue);
    struct host_call *call = malloc(sizeof *call);
    if (!call) return fail(cudaErrorMemoryAllocation);
    *call = (struct host_call){
        {.run = run_host_call, .release = free_task, .holders = 1}, function, data};
    stream_add(stream_of(stream), &call->task);
    return cudaSuccess;
}

// ---- events: held by their owner and by each record or wait that is queued ----
struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders;
    uint64_t recorded, reached;  // the last record queued, and worked off
    struct capture_point point;  // of the last record, where that was in a capture
    int64_t stamp_ns;
};

struct event_task {
    struct task task;
    struct event *event;
    uint64_t number;
};

static void event_release(struct event *event) {
    if (__atomic_sub_fetch(&event->holders, 1, __ATOMIC_ACQ_REL) == 0) free(event);
}

static void release_event_task(struct task *task) {
    event_release(((struct event_task *)task)->event);
    free(task);
}

static uint64_t launch_record(struct task *task) {
    struct event *event = ((struct event_task *)task)->event;
    pthread_mutex_lock(&event->lock);
    uint64_t number = ++event->recorded;
    pthread_mutex_unlock(&event->lock);
    return number;
}

static int64_t run_record(struct task *task, uint64_t number, int64_t start_ns) {
    struct event *event = ((struct event_task *)task)->event;
    pthread_mutex_lock(&event->lock);
    event->stamp_ns = start_ns;
    if (event->reached < number) event->reached = number;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    return start_ns;
}

static int64_t run_wait(struct task *task, uint64_t number, int64_t start_ns) {
    (void)number;
    struct event_task *wait = (struct event_task *)task;
    struct event *event = wait->event;
    pthread_mutex_lock(&event->lock);
    while (event->reached < wait->number) pthread_cond_wait(&event->changed, &event->lock);
    int64_t stamp_ns = event->stamp_ns;
    pthread_mutex_unlock(&event->lock);
    return stamp_ns > start_ns ? stamp_ns : start_ns;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = calloc(1, sizeof **event);
    if (!*event) return fail(cudaErrorMemoryAllocation);
    pthread_mutex_init(&(*event)->lock, NULL);
    pthread_cond_init(&(*event)->changed, NULL);
    (*event)->holders = 1;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    event_release(event);
    return cudaSuccess;
}

static cudaError_t add_event_task(cudaEvent_t event, cudaStream_t stream, struct task task,
                                  uint64_t number) {
    struct event_task *made = malloc(sizeof *made);
    if (!made) return fail(cudaErrorMemoryAllocation);
    task.release = release_event_task;
    task.holders = 1;
    *made = (struct event_task){task, event, number};
    __atomic_add_fetch(&event->holders, 1, __ATOMIC_RELAXED);
    stream_add(stream_of(stream), &made->task);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    if (stream_capture_status(stream_of(stream)) == CAPTURE_INVALIDATED)
        return fail(cudaErrorStreamCaptureInvalidated);
    cudaError_t error =
        add_event_task(event, stream, (struct task){.run = run_record, .launch = launch_record}, 0);
    event->point = stream_capture_point(stream_of(stream));
    return error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    if (event->point.capture || stream_capture_status(stream_of(stream)) != CAPTURE_NONE) {
        int error = stream_wait_for_point(stream_of(stream), event->point);
        return error ? fail((cudaError_t)error) : cudaSuccess;
    }
    pthread_mutex_lock(&event->lock);
    uint64_t number = event->recorded;
    pthread_mutex_unlock(&event->lock);
    return add_event_task(event, stream, (struct task){.run = run_wait}, number);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&event->lock);
    uint64_t wanted = event->recorded;
    while (event->reached < wanted) pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&event->lock);
    bool ready = event->reached == event->recorded;
    pthread_mutex_unlock(&event->lock);
    return ready ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start || !end || !start->recorded || !end->recorded)
        return fail(cudaErrorInvalidResourceHandle);
    if (cudaEventQuery(start) != cudaSuccess || cudaEventQuery(end) != cudaSuccess)
        return fail(cudaErrorNotReady);
    *milliseconds = (float)((double)(end->stamp_ns - start->stamp_ns) / 1e6);
    return cudaSuccess;
}
