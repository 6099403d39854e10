// NCCL 2.28: API calls and kernel launches.
#include "abi_modern.h"

static nccl_result init(void **context, uint64_t commId, int *mask, const char *commName,
                        int nNodes, int nRanks, int rank, nccl_log_fn log) {
    return abi_modern_init(context, commId, mask, commName, nNodes, nRanks, rank, log, 5,
                           __builtin_return_address(0));
}

static SLOW_PATH nccl_result record(void *context, void **handle, const void *descriptor) {
    const struct nccl_descr *d = descriptor;
    return start_slow(context, handle, d, d->type, 5);
}

static HOT nccl_result start(void *context, void **handle, const struct nccl_descr *d) {
    u64 type = d->type;
    if (UNLIKELY(!event_filter_is_fast(type)))
        return event_filter_start(context, handle, d, type, 5, record);
    return start_fast(context, handle, d, type, 5, record);
}

PLUGIN_EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {
    PLUGIN_NAME, init, start, event_stop, abi_modern_state, plugin_finalize};
