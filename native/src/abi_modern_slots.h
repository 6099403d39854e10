// What events of interface versions from 4 on put into their slots: a fill_ function for each kind.
// They return the flags of the slot's head. version is a constant of the caller, so that the
// compiler leaves out what a version does not have.
#ifndef NCCLSCOPE_ABI_MODERN_SLOTS_H
#define NCCLSCOPE_ABI_MODERN_SLOTS_H

#include "event.h"
#include "intern.h"

#define MODERN static inline __attribute__((always_inline))

MODERN u64 address(const void *pointer) { return (u64)(uintptr_t)pointer; }

#define HAS_CALLS(version) ((version) >= NCCL_FIRST_WITH_CALLS)
#define HAS_TAGS(version) ((version) >= NCCL_FIRST_WITH_TAGS)
MODERN bool is_known(int version, u64 type, u64 event) {
    return (NCCL_EVENTS_OF(version) & event) && type == event;
}

// The ids of a call's texts.
struct names {
    u8 func, dtype, algo, proto, variant;
};

MODERN void fill_coll_ext(const struct event *event, const struct nccl_descr *d, int version) {
    const struct nccl_coll *coll = &d->coll;
    struct slot_coll_ext *ext = &event->slot[1].coll_ext;
    ext->parent_group = HAS_CALLS(version) ? address(coll->parentGroup) : 0;
    ext->send_buff = address(coll->sendBuff);
    ext->recv_buff = address(coll->recvBuff);
    ext->tag = HAS_TAGS(version) ? coll->userTag : 0;
    ext->traffic_bytes = ext->comm_hash = 0;
    ext->rank = d->rank;
    ext->op = 0;
    event_commit_ext(event, KIND_coll_ext);
}

MODERN unsigned fill_coll(const struct event *event, const struct nccl_descr *d, struct names names,
                          int version, unsigned slots) {
    const struct nccl_coll *coll = &d->coll;
    struct slot_coll *slot = &event->slot->coll;
    slot->seq = coll->seqNumber;
    slot->count = coll->count;
    slot->func = names.func;
    slot->dtype = names.dtype;
    slot->algo = names.algo;
    slot->proto = names.proto;
    slot->channels = coll->nChannels;
    slot->warps = coll->nWarps;
    slot->variant = names.variant;
    slot->bits = HAS_TAGS(version) && coll->isSymColl ? COLL_IS_SYMMETRIC : 0;
    slot->root = coll->root;
    slot->comm = (u16)event->comm;
    if (slots == 2) {
        fill_coll_ext(event, d, version);
        return FLAG_EXT | FLAG_RANK_IN;
    }
    union slot *group = event->slot - 1;
    SLOT_STORE(group->group.send_buff, address(coll->sendBuff));
    SLOT_STORE(group->group.recv_buff, address(coll->recvBuff));
    slot_commit(group, head_with_states(slot_head_own(group), STATE_FIRST));
    return FLAG_IN_GROUP | event_rank_flag(event, d->rank);
}

MODERN unsigned fill_p2p(const struct event *event, const struct nccl_descr *d, struct names names,
                         int version, unsigned slots) {
    const struct nccl_p2p *p2p = &d->p2p;
    struct slot_p2p *slot = &event->slot->p2p;
    slot->buff = address(p2p->buff);
    slot->count = p2p->count;
    slot->parent_group = HAS_CALLS(version) ? address(p2p->parentGroup) : 0;
    slot->func = names.func;
    slot->dtype = names.dtype;
    slot->comm = (u16)event->comm;
    slot->peer = p2p->peer;
    if (slots == 1) return event_rank_flag(event, d->rank);
    struct slot_p2p_ext *ext = &event->slot[1].p2p_ext;
    ext->tag = p2p->userTag;
    ext->comm_hash = 0;
    ext->rank = d->rank;
    event_commit_ext(event, KIND_p2p_ext);
    return FLAG_EXT | FLAG_RANK_IN;
}

MODERN unsigned fill_group_api(const struct event *event, const struct nccl_descr *d) {
    event->slot->group_api.depth = d->groupApi.groupDepth;
    event->slot->group_api.comm = (u16)event->comm;
    return event_rank_flag(event, d->rank) | (d->groupApi.graphCaptured ? FLAG_GRAPH : 0);
}

MODERN unsigned fill_coll_api(const struct event *event, const struct nccl_descr *d,
                              struct names names, int version) {
    struct slot_coll_api *slot = &event->slot->coll_api;
    slot->count = d->collApi.count;
    slot->stream = address(d->collApi.stream);
    slot->tag = HAS_TAGS(version) ? d->collApi.userTag : 0;
    slot->func = names.func;
    slot->dtype = names.dtype;
    slot->comm = (u16)event->comm;
    slot->root = d->collApi.root;
    return event_rank_flag(event, d->rank) | (d->collApi.graphCaptured ? FLAG_GRAPH : 0);
}

MODERN unsigned fill_p2p_api(const struct event *event, const struct nccl_descr *d,
                             struct names names, int version) {
    struct slot_p2p_api *slot = &event->slot->p2p_api;
    slot->count = d->p2pApi.count;
    slot->stream = address(d->p2pApi.stream);
    slot->tag = HAS_TAGS(version) ? d->p2pApi.userTag : 0;
    slot->func = names.func;
    slot->dtype = names.dtype;
    slot->comm = (u16)event->comm;
    slot->root = 0;
    return event_rank_flag(event, d->rank) | (d->p2pApi.graphCaptured ? FLAG_GRAPH : 0);
}

