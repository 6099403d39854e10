// Interface versions 4 to 7: one family of layouts, each a prefix of the next. abi_v4.c to abi_v7.c
// call in here with their version as a constant, so that the compiler leaves out what a version
// does not have.
#ifndef NCCLSCOPE_ABI_MODERN_H
#define NCCLSCOPE_ABI_MODERN_H

#include "event.h"
#include "gate.h"
#include "intern.h"
#include "plugin.h"

#define MODERN static inline __attribute__((always_inline))

MODERN u64 address(const void *pointer) { return (u64)(uintptr_t)pointer; }

MODERN void start_coll(void *context, void **handle, const struct nccl_descr *d, int version) {
    struct event event = event_of(context, 1);
    const struct nccl_coll *coll = &d->coll;
    u8 func = intern(coll->func), dtype = intern(coll->datatype);
    u8 algo = intern(coll->algo), proto = intern(coll->proto);
    struct stream *stream = stream_of_thread();
    tally_call(stream, tally_key(event.comm, LEVEL_WORK, func, dtype, algo, proto, 0, coll->count));
    if (UNLIKELY(!event_begin(&event, stream, handle, d->parentObj, 2, 1))) return;
    struct slot_coll *slot = &event.slot->coll;
    struct slot_coll_ext *ext = &event.slot[1].coll_ext;
    slot->seq = coll->seqNumber;
    slot->count = coll->count;
    slot->func = func;
    slot->dtype = dtype;
    slot->algo = algo;
    slot->proto = proto;
    slot->channels = coll->nChannels;
    slot->warps = coll->nWarps;
    slot->variant = version >= 7 ? intern(coll->kernelVariant) : 0;
    slot->bits = version >= 7 && coll->isSymColl ? COLL_IS_SYMMETRIC : 0;
    slot->root = coll->root;
    slot->comm = (u16)event.comm;
    ext->parent_group = version >= 5 ? address(coll->parentGroup) : 0;
    ext->send_buff = address(coll->sendBuff);
    ext->recv_buff = address(coll->recvBuff);
    ext->tag = version >= 7 ? coll->userTag : 0;
    ext->traffic_bytes = ext->comm_hash = 0;
    ext->rank = d->rank;
    ext->op = 0;
    event_commit_ext(&event, KIND_coll_ext);
    event_commit(&event, KIND_coll, 0, FLAG_EXT | FLAG_RANK_IN);
}

MODERN void start_p2p(void *context, void **handle, const struct nccl_descr *d, int version) {
    struct event event = event_of(context, 2);
    const struct nccl_p2p *p2p = &d->p2p;
    u8 func = intern(p2p->func), dtype = intern(p2p->datatype);
    struct stream *stream = stream_of_thread();
    tally_call(stream, tally_key(event.comm, LEVEL_WORK, func, dtype, 0, 0, 0, p2p->count));
    u64 tag = version >= 7 ? p2p->userTag : 0;
    unsigned slots = tag ? 2 : 1;
    if (UNLIKELY(!event_begin(&event, stream, handle, d->parentObj, slots, 2))) return;
    struct slot_p2p *slot = &event.slot->p2p;
    slot->buff = address(p2p->buff);
    slot->count = p2p->count;
    slot->parent_group = version >= 5 ? address(p2p->parentGroup) : 0;
    slot->func = func;
    slot->dtype = dtype;
    slot->comm = (u16)event.comm;
    slot->peer = p2p->peer;
    unsigned flags = event_rank_flag(&event, d->rank);
    if (slots == 2) {
        struct slot_p2p_ext *ext = &event.slot[1].p2p_ext;
        ext->tag = tag;
        ext->comm_hash = 0;
        ext->rank = d->rank;
        event_commit_ext(&event, KIND_p2p_ext);
        flags = FLAG_EXT | FLAG_RANK_IN;
    }
    event_commit(&event, KIND_p2p, p2p->nChannels, flags);
}

MODERN void start_group_api(void *context, void **handle, const struct nccl_descr *d) {
    struct event event = event_start(context, handle, d->parentObj, 1, 8);
    if (UNLIKELY(!event.slot)) return;
    event.slot->group_api.depth = d->groupApi.groupDepth;
    event.slot->group_api.comm = (u16)event.comm;
    event_commit(&event, KIND_group_api, 0,
                 event_rank_flag(&event, d->rank) | (d->groupApi.graphCaptured ? FLAG_GRAPH : 0));
}

