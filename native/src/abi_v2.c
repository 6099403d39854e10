// NCCL 2.24 and 2.25: names instead of numbers.
#include "abi_early.h"

static nccl_result init(void **context, int *mask) {
    return abi_early_init(context, mask, 2, NCCL_EVENTS_V1, __builtin_return_address(0));
}

static nccl_result record(void *context, void **handle, const void *descriptor) {
    const struct nccl_descr_v2 *d = descriptor;
    switch (d->type) {
        case NCCL_GROUP: event_start_group(context, handle, d->parentObj); break;
        case NCCL_COLL:
            abi_early_start_coll(context, handle,
                                 &(struct early_coll){.comm_hash = d->coll.commHash,
                                                      .seq = d->coll.seqNumber,
                                                      .count = d->coll.count,
                                                      .traffic_bytes = d->coll.trafficBytes,
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
        default: event_start_unknown(handle);
    }
    return 0;
}

static nccl_result start(void *context, void **handle, const struct nccl_descr_v2 *d) {
    if (UNLIKELY(!event_filter_is_fast(d->type)))
        return event_filter_start(context, handle, d, d->type, 2, record);
    return record(context, handle, d);
}

PLUGIN_EXPORT const struct nccl_profiler_v2 ncclProfiler_v2 = {
    PLUGIN_NAME, init, start, event_stop, abi_early_state, plugin_finalize};