MODERN unsigned fill_kernel_launch(const struct event *event, const struct nccl_descr *d) {
    event->slot->kernel_launch.stream = address(d->kernelLaunch.stream);
    event->slot->kernel_launch.comm = (u16)event->comm;
    return event_rank_flag(event, d->rank);
}

MODERN unsigned fill_ce_coll(const struct event *event, const struct nccl_descr *d,
                             struct names names, int version) {
    const struct nccl_ce_coll *ce = &d->ceColl;
    struct slot_ce_coll *slot = &event->slot->ce_coll;
    struct slot_ce_ext *ext = &event->slot[1].ce_ext;
    slot->seq = ce->seqNumber;
    slot->count = ce->count;
    slot->func = names.func;
    slot->dtype = names.dtype;
    slot->sync = intern(ce->syncStrategy);
    slot->comm = (u16)event->comm;
    slot->root = ce->root;
    slot->ce_seq = ce->ceSeqNum;
    ext->send_buff = address(ce->sendBuff);
    ext->recv_buff = address(ce->recvBuff);
    ext->stream = address(ce->stream);
    ext->tag = HAS_TAGS(version) ? ce->userTag : 0;
    ext->batch_size = ce->batchSize;
    ext->num_batches = ce->numBatches;
    ext->rank = d->rank;
    event_commit_ext(event, KIND_ce_ext);
    return FLAG_EXT | FLAG_RANK_IN | (ce->intraBatchSync ? FLAG_SEND : 0);
}

MODERN unsigned fill_ce_sync(const struct event *event, const struct nccl_descr *d) {
    event->slot->ce_sync.ranks = d->ceCollSync.nRanks;
    event->slot->ce_sync.comm = (u16)event->comm;
    return event_rank_flag(event, d->rank) | (d->ceCollSync.isComplete ? FLAG_SEND : 0);
}

MODERN unsigned fill_ce_batch(const struct event *event, const struct nccl_descr *d) {
    event->slot->ce_batch.bytes = d->ceCollBatch.totalBytes;
    event->slot->ce_batch.ops = d->ceCollBatch.numOps;
    event->slot->ce_batch.comm = (u16)event->comm;
    return event_rank_flag(event, d->rank) | (d->ceCollBatch.useIntraSync ? FLAG_SEND : 0);
}

MODERN unsigned fill_kernel_phase(const struct event *event, const struct nccl_descr *d) {
    event->slot->kernel_phase.gpu_start = d->kernelPhase.pTimer;
    event->slot->kernel_phase.phase = d->kernelPhase.phaseId;
    event->slot->kernel_phase.name = intern(d->kernelPhase.phaseName);
    event->slot->kernel_phase.comm = (u16)event->comm;
    return event_rank_flag(event, d->rank);
}

// Events that a version does not have never come here.
MODERN void fill_and_commit(const struct event *event, void *context, const struct nccl_descr *d,
                            u64 type, struct names names, int version, unsigned slots) {
    unsigned chan = 0, flags = 0;
    if (type == NCCL_PROXY_STEP) flags = event_fill_proxy_step(event, d->rank, d->proxyStep.step);
    else if (type == NCCL_KERNEL_CH) {
        chan = d->kernelCh.channelId;
        flags = event_fill_kernel_ch(event, d->rank, &d->kernelCh, true);
    } else if (type == NCCL_GROUP) flags = event_fill_group(event);
    else if (type == NCCL_COLL) flags = fill_coll(event, d, names, version, slots);
    else if (type == NCCL_P2P) {
        chan = d->p2p.nChannels;
        flags = fill_p2p(event, d, names, version, slots);
    } else if (type == NCCL_PROXY_OP) {
        chan = d->proxyOp.channelId;
        flags = event_fill_proxy_op(event, context, d->rank, &d->proxyOp);
    } else if (type == NCCL_PROXY_CTRL) flags = event_fill_proxy_ctrl(event);
    else if (is_known(version, type, NCCL_GROUP_API)) flags = fill_group_api(event, d);
    else if (is_known(version, type, NCCL_COLL_API))
        flags = fill_coll_api(event, d, names, version);
    else if (is_known(version, type, NCCL_P2P_API)) flags = fill_p2p_api(event, d, names, version);
    else if (is_known(version, type, NCCL_KERNEL_LAUNCH)) flags = fill_kernel_launch(event, d);
    else if (is_known(version, type, NCCL_CE_COLL)) flags = fill_ce_coll(event, d, names, version);
    else if (is_known(version, type, NCCL_CE_SYNC)) flags = fill_ce_sync(event, d);
    else if (is_known(version, type, NCCL_CE_BATCH)) flags = fill_ce_batch(event, d);
    else if (is_known(version, type, NCCL_KERNEL_PHASE)) {
        chan = d->kernelPhase.channelId;
        flags = fill_kernel_phase(event, d);
    }
    event_commit(event, NCCL_NUMBER(type) + 1, chan, flags);  // event kinds are numbered so
}

#endif
