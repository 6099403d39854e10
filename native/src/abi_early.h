// What interface versions 1 to 3 share: a silent init, states with other arguments, communicator
// hash in each event.
#ifndef NCCLSCOPE_ABI_EARLY_H
#define NCCLSCOPE_ABI_EARLY_H

#include "event.h"
#include "event_filter.h"
#include "intern.h"
#include "plugin.h"

nccl_result abi_early_state(void *handle, int state, const union nccl_state_args_v1 *args);
nccl_result abi_early_init(void **context, int *mask, unsigned version, u32 events,
                           const void *nccl_address);

// A Coll or P2p of these versions in the form that all of them can be brought to.
struct early_coll {
    u64 comm_hash, seq, count, traffic_bytes;
    const void *parent, *send_buff, *recv_buff;
    u8 func, dtype, algo, proto, channels, warps, bits, flags;
    i32 rank, root;
    u32 op;
};
struct early_p2p {
    u64 comm_hash, count;
    const void *parent, *buff;
    u8 func, dtype, flags;
    i32 rank, peer;
};
void abi_early_start_coll(void *context, void **handle, const struct early_coll *coll);
void abi_early_start_p2p(void *context, void **handle, const struct early_p2p *p2p);

// v2 and v3 have one P2p.
static inline void start_early_named_p2p(void *context, void **handle, const void *parent, i32 rank,
                                         const struct nccl_p2p_v2 *p2p) {
    abi_early_start_p2p(context, handle,
                        &(struct early_p2p){.comm_hash = p2p->commHash,
                                            .count = p2p->count,
                                            .parent = parent,
                                            .buff = p2p->buff,
                                            .func = intern(p2p->func),
                                            .dtype = intern(p2p->datatype),
                                            .rank = rank,
                                            .peer = p2p->peer});
}

#endif
