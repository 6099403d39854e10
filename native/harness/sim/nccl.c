// NCCL's functions: arguments, groups, and what they become.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "cuda_api.h"
#include "plan.h"
#include "reduce.h"
#include "report.h"
#include "runtime.h"
#include "settings.h"

static _Thread_local char last_error[512];

static ncclResult_t fail(ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return result;
}

// ---- what there is ----
const char *ncclscopeSimulation(void) { return settings()->simulation; }

ncclResult_t ncclGetVersion(int *version) {
    if (!version) return fail(ncclInvalidArgument, "version is NULL");
    *version = settings()->version;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    return cudaMalloc(memory, bytes) == cudaSuccess
               ? ncclSuccess
               : fail(ncclUnhandledCudaError, "out of memory: %zu bytes", bytes);
}
ncclResult_t ncclMemFree(void *memory) {
    cudaFree(memory);
    return ncclSuccess;
}

// ---- communicators ----
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    return id ? comm_new_id(id) : fail(ncclInvalidArgument, "id is NULL");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    const char *why = "";
    if (!comm) return fail(ncclInvalidArgument, "comm is NULL");
    runtime_use_current_device();
    ncclResult_t result = comm_make(comm, nranks, rank, &id, config, &why);
    return result == ncclSuccess ? result : fail(result, "cannot make a communicator: %s", why);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config) {
    const char *why = "";
    if (!comm || !made) return fail(ncclInvalidArgument, "comm is NULL");
    ncclResult_t result = comm_split(comm, color, key, made, config, &why);
    return result == ncclSuccess ? result : fail(result, "cannot split: %s", why);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (!comm) return fail(ncclInvalidArgument, "comm is NULL");
    comm_wait(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm) comm_destroy(comm, false);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm) comm_destroy(comm, true);
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
    if (!comm || !count) return fail(ncclInvalidArgument, "comm or count is NULL");
    *count = comm->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
    if (!comm || !rank) return fail(ncclInvalidArgument, "comm or rank is NULL");
    *rank = comm->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) {
    if (!comm || !device) return fail(ncclInvalidArgument, "comm or device is NULL");
    *device = comm->device;
    return ncclSuccess;
}
// A peer that died is noticed over a network; on one host NCCL waits for ever.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    if (!comm || !error) return fail(ncclInvalidArgument, "comm or error is NULL");
    int dead = fabric_dead_peer(comm->fabric);
    bool seen = dead >= 0 && comm_over_network(comm, comm->rank, dead);
    *error = seen ? fail(ncclRemoteError, "rank %d has died", dead) : ncclSuccess;
    return ncclSuccess;
}

// ---- groups: per thread ----
static _Thread_local struct {
    int depth, count, room;
    struct entry {
        struct comm *comm;
        struct stream *stream;
        struct work work;
    } *entries;
    void *api;
    bool api_reported, expanding;  // expanding: one level is NCCL's own, not the user's
} group;

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

// The plan of the first entry's communicator and stream; those entries are taken out. False: it
// cannot be launched.
static bool launch_first(void) {
    struct comm *comm = group.entries[0].comm;
    struct stream *stream = group.entries[0].stream;
    struct work *works = calloc((size_t)group.count, sizeof *works);
    int taken = 0, left = 0;
    for (int i = 0; i < group.count; i++) {
        if (group.entries[i].comm == comm) works[taken++] = group.entries[i].work;
        else group.entries[left++] = group.entries[i];
    }
    group.count = left;
    bool launched = plan_launch(plan_make(comm, stream, works, taken, group.api));
    free(works);
    return launched;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth) return ncclSuccess;
    report_group_ends(group.api);
    bool launched = true;
    while (group.count) launched &= launch_first();
    report_group_stop(group.api);
    free(group.entries);
    memset(&group, 0, sizeof group);
    if (launched) return ncclSuccess;
    return fail(ncclUnhandledCudaError, "the capture of the stream has been invalidated");
}

