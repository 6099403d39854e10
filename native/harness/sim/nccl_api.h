// The part of NCCL's C API that the simulated NCCL has, declared anew. Numbers are NCCL's.
//
// It is never installed as libnccl: the library is libncclscope-simulated-nccl.so, and it has the
// symbol ncclscopeSimulation, by which the recorder and the benchmark know what they talk to.
#ifndef NCCLSCOPE_SIM_NCCL_API_H
#define NCCLSCOPE_SIM_NCCL_API_H

#include <stddef.h>

#define SIM_EXPORT __attribute__((visibility("default")))

typedef struct comm *ncclComm_t;
typedef struct stream *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 } ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12,
} ncclDataType_t;

// As far as it is read; `size` says how much of it the caller has.
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
} ncclConfig_t;
enum { NCCL_SPLIT_NOCOLOR = -1 };

// "2.28.9 simulated by ncclscope …"
SIM_EXPORT const char *ncclscopeSimulation(void);
// A function of CUDA's driver by its name; NULL: there is none.
SIM_EXPORT void *ncclscopeSimulatedDriver(const char *name);

// What the next launch of this thread does not get past, until its communicator is aborted: the
// launch; its end on the GPU, whatever others do; what it sends; the last that it receives.
enum {
    NCCLSCOPE_HOLD_LAUNCH = 1,
    NCCLSCOPE_HOLD_END = 2,
    NCCLSCOPE_HOLD_SENDS = 4,
    NCCLSCOPE_HOLD_LAST_RECEIVE = 8,
};
SIM_EXPORT void ncclscopeHold(int what);

SIM_EXPORT ncclResult_t ncclGetVersion(int *version);
SIM_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
SIM_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
SIM_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id,
                                               int rank, ncclConfig_t *config);
SIM_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                                      ncclConfig_t *config);
SIM_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm);
SIM_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm);
SIM_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm);
SIM_EXPORT ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
SIM_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
SIM_EXPORT ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device);
SIM_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
SIM_EXPORT const char *ncclGetErrorString(ncclResult_t result);
SIM_EXPORT const char *ncclGetLastError(ncclComm_t comm);

SIM_EXPORT ncclResult_t ncclGroupStart(void);
SIM_EXPORT ncclResult_t ncclGroupEnd(void);
SIM_EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, int root, ncclComm_t comm,
                                      cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                          ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t comm, cudaStream_t stream);
// From 2.28 on; as 2.26 they fail with ncclInvalidUsage, as the real one lacks them.
SIM_EXPORT ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count,
                                     ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                   int root, ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, cudaStream_t stream);
SIM_EXPORT ncclResult_t ncclMemAlloc(void **memory, size_t bytes);
SIM_EXPORT ncclResult_t ncclMemFree(void *memory);

#endif