MODERN void start_coll_api(void *context, void **handle, const struct nccl_descr *d, int version) {
    struct event event = event_of(context, 9);
    u8 func = intern(d->collApi.func), dtype = intern(d->collApi.datatype);
    bool captured = d->collApi.graphCaptured;
    struct stream *stream = stream_of_thread();
    tally_call(stream, tally_key(event.comm, LEVEL_CALL, func, dtype, 0, 0,
                                 captured ? TALLY_CAPTURED : 0, d->collApi.count));
    if (UNLIKELY(!event_begin(&event, stream, handle, d->parentObj, 1, 9))) return;
    struct slot_coll_api *slot = &event.slot->coll_api;
    slot->count = d->collApi.count;
    slot->stream = address(d->collApi.stream);
    slot->tag = version >= 7 ? d->collApi.userTag : 0;
    slot->func = func;
    slot->dtype = dtype;
    slot->comm = (u16)event.comm;
    slot->root = d->collApi.root;
    event_commit(&event, KIND_coll_api, 0,
                 event_rank_flag(&event, d->rank) | (captured ? FLAG_GRAPH : 0));
}

MODERN void start_p2p_api(void *context, void **handle, const struct nccl_descr *d, int version) {
    struct event event = event_of(context, 10);
    u8 func = intern(d->p2pApi.func), dtype = intern(d->p2pApi.datatype);
    bool captured = d->p2pApi.graphCaptured;
    struct stream *stream = stream_of_thread();
    tally_call(stream, tally_key(event.comm, LEVEL_CALL, func, dtype, 0, 0,
                                 captured ? TALLY_CAPTURED : 0, d->p2pApi.count));
    if (UNLIKELY(!event_begin(&event, stream, handle, d->parentObj, 1, 10))) return;
    struct slot_p2p_api *slot = &event.slot->p2p_api;
    slot->count = d->p2pApi.count;
    slot->stream = address(d->p2pApi.stream);
    slot->tag = version >= 7 ? d->p2pApi.userTag : 0;
    slot->func = func;
    slot->dtype = dtype;
    slot->comm = (u16)event.comm;
    slot->root = 0;
    event_commit(&event, KIND_p2p_api, 0,
                 event_rank_flag(&event, d->rank) | (captured ? FLAG_GRAPH : 0));
}

MODERN void start_kernel_launch(void *context, void **handle, const struct nccl_descr *d) {
    struct event event = event_start(context, handle, d->parentObj, 1, 11);
    if (UNLIKELY(!event.slot)) return;
    event.slot->kernel_launch.stream = address(d->kernelLaunch.stream);
    event.slot->kernel_launch.comm = (u16)event.comm;
    event_commit(&event, KIND_kernel_launch, 0, event_rank_flag(&event, d->rank));
}

MODERN void start_ce_coll(void *context, void **handle, const struct nccl_descr *d, int version) {
    struct event event = event_of(context, 12);
    const struct nccl_ce_coll *ce = &d->ceColl;
    u8 func = intern(ce->func), dtype = intern(ce->datatype);
    struct stream *stream = stream_of_thread();
    tally_call(stream, tally_key(event.comm, LEVEL_COPY_ENGINE, func, dtype, 0, 0, 0, ce->count));
    if (UNLIKELY(!event_begin(&event, stream, handle, d->parentObj, 2, 12))) return;
    struct slot_ce_coll *slot = &event.slot->ce_coll;
    struct slot_ce_ext *ext = &event.slot[1].ce_ext;
    slot->seq = ce->seqNumber;
    slot->count = ce->count;
    slot->func = func;
    slot->dtype = dtype;
    slot->sync = intern(ce->syncStrategy);
    slot->comm = (u16)event.comm;
    slot->root = ce->root;
    slot->ce_seq = ce->ceSeqNum;
    ext->send_buff = address(ce->sendBuff);
    ext->recv_buff = address(ce->recvBuff);
    ext->stream = address(ce->stream);
    ext->tag = version >= 7 ? ce->userTag : 0;
    ext->batch_size = ce->batchSize;
    ext->num_batches = ce->numBatches;
    ext->rank = d->rank;
    event_commit_ext(&event, KIND_ce_ext);
    event_commit(&event, KIND_ce_coll, 0,
                 FLAG_EXT | FLAG_RANK_IN | (ce->intraBatchSync ? FLAG_SEND : 0));
}