static ncclResult_t check(const struct transfer_spec *spec, struct comm *comm) {
    bool sends = spec->function == SEND || spec->function == RECV;
    if (!comm) return fail(ncclInvalidArgument, "comm is NULL");
    if (!datatype_bytes(spec->type))
        return fail(ncclInvalidArgument, "invalid datatype %d", (int)spec->type);
    if ((unsigned)spec->op > ncclAvg)
        return fail(ncclInvalidArgument, "invalid reduction operation %d", (int)spec->op);
    if (spec->root < 0 || spec->root >= comm->ranks)
        return fail(ncclInvalidArgument, "invalid %s %d (%d ranks)", sends ? "peer" : "root",
                    spec->root, comm->ranks);
    return ncclSuccess;
}

static ncclResult_t call(struct transfer_spec spec, struct comm *comm, struct stream *stream) {
    ncclResult_t result = check(&spec, comm);
    if (result != ncclSuccess) return result;
    bool message = spec.function == SEND || spec.function == RECV;
    if (!message && spec.count == 0) return ncclSuccess;
    if (!message && comm->ranks == 1 && spec.send == spec.recv) return ncclSuccess;
    ncclGroupStart();
    struct work work = {.spec = spec, .mask = profiler_mask()};
    bool captured = stream_captures(stream_of(stream));
    bool silent = comm->ranks == 1 && !message;
    if (!group.api_reported && !silent) {
        group.api = report_group_start(comm, work.mask, captured, group.depth - group.expanding);
        group.api_reported = true;
    }
    work.api = report_call(comm, &work, group.api, stream, captured);
    if (group.count == group.room) {
        group.room = group.room ? 2 * group.room : 8;
        group.entries = realloc(group.entries, (size_t)group.room * sizeof *group.entries);
    }
    group.entries[group.count++] = (struct entry){comm, stream, work};
    return ncclGroupEnd();
}

// ---- collectives and messages ----
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){ALL_REDUCE, send, recv, count, type, op, 0}, comm, stream);
}
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){BROADCAST, send, recv, count, type, ncclSum, root}, comm,
                stream);
}
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){REDUCE, send, recv, count, type, op, root}, comm, stream);
}
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){ALL_GATHER, send, recv, count, type, ncclSum, 0}, comm,
                stream);
}
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){REDUCE_SCATTER, send, recv, count, type, op, 0}, comm,
                stream);
}
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return call((struct transfer_spec){SEND, buffer, NULL, count, type, ncclSum, peer}, comm,
                stream);
}
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call((struct transfer_spec){RECV, NULL, buffer, count, type, ncclSum, peer}, comm,
                stream);
}

// ---- what NCCL makes of sends and receives ----
static ncclResult_t expand(const char *name, struct comm *comm, ncclDataType_t type, int root) {
    if (settings()->version < 22800)
        return fail(ncclInvalidUsage, "NCCL %s has no %s", settings()->release, name);
    return check(&(struct transfer_spec){SEND, NULL, NULL, 0, type, ncclSum, root}, comm);
}

static void begin_expansion(void) {
    ncclGroupStart();
    group.expanding = true;
}

static ncclResult_t end_expansion(void) {
    group.expanding = false;
    return ncclGroupEnd();
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = expand("ncclAlltoAll", comm, type, 0);
    if (result != ncclSuccess || count == 0) return result;
    size_t bytes = count * datatype_bytes(type);
    begin_expansion();
    for (int peer = 0; peer < comm->ranks; peer++) {
        ncclSend((const char *)send + (size_t)peer * bytes, count, type, peer, comm, stream);
        ncclRecv((char *)recv + (size_t)peer * bytes, count, type, peer, comm, stream);
    }
    return end_expansion();
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = expand("ncclGather", comm, type, root);
    if (result != ncclSuccess || count == 0) return result;
    size_t bytes = count * datatype_bytes(type);
    begin_expansion();
    ncclSend(send, count, type, root, comm, stream);
    for (int peer = 0; peer < comm->ranks && comm->rank == root; peer++)
        ncclRecv((char *)recv + (size_t)peer * bytes, count, type, peer, comm, stream);
    return end_expansion();
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = expand("ncclScatter", comm, type, root);
    if (result != ncclSuccess || count == 0) return result;
    size_t bytes = count * datatype_bytes(type);
    begin_expansion();
    for (int peer = 0; peer < comm->ranks && comm->rank == root; peer++)
        ncclSend((const char *)send + (size_t)peer * bytes, count, type, peer, comm, stream);
    ncclRecv(recv, count, type, root, comm, stream);
    return end_expansion();
}
