// CUDA's driver functions, found at run time in the library that is in the process already. Nothing
// is linked to CUDA, and without CUDA nothing is called.
//
// Every call is made between cuda_enter and cuda_leave. These put the thread's capture mode to
// relaxed and back: in any other mode, a query or a new event while somebody captures a graph is an
// error and invalidates that capture.
#ifndef NCCLSCOPE_CUDA_DRIVER_H
#define NCCLSCOPE_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "ncclscope/format.h"

typedef void *cuda_context, *cuda_event, *cuda_stream, *cuda_module, *cuda_kernel;

enum {
    CUDA_NOT_READY = 600,
    CUDA_CAPTURE_RELAXED = 2,      // CU_STREAM_CAPTURE_MODE_RELAXED
    CUDA_STREAM_NON_BLOCKING = 1,  // does not wait for the legacy default stream
    CUDA_HOST_MAPPED = 2,          // CU_MEMHOSTREGISTER_DEVICEMAP
};

// F(member, symbol, arguments): without these there are no CUDA events around launches.
#define CUDA_EVENT_FUNCTIONS(F)                                            \
    F(context_current, "cuCtxGetCurrent", (cuda_context *))                \
    F(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *)) \
    F(stream_is_capturing, "cuStreamIsCapturing", (cuda_stream, int *))    \
    F(event_create, "cuEventCreate", (cuda_event *, unsigned))             \
    F(event_record, "cuEventRecord", (cuda_event, cuda_stream))            \
    F(event_query, "cuEventQuery", (cuda_event))                           \
    F(event_elapsed, "cuEventElapsedTime", (float *, cuda_event, cuda_event))
// Without these there are no marker kernels: no calibration, and replays are not counted.
#define CUDA_MARKER_FUNCTIONS(F)                                                          \
    F(stream_create, "cuStreamCreate", (cuda_stream *, unsigned))                         \
    F(module_load, "cuModuleLoadData", (cuda_module *, const void *))                     \
    F(module_kernel, "cuModuleGetFunction", (cuda_kernel *, cuda_module, const char *))   \
    F(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                  \
    F(host_device_pointer, "cuMemHostGetDevicePointer_v2", (u64 *, void *, unsigned))     \
    F(launch, "cuLaunchKernel",                                                           \
      (cuda_kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
       cuda_stream, void **, void **))                                                    \
    F(capture_info, "cuStreamGetCaptureInfo_v2",                                          \
      (cuda_stream, int *, u64 *, void *, void *, void *))

// Without these markers count in host memory, which takes them 4 µs instead of 1.
#define CUDA_MEMORY_FUNCTIONS(F)                                                     \
    F(memory_allocate, "cuMemAlloc_v2", (u64 *, size_t))                             \
    F(copy_to_gpu, "cuMemcpyHtoDAsync_v2", (u64, const void *, size_t, cuda_stream)) \
    F(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, u64, size_t, cuda_stream))      \
    F(stream_query, "cuStreamQuery", (cuda_stream))                                  \
    F(context_device, "cuCtxGetDevice", (int *))                                     \
    F(primary_state, "cuDevicePrimaryCtxGetState", (int, unsigned *, int *))         \
    F(primary_retain, "cuDevicePrimaryCtxRetain", (cuda_context *, int))             \
    F(primary_release, "cuDevicePrimaryCtxRelease_v2", (int))                        \
    F(context_push, "cuCtxPushCurrent_v2", (cuda_context))                           \
    F(context_pop, "cuCtxPopCurrent_v2", (cuda_context *))

// Without these nobody knows which GPU a communicator is on.
#define CUDA_IDENTITY_FUNCTIONS(F)                      \
    F(device_uuid, "cuDeviceGetUuid_v2", (void *, int)) \
    F(device_bus_id, "cuDeviceGetPCIBusId", (char *, int, int))

#define DECLARE_FUNCTION(member, symbol, arguments) int(*member) arguments;
struct cuda_driver {
    CUDA_EVENT_FUNCTIONS(DECLARE_FUNCTION)
    CUDA_MARKER_FUNCTIONS(DECLARE_FUNCTION)
    CUDA_MEMORY_FUNCTIONS(DECLARE_FUNCTION)
    CUDA_IDENTITY_FUNCTIONS(DECLARE_FUNCTION)
};
#undef DECLARE_FUNCTION
extern struct cuda_driver cuda;

// Once, at the first init. nccl_address: in the library that called; the simulated NCCL brings its
// own driver.
void cuda_driver_find(const void *nccl_address);
// The first function that is missing, "libcuda" where there is no driver; NULL: none is.
const char *cuda_missing_for_events(void);
const char *cuda_missing_for_markers(void);
const char *cuda_missing_for_memory(void);
const char *cuda_missing_for_identity(void);

static inline int cuda_enter(void) {
    int mode = CUDA_CAPTURE_RELAXED;
    return cuda.exchange_capture_mode(&mode) == 0 ? mode : -1;
}
static inline void cuda_leave(int mode) {
    if (mode >= 0) cuda.exchange_capture_mode(&mode);
}

#endif
