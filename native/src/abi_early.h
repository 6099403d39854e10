// What interface versions 1 to 3 share: a silent init, states with other arguments, the
// communicator's hash in each event. Their descriptors differ in Coll and P2p alone: abi_v1.c to
// abi_v3.c say how to read those.
#ifndef NCCLSCOPE_ABI_EARLY_H
#define NCCLSCOPE_ABI_EARLY_H

#include "event.h"
#include "event_filter.h"
#include "intern.h"
#include "plugin.h"

nccl_result abi_early_state(void *handle, int state, const union nccl_state_args_v1 *args);
nccl_result abi_early_init(void **context, int *mask, unsigned version, const void *nccl_address);

// A Coll or P2p in a form that holds what any of these versions has.
struct early_coll {
    u64 comm_hash, seq, count, traffic_bytes;
    const void *send_buff, *recv_buff;
    u8 func, dtype, algo, proto, channels, warps, bits, flags;
    i32 root;
    u32 op;
};
struct early_p2p {
    u64 comm_hash, count;
    const void *buff;
    u8 func, dtype, flags;
    i32 peer;
};
void abi_early_start_coll(void *context, void **handle, const struct nccl_descr_early *d,
                          const struct early_coll *coll);
void abi_early_start_p2p(void *context, void **handle, const struct nccl_descr_early *d,
                         const struct early_p2p *p2p);

typedef struct early_coll (*early_coll_fn)(const void *descriptor);
typedef struct early_p2p (*early_p2p_fn)(const void *descriptor);

// An event of one slot. type is a constant of the caller.
EVENT void abi_early_start_one(void *context, void **handle, const struct nccl_descr_early *d,
                               u64 type) {
    struct event event = event_start(context, handle, d->parentObj, 1, type);
    unsigned chan = 0, flags = 0;
    if (UNLIKELY(!event.slot)) return;
    if (type == NCCL_GROUP) flags = event_fill_group(&event);
    if (type == NCCL_PROXY_OP) {
        chan = d->proxyOp.channelId;
        flags = event_fill_proxy_op(&event, context, d->rank, &d->proxyOp);
    }
    if (type == NCCL_PROXY_STEP) flags = event_fill_proxy_step(&event, d->rank, d->proxyStep.step);
    if (type == NCCL_PROXY_CTRL) flags = event_fill_proxy_ctrl(&event);
    if (type == NCCL_KERNEL_CH) {
        chan = d->kernelCh.channelId;
        flags = event_fill_kernel_ch(&event, d->rank, &d->kernelCh, false);
    }
    event_commit(&event, NCCL_NUMBER(type) + 1, chan, flags);
}

// Records one start. version, coll_of and p2p_of are constants of the caller, and inlined.
EVENT nccl_result abi_early_record(void *context, void **handle, const void *descriptor,
                                   int version, early_coll_fn coll_of, early_p2p_fn p2p_of) {
    const struct nccl_descr_early *d = descriptor;
    if (UNLIKELY(!callback_state_is_recording())) {
        *handle = NULL;
        return 0;
    }
    switch (d->type & (unsigned)NCCL_EVENTS_OF(version) ? d->type : 0) {
        case NCCL_GROUP: abi_early_start_one(context, handle, d, NCCL_GROUP); break;
        case NCCL_COLL: {
            struct early_coll coll = coll_of(descriptor);
            abi_early_start_coll(context, handle, d, &coll);
            break;
        }
        case NCCL_P2P: {
            struct early_p2p p2p = p2p_of(descriptor);
            abi_early_start_p2p(context, handle, d, &p2p);
            break;
        }
        case NCCL_PROXY_OP: abi_early_start_one(context, handle, d, NCCL_PROXY_OP); break;
        case NCCL_PROXY_STEP:
            if (UNLIKELY(*handle != NULL) &&
                event_is_repeated_step(*handle, d->parentObj, d->proxyStep.step))
                break;
            abi_early_start_one(context, handle, d, NCCL_PROXY_STEP);
            break;
        case NCCL_PROXY_CTRL: abi_early_start_one(context, handle, d, NCCL_PROXY_CTRL); break;
        case NCCL_KERNEL_CH: abi_early_start_one(context, handle, d, NCCL_KERNEL_CH); break;
        case NCCL_NET_PLUGIN:
            event_start_net(context, handle, d->parentObj, d->rank, &d->netPlugin);
            break;
        default: event_start_unknown(handle);
    }
    return 0;
}

// v2 and v3 have one P2p.
static inline struct early_p2p abi_early_named_p2p(const struct nccl_p2p_v2 *p2p) {
    return (struct early_p2p){.comm_hash = p2p->commHash,
                              .count = p2p->count,
                              .buff = p2p->buff,
                              .func = intern(p2p->func),
                              .dtype = intern(p2p->datatype),
                              .peer = p2p->peer};
}

#endif
