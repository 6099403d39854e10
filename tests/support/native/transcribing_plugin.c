// A profiler plugin that writes down every callback with all its fields, in the transcripts' form
// (tests/data/transcripts/README.md). For holding the simulated NCCL against real ones.
//
// TRANSCRIPT_FILE and the rank name the file. NEWEST: the newest interface that it has (7).
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nccl_abi.h"

#ifndef NEWEST
#define NEWEST 7
#endif
#define EXPORT __attribute__((visibility("default")))
#define P(x) ((unsigned long)(x))
#define S(x) ((x) ? (x) : "")

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static unsigned long contexts, handles;

// Begins a line; the lock is held until end_line.
static void begin_line(const char *callback) {
    struct timespec now;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(file, "{\"cb\":\"%s\",\"t\":%lld,\"tid\":%d", callback,
            (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)syscall(SYS_gettid));
}
static nccl_result end_line(void) {
    fputs("}\n", file);
    pthread_mutex_unlock(&lock);
    return 0;
}

static nccl_result init(void **context, int *mask, int version, int events, unsigned long id,
                        const char *name, int nodes, int ranks, int rank) {
    pthread_mutex_lock(&lock);
    if (!file) {
        char path[512];
        snprintf(path, sizeof path, "%s.%s", getenv("TRANSCRIPT_FILE"), getenv("RANK"));
        file = fopen(path, "w");
        setvbuf(file, NULL, _IOLBF, 0);
    }
    pthread_mutex_unlock(&lock);
    begin_line("init");
    *context = (void *)++contexts;
    *mask = events;
    fprintf(file,
            ",\"v\":%d,\"ctx\":%lu,\"mask\":%d,\"comm\":\"%lx\",\"name\":\"%s\",\"nnodes\":%d,"
            "\"nranks\":%d,\"rank\":%d",
            version, contexts, events, id, S(name), nodes, ranks, rank);
    return end_line();
}

static nccl_result finalize(void *context) {
    begin_line("finalize");
    fprintf(file, ",\"ctx\":%lu", P(context));
    return end_line();
}

static nccl_result stop(void *handle) {
    begin_line("stop");
    fprintf(file, ",\"h\":%lu", P(handle));
    return end_line();
}

static nccl_result state(void *handle, int which, const void *args, int early) {
    unsigned long first = 0;
    int steps = 0;
    if (args)
        memcpy(&first, args, which >= NCCL_CTRL_IDLE && which <= NCCL_CTRL_APPEND_END ? 4 : 8);
    if (args && early) memcpy(&steps, (const char *)args + 8, 4);
    begin_line("state");
    fprintf(file, ",\"h\":%lu,\"s\":%d,\"a\":%lu,\"a2\":%d", P(handle), which, first, steps);
    return end_line();
}
static nccl_result state_v3(void *handle, int which, const union nccl_state_args_v1 *args) {
    return state(handle, which, args, 1);
}
#if NEWEST >= 4
static nccl_result state_v4(void *handle, int which, const union nccl_state_args *args) {
    return state(handle, which, args, 0);
}
#endif

static void begin_start(void *context, void **handle, unsigned long type, void *parent, int rank) {
    begin_line("start");
    *handle = (void *)++handles;
    fprintf(file, ",\"ctx\":%lu,\"h\":%lu,\"p\":%lu,\"type\":%lu,\"rank\":%d", P(context), handles,
            P(parent), type, rank);
}

static void proxy_op(const struct nccl_proxy_op *op) {
    fprintf(file, ",\"pid\":%d,\"ch\":%d,\"peer\":%d,\"nsteps\":%d,\"chunk\":%d,\"send\":%d",
            op->pid, op->channelId, op->peer, op->nSteps, op->chunkSize, op->isSend);
}

static nccl_result start_v3(void *context, void **handle, const struct nccl_descr_v3 *d) {
    begin_start(context, handle, d->type, d->parentObj, d->rank);
    if (d->type == NCCL_COLL)
        fprintf(file,
                ",\"name\":\"%s\",\"comm\":\"%lx\",\"seq\":%lu,\"func\":\"%s\",\"count\":%lu,"
                "\"root\":%d,"
                "\"dtype\":\"%s\",\"nmaxch\":%d,\"nwarps\":%d,\"algo\":\"%s\",\"proto\":\"%s\"",
                S(d->coll.name), d->coll.commHash, d->coll.seqNumber, d->coll.func, d->coll.count,
                d->coll.root, d->coll.datatype, d->coll.nMaxChannels, d->coll.nWarps, d->coll.algo,
                d->coll.proto);
    if (d->type == NCCL_P2P)
        fprintf(file, ",\"func\":\"%s\",\"dtype\":\"%s\",\"count\":%lu,\"peer\":%d", d->p2p.func,
                d->p2p.datatype, d->p2p.count, d->p2p.peer);
    if (d->type == NCCL_PROXY_OP) proxy_op(&d->proxyOp);
    if (d->type == NCCL_PROXY_STEP) fprintf(file, ",\"step\":%d", d->proxyStep.step);
    if (d->type == NCCL_KERNEL_CH) fprintf(file, ",\"ch\":%d", d->kernelCh.channelId);
    return end_line();
}

