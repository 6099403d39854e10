// Ranks that use the simulated NCCL from C, for sanitizers: every function, results checked.
//
// usage: simulated_ranks LIBRARY RANKS. Forks the ranks before anything is loaded; all must exit
// with 0.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/cuda_api.h"

enum { ELEMENTS = 300000, ROUNDS = 4 };

#define DO(call)                                                         \
    do {                                                                 \
        int code = (int)(call);                                          \
        if (code) {                                                      \
            fprintf(stderr, "rank %d: " #call " gave %d\n", rank, code); \
            _exit(1);                                                    \
        }                                                                \
    } while (0)

static int rank, ranks;
static void *library;
static struct meeting {
    ncclUniqueId id;
    int ready;
} *meeting;

#define USE(name) __typeof__(name) *f_##name = (__typeof__(name) *)dlsym(library, #name)

static void expect(const float *values, size_t count, float value, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != value) {
            fprintf(stderr, "rank %d: %s: element %zu is %g, not %g\n", rank, what, i,
                    (double)values[i], (double)value);
            _exit(1);
        }
}

static void fill(float *values, size_t count, float value) {
    for (size_t i = 0; i < count; i++) values[i] = value;
}

static void use_everything(ncclComm_t comm, cudaStream_t stream, float *send, float *recv) {
    USE(ncclAllReduce);
    USE(ncclBroadcast);
    USE(ncclReduce);
    USE(ncclAllGather);
    USE(ncclReduceScatter);
    USE(ncclSend);
    USE(ncclRecv);
    USE(ncclAlltoAll);
    USE(ncclGather);
    USE(ncclScatter);
    USE(ncclGroupStart);
    USE(ncclGroupEnd);
    USE(cudaStreamSynchronize);
    float sum = (float)(ranks * (ranks + 1)) / 2, small = (float)(rank + 1);
    size_t part = ELEMENTS / (size_t)ranks;
    fill(send, ELEMENTS, (float)(rank + 1));
    DO(f_ncclAllReduce(send, recv, ELEMENTS, ncclFloat32, ncclSum, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    expect(recv, ELEMENTS, sum, "AllReduce");
    DO(f_ncclBroadcast(send, recv, ELEMENTS, ncclFloat32, ranks - 1, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    expect(recv, ELEMENTS, (float)ranks, "Broadcast");
    DO(f_ncclReduce(send, recv, ELEMENTS, ncclFloat32, ncclSum, 0, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    if (rank == 0) expect(recv, ELEMENTS, sum, "Reduce");
    DO(f_ncclAllGather(send, recv, part, ncclFloat32, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    for (int i = 0; i < ranks; i++)
        expect(recv + (size_t)i * part, part, (float)(i + 1), "AllGather");
    DO(f_ncclReduceScatter(send, recv, part, ncclFloat32, ncclSum, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    expect(recv, part, sum, "ReduceScatter");
    DO(f_ncclGroupStart());
    DO(f_ncclSend(send, ELEMENTS, ncclFloat32, (rank + 1) % ranks, comm, stream));
    DO(f_ncclRecv(recv, ELEMENTS, ncclFloat32, (rank + ranks - 1) % ranks, comm, stream));
    DO(f_ncclAllReduce(&small, &small, 1, ncclFloat32, ncclMax, comm, stream));
    DO(f_ncclGroupEnd());
    DO(f_cudaStreamSynchronize(stream));
    expect(recv, ELEMENTS, (float)((rank + ranks - 1) % ranks + 1), "Send and Recv");
    expect(&small, 1, (float)ranks, "grouped AllReduce");
    fill(send, ELEMENTS, (float)(rank + 1));
    DO(f_ncclAlltoAll(send, recv, part, ncclFloat32, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    for (int i = 0; i < ranks; i++)
        expect(recv + (size_t)i * part, part, (float)(i + 1), "AlltoAll");
    DO(f_ncclGather(send, recv, part, ncclFloat32, 0, comm, stream));
    DO(f_ncclScatter(recv, send, part, ncclFloat32, 0, comm, stream));
    DO(f_cudaStreamSynchronize(stream));
    expect(send, part, (float)(rank + 1), "Gather and Scatter");
}

static void use_graphs_and_events(ncclComm_t comm, cudaStream_t stream, float *send, float *recv) {
    USE(ncclAllReduce);
    USE(cudaStreamBeginCapture);
    USE(cudaStreamEndCapture);
    USE(cudaGraphInstantiate);
    USE(cudaGraphLaunch);
    USE(cudaGraphExecDestroy);
    USE(cudaGraphDestroy);
    USE(cudaEventCreate);
    USE(cudaEventRecord);
    USE(cudaEventSynchronize);
    USE(cudaEventElapsedTime);
    USE(cudaEventDestroy);
    USE(cudaStreamCreate);
    USE(cudaStreamWaitEvent);
    USE(cudaStreamDestroy);
    USE(cudaStreamSynchronize);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaEvent_t start, end;
    cudaStream_t other;
    float milliseconds = -1;
    DO(f_cudaStreamBeginCapture(stream, 0));
    DO(f_ncclAllReduce(send, recv, 1000, ncclFloat32, ncclSum, comm, stream));
    DO(f_ncclAllReduce(recv, recv, 1000, ncclFloat32, ncclAvg, comm, stream));
    DO(f_cudaStreamEndCapture(stream, &graph));
    DO(f_cudaGraphInstantiate(&ready, graph, 0));
    DO(f_cudaGraphDestroy(graph));
    DO(f_cudaEventCreate(&start));
    DO(f_cudaEventCreate(&end));
    DO(f_cudaStreamCreate(&other));
    DO(f_cudaEventRecord(start, stream));
    for (int i = 0; i < ROUNDS; i++) DO(f_cudaGraphLaunch(ready, stream));
    DO(f_cudaEventRecord(end, stream));
    DO(f_cudaStreamWaitEvent(other, end, 0));
    DO(f_ncclAllReduce(send, recv, 10, ncclFloat32, ncclSum, comm, other));
    DO(f_cudaStreamSynchronize(other));
    DO(f_cudaEventSynchronize(end));
    DO(f_cudaEventElapsedTime(&milliseconds, start, end));
    if (!(milliseconds > 0)) _exit(1);
    DO(f_cudaGraphExecDestroy(ready));
    DO(f_cudaEventDestroy(start));
    DO(f_cudaEventDestroy(end));
    DO(f_cudaStreamDestroy(other));
}

static int be_a_rank(const char *path) {
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    USE(ncclGetUniqueId);
    USE(ncclCommInitRank);
    USE(ncclCommSplit);
    USE(ncclCommDestroy);
    USE(ncclCommAbort);
    USE(cudaMalloc);
    USE(cudaFree);
    USE(cudaMemset);
    USE(cudaStreamCreate);
    USE(cudaStreamDestroy);
    USE(ncclAllReduce);
    if (rank == 0) {
        DO(f_ncclGetUniqueId(&meeting->id));
        __atomic_store_n(&meeting->ready, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&meeting->ready, __ATOMIC_ACQUIRE)) usleep(1000);
    ncclComm_t comm, half;
    cudaStream_t stream;
    float *send, *recv;
    DO(f_ncclCommInitRank(&comm, ranks, meeting->id, rank));
    DO(f_cudaStreamCreate(&stream));
    DO(f_cudaMalloc((void **)&send, ELEMENTS * sizeof(float)));
    DO(f_cudaMalloc((void **)&recv, ELEMENTS * sizeof(float)));
    DO(f_cudaMemset(recv, 0, ELEMENTS * sizeof(float)));
    for (int i = 0; i < ROUNDS; i++) use_everything(comm, stream, send, recv);
    use_graphs_and_events(comm, stream, send, recv);
    DO(f_ncclCommSplit(comm, rank % 2, rank, &half, NULL));
    DO(f_ncclAllReduce(send, recv, 100, ncclFloat32, ncclSum, half, stream));
    DO(f_ncclCommDestroy(half));
    // A call that the last rank does not make, and an abort.
    if (rank != ranks - 1) DO(f_ncclAllReduce(send, recv, 100, ncclFloat32, ncclSum, comm, stream));
    usleep(50000);
    DO(f_ncclCommAbort(comm));
    DO(f_cudaStreamDestroy(stream));
    DO(f_cudaFree(send));
    DO(f_cudaFree(recv));
    return 0;
}

int main(int count, char **values) {
    if (count != 3) return 2;
    ranks = atoi(values[2]);
    meeting =
        mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (rank = 0; rank < ranks; rank++)
        if (fork() == 0) return be_a_rank(values[1]);
    int worst = 0;
    for (int status; wait(&status) > 0;)
        if (status) worst = 1;
    return worst;
}
