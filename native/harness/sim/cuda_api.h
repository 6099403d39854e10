// The part of CUDA's runtime API that the simulated NCCL brings along, in the same library.
//
// Device memory is host memory. A stream is a queue with a thread. Times of events are those of the
// simulated GPU. The NULL stream is a stream like others: it does not wait for them.
#ifndef NCCLSCOPE_SIM_CUDA_API_H
#define NCCLSCOPE_SIM_CUDA_API_H

#include "nccl_api.h"

typedef struct event *cudaEvent_t;
typedef struct graph *cudaGraph_t;
typedef struct graph *cudaGraphExec_t;  // a copy

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureMerge = 902,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorGraphExecUpdateFailure = 910,
    cudaErrorIllegalState = 401,
} cudaError_t;

SIM_EXPORT cudaError_t cudaRuntimeGetVersion(int *version);
SIM_EXPORT cudaError_t cudaDriverGetVersion(int *version);
SIM_EXPORT const char *cudaGetErrorString(cudaError_t error);
SIM_EXPORT const char *cudaGetErrorName(cudaError_t error);
SIM_EXPORT cudaError_t cudaGetLastError(void);
SIM_EXPORT cudaError_t cudaPeekAtLastError(void);

// As many devices as NCCLSCOPE_SIM_DEVICES says (8).
SIM_EXPORT cudaError_t cudaGetDeviceCount(int *count);
SIM_EXPORT cudaError_t cudaSetDevice(int device);
SIM_EXPORT cudaError_t cudaGetDevice(int *device);
SIM_EXPORT cudaError_t cudaDeviceSynchronize(void);
SIM_EXPORT cudaError_t cudaDeviceReset(void);
SIM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device);
// Writes the name (256 bytes) and, at offset 288, the memory's size; the rest is left alone.
SIM_EXPORT cudaError_t cudaGetDeviceProperties(void *properties, int device);
SIM_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

SIM_EXPORT cudaError_t cudaMalloc(void **memory, size_t bytes);
SIM_EXPORT cudaError_t cudaFree(void *memory);
SIM_EXPORT cudaError_t cudaMallocHost(void **memory, size_t bytes);
SIM_EXPORT cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
SIM_EXPORT cudaError_t cudaFreeHost(void *memory);
SIM_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
SIM_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                       cudaStream_t stream);
SIM_EXPORT cudaError_t cudaMemset(void *memory, int value, size_t bytes);
SIM_EXPORT cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);

SIM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream);
SIM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
SIM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                                    int priority);
SIM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream);
SIM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream);
SIM_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream);
SIM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *),
                                          void *data);
SIM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

SIM_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                        unsigned version, unsigned long long flags,
                                                        int *status);

SIM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event);
SIM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
SIM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
SIM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event);
SIM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event);
SIM_EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start,
                                            cudaEvent_t end);
SIM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event);

// Other streams join a capture through events, and must be joined to its stream again. What they
// added is in the graph in the order of the calls: branches run one after the other.
SIM_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode);
SIM_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
SIM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status);
SIM_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph,
                                            unsigned long long flags);
SIM_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
                                                     unsigned long long flags);
// The executable becomes the other graph, which must have as many nodes.
SIM_EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph, void *result);
// Nodes of a made graph run in the order in which they were added, dependencies or not.
SIM_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags);
SIM_EXPORT cudaError_t cudaGraphAddChildGraphNode(void **node, cudaGraph_t graph,
                                                  const void *dependencies, size_t count,
                                                  cudaGraph_t child);
SIM_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
SIM_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
SIM_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph);

#endif
