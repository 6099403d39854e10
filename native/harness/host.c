// NCCL's side of the profiler interface.
#define _GNU_SOURCE
#include "host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/nccl_abi.h"

enum { POISON = 0xA5 };

// ---- literals ----
const char *host_literal(const char *text) {
    static struct literal {
        struct literal *next;
        char text[];
    } *literals;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!text) return NULL;
    pthread_mutex_lock(&lock);
    struct literal *found = literals;
    while (found && strcmp(found->text, text) != 0) found = found->next;
    if (!found) {
        found = malloc(sizeof *found + strlen(text) + 1);
        strcpy(found->text, text);
        found->next = literals;
        literals = found;
    }
    pthread_mutex_unlock(&lock);
    return found->text;
}

// ---- loading ----
static void print_log(int level, unsigned long flags, const char *file, int line,
                      const char *format, ...) {
    (void)level, (void)flags, (void)file, (void)line;
    if (!getenv("NCCL_DEBUG")) return;
    va_list arguments;
    va_start(arguments, format);
    fputs("NCCL INFO ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

bool host_load(struct host *host, const char *plugin, int version) {
    char symbol[32];
    memset(host, 0, sizeof *host);
    host->version = version;
    host->library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (!host->library) {
        fprintf(stderr, "cannot load the plugin: %s\n", dlerror());
        return false;
    }
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    host->object = dlsym(host->library, symbol);
    if (!host->object) fprintf(stderr, "%s has no %s\n", plugin, symbol);
    return host->object != NULL;
}

void host_unload(struct host *host) {
    if (host->library) dlclose(host->library);
    memset(host, 0, sizeof *host);
}

int host_init(struct host *host, void **context, const struct host_comm *comm) {
    if (host->version < NCCL_FIRST_WITH_STAMPS)
        return ((const struct nccl_profiler_v1 *)host->object)->init(context, &host->mask);
    if (host->version == 4)
        return ((const struct nccl_profiler_v4 *)host->object)
            ->init(context, &host->mask, comm->name, comm->id, comm->nodes, comm->ranks, comm->rank,
                   print_log);
    return ((const struct nccl_profiler_v5 *)host->object)
        ->init(context, comm->id, &host->mask, comm->name, comm->nodes, comm->ranks, comm->rank,
               print_log);
}

void host_finalize(const struct host *host, void *context) {
    ((const struct nccl_profiler_v1 *)host->object)->finalize(context);
}

void host_stop(const struct host *host, void *handle) {
    ((const struct nccl_profiler_v1 *)host->object)->stopEvent(handle);
}

// ---- descriptors ----
static void fill_proxy_op(struct nccl_proxy_op *op, const struct host_event *e) {
    *op = (struct nccl_proxy_op){.pid = e->pid,
                                 .channelId = (uint8_t)e->channel,
                                 .peer = e->peer,
                                 .nSteps = e->steps,
                                 .chunkSize = e->chunk_size,
                                 .isSend = e->is_send};
}

static void fill_v1(struct nccl_descr_v1 *d, const struct host_event *e) {
    d->type = (uint8_t)e->type;
    d->parentObj = e->parent;
    d->rank = e->rank;
    if (e->type == NCCL_COLL) {
        d->coll.name = e->name;
        d->coll.commHash = e->comm_hash;
        d->coll.seqNumber = e->seq;
        d->coll.func = (uint8_t)e->func_number;
        d->coll.sendBuff = (void *)e->send;
        d->coll.recvBuff = (void *)e->recv;
        d->coll.count = e->count;
        d->coll.root = e->root;
        d->coll.datatype = (uint8_t)e->dtype_number;
        d->coll.op = e->op;
        d->coll.trafficBytes = e->traffic;
        d->coll.nMaxChannels = (uint8_t)e->channels;
        d->coll.nWarps = (uint8_t)e->warps;
        d->coll.algo = (uint8_t)e->algo_number;
        d->coll.proto = (uint8_t)e->proto_number;
        d->coll.isCollnet = e->collnet;
        d->coll.isNvls = e->nvls;
    } else if (e->type == NCCL_P2P) {
        d->p2p.name = e->name;
        d->p2p.commHash = e->comm_hash;
        d->p2p.func = (uint8_t)e->func_number;
        d->p2p.buff = (void *)e->send;
        d->p2p.datatype = (uint8_t)e->dtype_number;
        d->p2p.count = e->count;
        d->p2p.peer = e->peer;
    } else if (e->type == NCCL_PROXY_OP) {
        fill_proxy_op(&d->proxyOp, e);
    } else if (e->type == NCCL_PROXY_STEP) {
        d->proxyStep.step = e->step;
    }
}

static void fill_named_p2p(struct nccl_p2p_v2 *p2p, const struct host_event *e) {
    *p2p = (struct nccl_p2p_v2){.name = e->name,
                                .commHash = e->comm_hash,
                                .func = e->func,
                                .buff = (void *)e->send,
                                .datatype = e->dtype,
                                .count = e->count,
                                .peer = e->peer};
}

static void fill_v2(struct nccl_descr_v2 *d, const struct host_event *e) {
    d->type = (uint8_t)e->type;
    d->parentObj = e->parent;
    d->rank = e->rank;
    if (e->type == NCCL_COLL) {
        d->coll.name = e->name;
        d->coll.commHash = e->comm_hash;
        d->coll.seqNumber = e->seq;
        d->coll.func = e->func;
        d->coll.sendBuff = (void *)e->send;
        d->coll.recvBuff = (void *)e->recv;
        d->coll.count = e->count;
        d->coll.root = e->root;
        d->coll.datatype = e->dtype;
        d->coll.trafficBytes = e->traffic;
        d->coll.nMaxChannels = (uint8_t)e->channels;
        d->coll.nWarps = (uint8_t)e->warps;
        d->coll.algo = e->algo;
        d->coll.proto = e->proto;
    } else if (e->type == NCCL_P2P) {
        fill_named_p2p(&d->p2p, e);
    } else if (e->type == NCCL_PROXY_OP) {
        fill_proxy_op(&d->proxyOp, e);
    } else if (e->type == NCCL_PROXY_STEP) {
        d->proxyStep.step = e->step;
    }
}

static void fill_v3(struct nccl_descr_v3 *d, const struct host_event *e) {
    d->type = (uint8_t)e->type;
    d->parentObj = e->parent;
    d->rank = e->rank;
    switch (e->type) {
        case NCCL_COLL:
            d->coll.name = e->name;
            d->coll.commHash = e->comm_hash;
            d->coll.seqNumber = e->seq;
            d->coll.func = e->func;
            d->coll.sendBuff = (void *)e->send;
            d->coll.recvBuff = (void *)e->recv;
            d->coll.count = e->count;
            d->coll.root = e->root;
            d->coll.datatype = e->dtype;
            d->coll.nMaxChannels = (uint8_t)e->channels;
            d->coll.nWarps = (uint8_t)e->warps;
            d->coll.algo = e->algo;
            d->coll.proto = e->proto;
            break;
        case NCCL_P2P: fill_named_p2p(&d->p2p, e); break;
        case NCCL_PROXY_OP: fill_proxy_op(&d->proxyOp, e); break;
        case NCCL_PROXY_STEP: d->proxyStep.step = e->step; break;
        case NCCL_KERNEL_CH: d->kernelCh.channelId = (uint8_t)e->channel; break;
        case NCCL_NET_PLUGIN:
            d->netPlugin = (struct nccl_net_plugin){e->net_id, e->net_data};
            break;
        default: break;
    }
}

static void fill_coll(struct nccl_coll *coll, const struct host_event *e, int version) {
    coll->seqNumber = e->seq;
    coll->func = e->func;
    coll->sendBuff = (void *)e->send;
    coll->recvBuff = (void *)e->recv;
    coll->count = e->count;
    coll->root = e->root;
    coll->datatype = e->dtype;
    coll->nChannels = (uint8_t)e->channels;
    coll->nWarps = (uint8_t)e->warps;
    coll->algo = e->algo;
    coll->proto = e->proto;
    if (version >= NCCL_FIRST_WITH_CALLS) coll->parentGroup = e->parent_group;
    if (version < NCCL_FIRST_WITH_TAGS) return;
    coll->kernelVariant = e->variant;
    coll->isSymColl = e->symmetric;
    coll->userTag = e->tag;
}

static void fill_p2p(struct nccl_p2p *p2p, const struct host_event *e, int version) {
    p2p->func = e->func;
    p2p->buff = (void *)e->send;
    p2p->datatype = e->dtype;
    p2p->count = e->count;
    p2p->peer = e->peer;
    p2p->nChannels = (uint8_t)e->channels;
    if (version >= NCCL_FIRST_WITH_CALLS) p2p->parentGroup = e->parent_group;
    if (version >= NCCL_FIRST_WITH_TAGS) p2p->userTag = e->tag;
}

static void fill_ce_coll(struct nccl_ce_coll *ce, const struct host_event *e, int version) {
    ce->seqNumber = e->seq;
    ce->func = e->func;
    ce->sendBuff = (void *)e->send;
    ce->recvBuff = (void *)e->recv;
    ce->count = e->count;
    ce->root = e->root;
    ce->datatype = e->dtype;
    ce->syncStrategy = e->sync;
    ce->intraBatchSync = e->intra_sync;
    ce->batchSize = e->batch_size;
    ce->numBatches = e->num_batches;
    ce->ceSeqNum = e->ce_seq;
    ce->stream = (void *)e->stream;
    if (version >= NCCL_FIRST_WITH_TAGS) ce->userTag = e->tag;
}

static void fill_modern(struct nccl_descr *d, const struct host_event *e, int version) {
    if (version == 4) *(uint8_t *)d = (uint8_t)e->type;
    else d->type = e->type;
    d->parentObj = e->parent;
    d->rank = e->rank;
    if (!(e->type & nccl_events_of(version))) return;  // an event that this version does not know
    switch (e->type) {
        case NCCL_COLL: fill_coll(&d->coll, e, version); break;
        case NCCL_P2P: fill_p2p(&d->p2p, e, version); break;
        case NCCL_PROXY_OP: fill_proxy_op(&d->proxyOp, e); break;
        case NCCL_PROXY_STEP: d->proxyStep.step = e->step; break;
        case NCCL_KERNEL_CH:
            d->kernelCh = (struct nccl_kernel_ch){(uint8_t)e->channel, e->timer};
            break;
        case NCCL_NET_PLUGIN:
            d->netPlugin = (struct nccl_net_plugin){e->net_id, e->net_data};
            break;
        case NCCL_GROUP_API:
            d->groupApi.graphCaptured = e->graph;
            d->groupApi.groupDepth = e->depth;
            break;
        case NCCL_COLL_API:
            d->collApi.func = e->func;
            d->collApi.count = e->count;
            d->collApi.datatype = e->dtype;
            d->collApi.root = e->root;
            d->collApi.stream = (void *)e->stream;
            d->collApi.graphCaptured = e->graph;
            if (version >= NCCL_FIRST_WITH_TAGS) d->collApi.userTag = e->tag;
            break;
        case NCCL_P2P_API:
            d->p2pApi.func = e->func;
            d->p2pApi.count = e->count;
            d->p2pApi.datatype = e->dtype;
            d->p2pApi.stream = (void *)e->stream;
            d->p2pApi.graphCaptured = e->graph;
            if (version >= NCCL_FIRST_WITH_TAGS) d->p2pApi.userTag = e->tag;
            break;
        case NCCL_KERNEL_LAUNCH: d->kernelLaunch.stream = (void *)e->stream; break;
        case NCCL_CE_COLL: fill_ce_coll(&d->ceColl, e, version); break;
        case NCCL_CE_SYNC:
            d->ceCollSync.isComplete = e->complete;
            d->ceCollSync.nRanks = e->ranks;
            break;
        case NCCL_CE_BATCH:
            d->ceCollBatch.numOps = e->ops;
            d->ceCollBatch.totalBytes = e->bytes;
            d->ceCollBatch.useIntraSync = e->intra_sync;
            break;
        case NCCL_KERNEL_PHASE:
            d->kernelPhase.channelId = (uint8_t)e->channel;
            d->kernelPhase.phaseId = (uint8_t)e->phase;
            d->kernelPhase.phaseName = e->phase_name;
            d->kernelPhase.pTimer = e->timer;
            break;
        default: break;
    }
}

// Blocks of exactly the size asked for, kept by each thread for its next call.
enum block_use { FOR_DESCRIPTOR, FOR_ARGUMENTS };
static _Thread_local struct {
    void *memory;
    size_t bytes;
} blocks[2];

static void *thread_block(size_t bytes, enum block_use use) {
    if (blocks[use].bytes != bytes) {
        free(blocks[use].memory);
        blocks[use].memory = malloc(bytes);
        blocks[use].bytes = bytes;
    }
    return blocks[use].memory;
}

void host_thread_done(void) {
    free(blocks[FOR_DESCRIPTOR].memory);
    free(blocks[FOR_ARGUMENTS].memory);
    memset(blocks, 0, sizeof blocks);
}

void host_start(const struct host *host, void *context, void **handle,
                const struct host_event *event) {
    size_t bytes = nccl_descriptor_bytes(host->version);
    void *d = thread_block(bytes, FOR_DESCRIPTOR);
    memset(d, 0, bytes);
    if (host->version == 1) fill_v1(d, event);
    else if (host->version == 2) fill_v2(d, event);
    else if (host->version == 3) fill_v3(d, event);
    else fill_modern(d, event, host->version);
    ((const struct nccl_profiler_v5 *)host->object)->startEvent(context, handle, d);
    memset(d, POISON, bytes);
}

void host_state(const struct host *host, void *handle, int state, bool has_args, uint64_t arg,
                int steps) {
    size_t bytes = host->version < NCCL_FIRST_WITH_STAMPS ? sizeof(union nccl_state_args_v1)
                                                          : sizeof(union nccl_state_args);
    char *args = NULL;
    if (has_args) {
        args = thread_block(bytes, FOR_ARGUMENTS);
        memset(args, 0, bytes);
        memcpy(args, &arg, sizeof arg);
        if (host->version < NCCL_FIRST_WITH_STAMPS) memcpy(args + 8, &steps, sizeof steps);
    }
    ((const struct nccl_profiler_v5 *)host->object)
        ->recordEventState(handle, state, (const void *)args);
    if (args) memset(args, POISON, bytes);
}