MODERN void start_ce_sync(void *context, void **handle, const struct nccl_descr *d) {
    struct event event = event_start(context, handle, d->parentObj, 1, 13);
    if (UNLIKELY(!event.slot)) return;
    event.slot->ce_sync.ranks = d->ceCollSync.nRanks;
    event.slot->ce_sync.comm = (u16)event.comm;
    event_commit(&event, KIND_ce_sync, 0,
                 event_rank_flag(&event, d->rank) | (d->ceCollSync.isComplete ? FLAG_SEND : 0));
}

MODERN void start_ce_batch(void *context, void **handle, const struct nccl_descr *d) {
    struct event event = event_start(context, handle, d->parentObj, 1, 14);
    if (UNLIKELY(!event.slot)) return;
    event.slot->ce_batch.bytes = d->ceCollBatch.totalBytes;
    event.slot->ce_batch.ops = d->ceCollBatch.numOps;
    event.slot->ce_batch.comm = (u16)event.comm;
    event_commit(&event, KIND_ce_batch, 0,
                 event_rank_flag(&event, d->rank) | (d->ceCollBatch.useIntraSync ? FLAG_SEND : 0));
}

MODERN void start_kernel_phase(void *context, void **handle, const struct nccl_descr *d) {
    struct event event = event_start(context, handle, d->parentObj, 1, 15);
    if (UNLIKELY(!event.slot)) return;
    event.slot->kernel_phase.gpu_start = d->kernelPhase.pTimer;
    event.slot->kernel_phase.phase = d->kernelPhase.phaseId;
    event.slot->kernel_phase.name = intern(d->kernelPhase.phaseName);
    event.slot->kernel_phase.comm = (u16)event.comm;
    event_commit(&event, KIND_kernel_phase, d->kernelPhase.channelId,
                 event_rank_flag(&event, d->rank));
}

MODERN nccl_result start_modern(void *context, void **handle, const struct nccl_descr *d, u64 type,
                                int version) {
    // Steps first: they are most of what there is.
    if (LIKELY(type == NCCL_PROXY_STEP)) {
        start_proxy_step(context, handle, d->parentObj, d->rank, d->proxyStep.step);
        return 0;
    }
    switch (type) {
        case NCCL_KERNEL_CH:
            start_kernel_ch(context, handle, d->parentObj, d->rank, &d->kernelCh, true);
            return 0;
        case NCCL_PROXY_OP:
            start_proxy_op(context, handle, d->parentObj, d->rank, &d->proxyOp);
            return 0;
        case NCCL_PROXY_CTRL: start_proxy_ctrl(context, handle, d->parentObj); return 0;
        case NCCL_COLL: start_coll(context, handle, d, version); return 0;
        case NCCL_P2P: start_p2p(context, handle, d, version); return 0;
        case NCCL_GROUP: start_group(context, handle, d->parentObj); return 0;
        case NCCL_NET_PLUGIN:
            start_net(context, handle, d->parentObj, d->rank, &d->netPlugin);
            return 0;
        default: break;
    }
    if (version >= 5) switch (type) {
            case NCCL_GROUP_API: start_group_api(context, handle, d); return 0;
            case NCCL_COLL_API: start_coll_api(context, handle, d, version); return 0;
            case NCCL_P2P_API: start_p2p_api(context, handle, d, version); return 0;
            case NCCL_KERNEL_LAUNCH: start_kernel_launch(context, handle, d); return 0;
            default: break;
        }
    if (version >= 6) switch (type) {
            case NCCL_CE_COLL: start_ce_coll(context, handle, d, version); return 0;
            case NCCL_CE_SYNC: start_ce_sync(context, handle, d); return 0;
            case NCCL_CE_BATCH: start_ce_batch(context, handle, d); return 0;
            default: break;
        }
    if (version >= 7 && type == NCCL_KERNEL_PHASE) {
        start_kernel_phase(context, handle, d);
        return 0;
    }
    start_unknown(handle);
    return 0;
}

// One function for all four versions.
nccl_result state_modern(void *handle, int state, const union nccl_state_args *args);

// v5 to v7 differ from each other in the events they know.
MODERN nccl_result init_modern(void **context, u64 id, int *mask, const char *name, i32 nodes,
                               i32 ranks, i32 rank, nccl_log_fn log, int version, u32 events,
                               const void *nccl_address) {
    struct comm_description description = {.version = (unsigned)version,
                                           .known = true,
                                           .id = id,
                                           .name = name,
                                           .nodes = nodes,
                                           .ranks = ranks,
                                           .rank = rank};
    return plugin_init(context, mask, &description, events, log, nccl_address);
}

#endif
