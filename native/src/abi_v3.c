// NCCL 2.26: kernel channels (without GPU times) and network-plugin events.
#include "abi_early.h"

static nccl_result init(void **context, int *mask) {
    return abi_early_init(context, mask, 3, NCCL_EVENTS_V3, __builtin_return_address(0));
}

static nccl_result record(void *context, void **handle, const void *descriptor) {
    const struct nccl_descr_v3 *d = descriptor;
    switch (d->type) {
        case NCCL_GROUP: event_start_group(context, handle, d->parentObj); break;
        case NCCL_COLL:
            abi_early_start_coll(context, handle,
                                 &(struct early_coll){.comm_hash = d->coll.commHash,
                                                      .seq = d->coll.seqNumber,
                                                      .count = d->coll.count,
                                                      .parent = d->parentObj,
                                                      .send_buff = d->coll.sendBuff,
                                                      .recv_buff = d->coll.recvBuff,
                                                      .func = intern(d->coll.func),
                                                      .dtype = intern(d->coll.datatype),
                                                      .algo = intern(d->coll.algo),
                                                      .proto = intern(d->coll.proto),
                                                      .channels = d->coll.nMaxChannels,
                                                      .warps = d->coll.nWarps,
                                                      .rank = d->rank,
                                                      .root = d->coll.root});
            break;
        case NCCL_P2P:
            start_early_named_p2p(context, handle, d->parentObj, d->rank, &d->p2p);
            break;
        case NCCL_PROXY_OP:
            event_start_proxy_op(context, handle, d->parentObj, d->rank, &d->proxyOp);
            break;
        case NCCL_PROXY_STEP:
            event_start_proxy_step(context, handle, d->parentObj, d->rank, d->proxyStep.step);
            break;
        case NCCL_PROXY_CTRL: event_start_proxy_ctrl(context, handle, d->parentObj); break;
        case NCCL_KERNEL_CH:
            event_start_kernel_ch(context, handle, d->parentObj, d->rank, &d->kernelCh, false);
            break;
        case NCCL_NET_PLUGIN:
            event_start_net(context, handle, d->parentObj, d->rank, &d->netPlugin);
            break;
        default: event_start_unknown(handle);
    }
    return 0;
}

static nccl_result start(void *context, void **handle, const struct nccl_descr_v3 *d) {
    if (UNLIKELY(!event_filter_is_fast(d->type)))
        return event_filter_start(context, handle, d, d->type, 3, record);
    return record(context, handle, d);
}

PLUGIN_EXPORT const struct nccl_profiler_v3 ncclProfiler_v3 = {
    PLUGIN_NAME, init, start, event_stop, abi_early_state, plugin_finalize};