#if NEWEST >= 4
static nccl_result start(void *context, void **handle, const struct nccl_descr *d, int version) {
    unsigned long type = version == 4 ? *(const uint8_t *)d : d->type;
    begin_start(context, handle, type, d->parentObj, d->rank);
    switch (type) {
        case NCCL_COLL:
            fprintf(file,
                    ",\"seq\":%lu,\"func\":\"%s\",\"send\":\"%lx\",\"recv\":\"%lx\",\"count\":%lu,"
                    "\"root\":%d,"
                    "\"dtype\":\"%s\",\"nch\":%d,\"nwarps\":%d,\"algo\":\"%s\",\"proto\":\"%s\"",
                    d->coll.seqNumber, d->coll.func, P(d->coll.sendBuff), P(d->coll.recvBuff),
                    d->coll.count, d->coll.root, d->coll.datatype, d->coll.nChannels,
                    d->coll.nWarps, d->coll.algo, d->coll.proto);
            if (version >= 5) fprintf(file, ",\"group\":%lu", P(d->coll.parentGroup));
            if (version >= 7)
                fprintf(file, ",\"variant\":\"%s\",\"sym\":%d,\"tag\":%lu",
                        S(d->coll.kernelVariant), d->coll.isSymColl, d->coll.userTag);
            break;
        case NCCL_P2P:
            fprintf(file,
                    ",\"func\":\"%s\",\"buff\":\"%lx\",\"dtype\":\"%s\",\"count\":%lu,\"peer\":%d,"
                    "\"nch\":%d",
                    d->p2p.func, P(d->p2p.buff), d->p2p.datatype, d->p2p.count, d->p2p.peer,
                    d->p2p.nChannels);
            if (version >= 5) fprintf(file, ",\"group\":%lu", P(d->p2p.parentGroup));
            if (version >= 7) fprintf(file, ",\"tag\":%lu", d->p2p.userTag);
            break;
        case NCCL_PROXY_OP: proxy_op(&d->proxyOp); break;
        case NCCL_PROXY_STEP: fprintf(file, ",\"step\":%d", d->proxyStep.step); break;
        case NCCL_KERNEL_CH:
            fprintf(file, ",\"ch\":%d,\"ptimer\":%lu", d->kernelCh.channelId, d->kernelCh.pTimer);
            break;
        case NCCL_GROUP_API:
            fprintf(file, ",\"graph\":%d,\"depth\":%d", d->groupApi.graphCaptured,
                    d->groupApi.groupDepth);
            break;
        case NCCL_COLL_API:
            fprintf(file,
                    ",\"func\":\"%s\",\"count\":%lu,\"dtype\":\"%s\",\"root\":%d,\"stream\":\"%"
                    "lx\",\"graph\":%d",
                    d->collApi.func, d->collApi.count, d->collApi.datatype, d->collApi.root,
                    P(d->collApi.stream), d->collApi.graphCaptured);
            if (version >= 7) fprintf(file, ",\"tag\":%lu", d->collApi.userTag);
            break;
        case NCCL_P2P_API:
            fprintf(
                file,
                ",\"func\":\"%s\",\"count\":%lu,\"dtype\":\"%s\",\"stream\":\"%lx\",\"graph\":%d",
                d->p2pApi.func, d->p2pApi.count, d->p2pApi.datatype, P(d->p2pApi.stream),
                d->p2pApi.graphCaptured);
            if (version >= 7) fprintf(file, ",\"tag\":%lu", d->p2pApi.userTag);
            break;
        case NCCL_KERNEL_LAUNCH:
            fprintf(file, ",\"stream\":\"%lx\"", P(d->kernelLaunch.stream));
            break;
        case NCCL_KERNEL_PHASE:
            fprintf(file, ",\"ch\":%d,\"phase\":%d,\"phname\":\"%s\",\"ptimer\":%lu",
                    d->kernelPhase.channelId, d->kernelPhase.phaseId, d->kernelPhase.phaseName,
                    d->kernelPhase.pTimer);
            break;
        default: break;
    }
    return end_line();
}
#endif

static nccl_result init_v3(void **context, int *mask) {
    return init(context, mask, 3, NCCL_EVENTS_OF(3), 0, "", 0, 0, 0);
}
#if NEWEST >= 4
static nccl_result init_v4(void **context, int *mask, const char *name, uint64_t id, int nodes,
                           int ranks, int rank, nccl_log_fn log) {
    (void)log;
    return init(context, mask, 4, NCCL_EVENTS_OF(4), id, name, nodes, ranks, rank);
}
static nccl_result start_v4(void *context, void **handle, const struct nccl_descr *d) {
    return start(context, handle, d, 4);
}
#endif
#define MODERN(version)                                                                          \
    static nccl_result init_v##version(void **context, uint64_t id, int *mask, const char *name, \
                                       int nodes, int ranks, int rank, nccl_log_fn log) {        \
        (void)log;                                                                               \
        return init(context, mask, version, NCCL_EVENTS_OF(version), id, name, nodes, ranks,     \
                    rank);                                                                       \
    }                                                                                            \
    static nccl_result start_v##version(void *context, void **handle,                            \
                                        const struct nccl_descr *d) {                            \
        return start(context, handle, d, version);                                               \
    }
#if NEWEST >= 5
MODERN(5)
#endif
#if NEWEST >= 6
MODERN(6)
#endif
#if NEWEST >= 7
MODERN(7)
#endif

EXPORT const struct nccl_profiler_v3 ncclProfiler_v3 = {"transcribing", init_v3,  start_v3,
                                                        stop,           state_v3, finalize};
#if NEWEST >= 4
EXPORT const struct nccl_profiler_v4 ncclProfiler_v4 = {"transcribing", init_v4,  start_v4,
                                                        stop,           state_v4, finalize};
#endif
#if NEWEST >= 5
EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {"transcribing", init_v5,  start_v5,
                                                        stop,           state_v4, finalize};
#endif
#if NEWEST >= 6
EXPORT const struct nccl_profiler_v6 ncclProfiler_v6 = {"transcribing", init_v6,  start_v6,
                                                        stop,           state_v4, finalize};
#endif
#if NEWEST >= 7
EXPORT const struct nccl_profiler_v7 ncclProfiler_v7 = {"transcribing", init_v7,  start_v7,
                                                        stop,           state_v4, finalize};
#endif
