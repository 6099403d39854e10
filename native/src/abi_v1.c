// NCCL 2.23: functions, datatypes, algorithms and protocols are numbers.
#include "abi_early.h"

static nccl_result init(void **context, int *mask) {
    return abi_early_init(context, mask, 1, __builtin_return_address(0));
}

static struct early_coll coll_of(const void *descriptor) {
    const struct nccl_descr_v1 *d = descriptor;
    return (struct early_coll){.comm_hash = d->coll.commHash,
                               .seq = d->coll.seqNumber,
                               .count = d->coll.count,
                               .traffic_bytes = d->coll.trafficBytes,
                               .send_buff = d->coll.sendBuff,
                               .recv_buff = d->coll.recvBuff,
                               .func = d->coll.func,
                               .dtype = d->coll.datatype,
                               .algo = d->coll.algo,
                               .proto = d->coll.proto,
                               .channels = d->coll.nMaxChannels,
                               .warps = d->coll.nWarps,
                               .bits = (u8)((d->coll.isCollnet ? COLL_IS_COLLNET : 0) |
                                            (d->coll.isNvls ? COLL_IS_NVLS : 0)),
                               .flags = FLAG_NUMBERS,
                               .root = d->coll.root,
                               .op = d->coll.op};
}

static struct early_p2p p2p_of(const void *descriptor) {
    const struct nccl_descr_v1 *d = descriptor;
    return (struct early_p2p){.comm_hash = d->p2p.commHash,
                              .count = d->p2p.count,
                              .buff = d->p2p.buff,
                              .func = d->p2p.func,
                              .dtype = d->p2p.datatype,
                              .flags = FLAG_NUMBERS,
                              .peer = d->p2p.peer};
}

static nccl_result record(void *context, void **handle, const void *descriptor) {
    return abi_early_record(context, handle, descriptor, 1, coll_of, p2p_of);
}

static nccl_result start(void *context, void **handle, const struct nccl_descr_v1 *d) {
    if (UNLIKELY(!event_filter_is_fast(d->type)))
        return event_filter_start(context, handle, d, d->type, 1, record);
    return record(context, handle, d);
}

PLUGIN_EXPORT const struct nccl_profiler_v1 ncclProfiler_v1 = {
    PLUGIN_NAME, init, start, event_stop, abi_early_state, plugin_finalize};
