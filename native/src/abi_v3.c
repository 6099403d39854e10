// NCCL 2.26: kernel channels (without GPU times) and network-plugin events.
#include "abi_early.h"

static nccl_result init(void **context, int *mask) {
    return abi_early_init(context, mask, 3, __builtin_return_address(0));
}

static struct early_coll coll_of(const void *descriptor) {
    const struct nccl_descr_v3 *d = descriptor;
    return (struct early_coll){.comm_hash = d->coll.commHash,
                               .seq = d->coll.seqNumber,
                               .count = d->coll.count,
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
    return abi_early_named_p2p(&((const struct nccl_descr_v3 *)descriptor)->p2p);
}

static nccl_result record(void *context, void **handle, const void *descriptor) {
    return abi_early_record(context, handle, descriptor, 3, coll_of, p2p_of);
}

static nccl_result start(void *context, void **handle, const struct nccl_descr_v3 *d) {
    if (UNLIKELY(!event_filter_is_fast(d->type)))
        return event_filter_start(context, handle, d, d->type, 3, record);
    return record(context, handle, d);
}

PLUGIN_EXPORT const struct nccl_profiler_v3 ncclProfiler_v3 = {
    PLUGIN_NAME, init, start, event_stop, abi_early_state, plugin_finalize};
