// States of interface versions 4 to 7.
#include "abi_modern.h"

#include "chain.h"

static bool store_state(union slot *slot, u64 head, u64 handle, unsigned state, u64 arg) {
    switch (state) {
        case NCCL_STEP_SEND_GPU_WAIT: return store_step_state(slot, head, 0, 0, arg);
        case NCCL_STEP_SEND_PEER_WAIT:
            if (LIKELY(store_step_state(slot, head, 1, 0, arg))) return true;
            if (head_kind(head) != KIND_proxy_step ||
                (head_states(head) & (STATE_SECOND | STATE_STOPPED)) != STATE_SECOND)
                return false;
            event_peer_wait_again(slot, head, handle, arg);
            return true;
        case NCCL_STEP_SEND_WAIT: return store_step_state(slot, head, 2, 0, arg);
        case NCCL_STEP_RECV_WAIT: return store_step_state(slot, head, 0, STATE_RECV, arg);
        case NCCL_STEP_RECV_FLUSH_WAIT: return store_step_state(slot, head, 1, STATE_RECV, arg);
        case NCCL_STEP_RECV_GPU_WAIT: return store_step_state(slot, head, 2, STATE_RECV, arg);
        case NCCL_KERNEL_CH_STOP:
            return store_gpu_stop(slot, head, KIND_kernel_ch, &slot->kernel_ch.gpu_stop,
                                  &slot->kernel_ch.t_stop, arg);
        case NCCL_KERNEL_PHASE_STOP:
            return store_gpu_stop(slot, head, KIND_kernel_phase, &slot->kernel_phase.gpu_stop,
                                  &slot->kernel_phase.t_stop, arg);
        case NCCL_OP_IN_PROGRESS:
            return store_time(slot, head, KIND_proxy_op, STATE_FIRST,
                              &slot->proxy_op.t_in_progress);
        case NCCL_GROUP_START_DONE:
            return store_time(slot, head, KIND_group_api, STATE_FIRST,
                              &slot->group_api.t_start_done);
        case NCCL_GROUP_END_BEGINS:
            return store_time(slot, head, KIND_group_api, STATE_SECOND,
                              &slot->group_api.t_end_begins);
        default:
            return state >= NCCL_CTRL_IDLE && state <= NCCL_CTRL_APPEND_END &&
                   store_ctrl_state(slot, head, state, (i32)arg);
    }
}

// The first 8 bytes of a state's arguments, or 0. Some states come with a pointer to nothing: those
// are not read.
static inline u64 argument_of(unsigned state, const union nccl_state_args *args) {
    const u32 sized = 1u << NCCL_STEP_SEND_GPU_WAIT | 1u << NCCL_STEP_SEND_WAIT |
                      1u << NCCL_STEP_RECV_WAIT | 1u << NCCL_STEP_RECV_FLUSH_WAIT |
                      1u << NCCL_STEP_RECV_GPU_WAIT | 1u << NCCL_STEP_SEND_PEER_WAIT |
                      1u << NCCL_KERNEL_CH_STOP | 1u << NCCL_KERNEL_PHASE_STOP;
    if (UNLIKELY(!args) || UNLIKELY(state > 31)) return 0;
    if (LIKELY(sized >> state & 1)) return args->kernelCh.pTimer;
    return state == NCCL_CTRL_APPEND_END ? (u64)(u32)args->proxyCtrl.appendedProxyOps : 0;
}

nccl_result state_modern(void *eHandle, int eState, const union nccl_state_args *args) {
    u64 handle = address(eHandle), head;
    unsigned state = (unsigned)eState;
    if (UNLIKELY(gate_chained) && chain_state(handle, eState, args)) return 0;
    u64 arg = argument_of(state, args);
    union slot *slot = event_find(handle, &head);
    if (UNLIKELY(state == NCCL_NET_UPDATE))
        event_net_update(handle, args ? args->netPlugin.data : NULL);
    else if (UNLIKELY(!slot || !store_state(slot, head, handle, state, arg)))
        event_state_elsewhere(handle, state, arg, 0, 0);
    return 0;
}
