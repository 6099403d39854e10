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
// Any other event of these versions.
void abi_early_start_other(void *context, void **handle, const struct nccl_descr_early *d);

typedef struct early_coll (*early_coll_fn)(const void *descriptor);
typedef struct early_p2p (*early_p2p_fn)(const void *descriptor);

// Records one start. version, coll_of and p2p_of are constants of the caller, and inlined.
EVENT nccl_result abi_early_record(void *context, void **handle, const void *descriptor,
                                   int version, early_coll_fn coll_of, early_p2p_fn p2p_of) {
    const struct nccl_descr_early *d = descriptor;
    if (d->type == NCCL_COLL) {
        struct early_coll coll = coll_of(descriptor);
        abi_early_start_coll(context, handle, d, &coll);
    } else if (d->type == NCCL_P2P) {
        struct early_p2p p2p = p2p_of(descriptor);
        abi_early_start_p2p(context, handle, d, &p2p);
    } else if (d->type & NCCL_EVENTS_OF(version)) abi_early_start_other(context, handle, d);
    else event_start_unknown(handle);
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
