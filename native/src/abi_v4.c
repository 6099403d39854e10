// NCCL 2.27: the first version that says which communicator it initialises.
#include "abi_modern.h"

static nccl_result init(void **context, int *mask, const char *commName, uint64_t commHash,
                        int nNodes, int nRanks, int rank, nccl_log_fn log) {
    return abi_modern_init(context, commHash, mask, commName, nNodes, nRanks, rank, log, 4,
                           __builtin_return_address(0));
}

static SLOW_PATH nccl_result record(void *context, void **handle, const void *descriptor) {
    const struct nccl_descr *d = descriptor;
    return start_slow(context, handle, d, *(const uint8_t *)d, 4);  // type is one byte here
}

static HOT nccl_result start(void *context, void **handle, const struct nccl_descr *d) {
    u64 type = *(const uint8_t *)d;
    if (UNLIKELY(!event_filter_is_fast(type)))
        return event_filter_start(context, handle, d, type, 4, record);
    return start_fast(context, handle, d, type, 4, record);
}

PLUGIN_EXPORT const struct nccl_profiler_v4 ncclProfiler_v4 = {
    PLUGIN_NAME, init, start, event_stop, abi_modern_state, plugin_finalize};
