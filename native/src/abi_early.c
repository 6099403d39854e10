// Interface versions 1 to 3: the common part.
#include "abi_early.h"

#include "chain.h"

nccl_result abi_early_init(void **context, int *mask, unsigned version, const void *nccl_address) {
    struct comm_description description = {.version = version};
    return plugin_init(context, mask, &description, NULL, nccl_address);
}

void abi_early_start_coll(void *context, void **handle, const struct nccl_descr_early *d,
                          const struct early_coll *coll) {
    struct event event = event_of(context, NCCL_COLL);
    u8 bits = coll->flags & FLAG_NUMBERS ? TALLY_NUMBERS : 0;
    struct writer *writer = writer_of_thread();
    tally_call(writer, tally_key(event.comm, LEVEL_WORK, coll->func, coll->dtype, coll->algo,
                                 coll->proto, bits, coll->count));
    if (!event_begin(&event, writer, handle, d->parentObj, 2, NCCL_COLL)) return;
    struct slot_coll *slot = &event.slot->coll;
    struct slot_coll_ext *ext = &event.slot[1].coll_ext;
    slot->seq = coll->seq;
    slot->count = coll->count;
    slot->func = coll->func;
    slot->dtype = coll->dtype;
    slot->algo = coll->algo;
    slot->proto = coll->proto;
    slot->channels = coll->channels;
    slot->warps = coll->warps;
    slot->variant = 0;
    slot->bits = coll->bits;
    slot->root = coll->root;
    slot->comm = (u16)event.comm;
    ext->parent_group = 0;
    ext->send_buff = (u64)(uintptr_t)coll->send_buff;
    ext->recv_buff = (u64)(uintptr_t)coll->recv_buff;
    ext->tag = 0;
    ext->traffic_bytes = coll->traffic_bytes;
    ext->comm_hash = coll->comm_hash;
    ext->rank = d->rank;
    ext->op = coll->op;
    event_commit_ext(&event, KIND_coll_ext);
    event_commit(&event, KIND_coll, 0, FLAG_EXT | FLAG_RANK_IN | coll->flags);
}

void abi_early_start_p2p(void *context, void **handle, const struct nccl_descr_early *d,
                         const struct early_p2p *p2p) {
    struct event event = event_of(context, NCCL_P2P);
    u8 bits = p2p->flags & FLAG_NUMBERS ? TALLY_NUMBERS : 0;
    struct writer *writer = writer_of_thread();
    tally_call(writer,
               tally_key(event.comm, LEVEL_WORK, p2p->func, p2p->dtype, 0, 0, bits, p2p->count));
    if (!event_begin(&event, writer, handle, d->parentObj, 2, NCCL_P2P)) return;
    struct slot_p2p *slot = &event.slot->p2p;
    struct slot_p2p_ext *ext = &event.slot[1].p2p_ext;
    slot->buff = (u64)(uintptr_t)p2p->buff;
    slot->count = p2p->count;
    slot->parent_group = 0;
    slot->func = p2p->func;
    slot->dtype = p2p->dtype;
    slot->comm = (u16)event.comm;
    slot->peer = p2p->peer;
    ext->tag = 0;
    ext->comm_hash = p2p->comm_hash;
    ext->rank = d->rank;
    event_commit_ext(&event, KIND_p2p_ext);
    event_commit(&event, KIND_p2p, 0, FLAG_EXT | FLAG_RANK_IN | p2p->flags);
}

static bool store_state(union slot *slot, u64 head, unsigned state, i32 appended, u64 now) {
    switch (state) {
        case NCCL_STEP_SEND_GPU_WAIT: return event_store_step_state(slot, head, 0, 0, 0, now);
        case NCCL_STEP_SEND_WAIT: return event_store_step_state(slot, head, 2, 0, 0, now);
        case NCCL_STEP_RECV_WAIT: return event_store_step_state(slot, head, 0, STATE_RECV, 0, now);
        case NCCL_STEP_RECV_FLUSH_WAIT:
            return event_store_step_state(slot, head, 1, STATE_RECV, 0, now);
        case NCCL_STEP_RECV_GPU_WAIT:
            return event_store_step_state(slot, head, 2, STATE_RECV, 0, now);
        default:
            return state >= NCCL_CTRL_IDLE && state <= NCCL_CTRL_APPEND_END &&
                   event_store_ctrl_state(slot, head, state, appended, now);
    }
}

// States 0 to 7 of a ProxyOp come many times over: each gets a State slot.
nccl_result abi_early_state(void *eHandle, int eState, const union nccl_state_args_v1 *args) {
    u64 handle = (u64)(uintptr_t)eHandle, head;
    unsigned state = (unsigned)eState;
    if (UNLIKELY(callback_state.chained) && chain_state(handle, eState, args)) return 0;
    if (state <= NCCL_OP_RECV_DONE) {
        event_op_state(handle, state, args ? args->proxyOp.transSize : 0,
                       args ? args->proxyOp.steps : 0);
        return 0;
    }
    i32 appended = state == NCCL_CTRL_APPEND_END && args ? args->proxyCtrl.appendedProxyOps : 0;
    union slot *slot = event_find(handle, &head);
    if (!slot || !store_state(slot, head, state, appended, clock_ticks()))
        event_append_state(handle, state, (u64)(u32)appended, 0, 0);
    return 0;
}
