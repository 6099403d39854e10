// NCCL 2.24 and 2.25: names instead of numbers.
#include "abi_early.h"

static nccl_result init(void **context, int *mask) {
    return abi_early_init(context, mask, 2, __builtin_return_address(0));
}

static struct early_coll coll_of(const void *descriptor) {
    const struct nccl_descr_v2 *d = descriptor;
    return (struct early_coll){.comm_hash = d->coll.commHash,
                               .seq = d->coll.seqNumber,
                               .count = d->coll.count,
                               .traffic_bytes = d->coll.trafficBytes,
                               .send_buff = d->coll.sendBuff,
                               .recv_buff = d->coll.recvBuff,
                               .func = intern(d->coll.func),
                               .dtype = intern(d->coll.datatype),
                               .algo = intern(d->coll.algo),
                               .proto = intern(d->coll.proto),
                               .channels = d->coll.nMaxChannels,
                               .warps = d->coll.nWarps,
                               .root = d->coll.root};
}

static struct early_p2p p2p_of(const void *descriptor) {
    return abi_early_named_p2p(&((const struct nccl_descr_v2 *)descriptor)->p2p);
}

static nccl_result record(void *context, void **handle, const void *descriptor) {
    return abi_early_record(context, handle, descriptor, 2, coll_of, p2p_of);
}

static nccl_result start(void *context, void **handle, const struct nccl_descr_v2 *d) {
    if (UNLIKELY(!event_filter_is_fast(d->type)))
        return event_filter_start(context, handle, d, d->type, 2, record);
    return record(context, handle, d);
}

PLUGIN_EXPORT const struct nccl_profiler_v2 ncclProfiler_v2 = {
    PLUGIN_NAME, init, start, event_stop, abi_early_state, plugin_finalize};
