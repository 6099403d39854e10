// States of interface versions from 4 on.
#include "abi_modern.h"

#include <string.h>

#include "chain.h"
#include "timing_policy.h"

// Where a ProxyStep keeps a state: a digit of four bits for each state, packed into one constant,
// so that the fast path needs neither a table in memory nor a jump. The digit of state s is at
// place s - 8. Bit 8 is set for states of a step, bit 4 for those of a receive; the lower bits say
// which of the step's three times it is. So SendWait (state 9) has the digit 8 + 2 at place 1.
// Other states have 0.
#define STEP_DIGIT(state, receive, which) \
    ((8ull | (receive) << 2 | (which)) << 4 * (NCCL_##state - NCCL_STEP_SEND_GPU_WAIT))
static inline unsigned digit_of_step_state(unsigned state) {
    const u64 digits = STEP_DIGIT(STEP_SEND_GPU_WAIT, 0, 0) |
                       STEP_DIGIT(STEP_SEND_PEER_WAIT, 0, 1) | STEP_DIGIT(STEP_SEND_WAIT, 0, 2) |
                       STEP_DIGIT(STEP_RECV_WAIT, 1, 0) | STEP_DIGIT(STEP_RECV_FLUSH_WAIT, 1, 1) |
                       STEP_DIGIT(STEP_RECV_GPU_WAIT, 1, 2);
    unsigned place = state - NCCL_STEP_SEND_GPU_WAIT;
    bool is_in_range = place <= NCCL_STEP_SEND_PEER_WAIT - NCCL_STEP_SEND_GPU_WAIT;
    return is_in_range ? (unsigned)(digits >> 4 * place) & 15u : 0;
}

// The first 8 bytes of a state's arguments, or 0. Some states come with a pointer to nothing: those
// are not read.
static inline u64 argument_of(unsigned state, const union nccl_state_args *args) {
    const u32 sized = 1u << NCCL_STEP_SEND_GPU_WAIT | 1u << NCCL_STEP_SEND_WAIT |
                      1u << NCCL_STEP_RECV_WAIT | 1u << NCCL_STEP_RECV_FLUSH_WAIT |
                      1u << NCCL_STEP_RECV_GPU_WAIT | 1u << NCCL_STEP_SEND_PEER_WAIT |
                      1u << NCCL_KERNEL_CH_STOP | 1u << NCCL_KERNEL_PHASE_STOP;
    if (!args || state > 31) return 0;
    if (sized >> state & 1) return args->kernelCh.pTimer;
    return state == NCCL_CTRL_APPEND_END ? (u64)(u32)args->proxyCtrl.appendedProxyOps : 0;
}

_Static_assert(offsetof(struct slot_group_api, t_start_done) == 4 * 8 &&
                   offsetof(struct slot_group_api, t_end_begins) == 5 * 8 && STATE_SECOND == 1 << 1,
               "GroupApi's times by their number");

EVENT bool store_state(union slot *slot, u64 head, unsigned state,
                       const union nccl_state_args *args, u64 now) {
    switch (head_kind(head)) {
        case KIND_proxy_step: {
            unsigned digit = digit_of_step_state(state);
            return LIKELY(digit) &&
                   event_store_step_state(slot, head, digit & 3, digit & 4 ? STATE_RECV : 0,
                                          args ? args->proxyStep.transSize : 0, now);
        }
        case KIND_kernel_ch:
            return LIKELY(state == NCCL_KERNEL_CH_STOP) &&
                   event_store_gpu_stop(slot, head, KIND_kernel_ch, &slot->kernel_ch.gpu_stop,
                                        &slot->kernel_ch.t_stop, args ? args->kernelCh.pTimer : 0,
                                        now);
        case KIND_group_api: {
            unsigned second = state - NCCL_GROUP_START_DONE;
            return LIKELY(second <= 1) && event_store_time(slot, head, KIND_group_api, 1u << second,
                                                           &slot->words[4 + second], now);
        }
        case KIND_proxy_op:
            return LIKELY(state == NCCL_OP_IN_PROGRESS) &&
                   event_store_time(slot, head, KIND_proxy_op, STATE_FIRST,
                                    &slot->proxy_op.t_in_progress, now);
        case KIND_proxy_ctrl:
            return state >= NCCL_CTRL_IDLE && state <= NCCL_CTRL_APPEND_END &&
                   event_store_ctrl_state(slot, head, state, (i32)argument_of(state, args), now);
        case KIND_kernel_phase:
            return LIKELY(state == NCCL_KERNEL_PHASE_STOP) &&
                   event_store_gpu_stop(slot, head, KIND_kernel_phase, &slot->kernel_phase.gpu_stop,
                                        &slot->kernel_phase.t_stop,
                                        args ? args->kernelCh.pTimer : 0, now);
        default: return false;
    }
}

static SLOW_PATH nccl_result state_slow(u64 handle, unsigned state,
                                        const union nccl_state_args *args) {
    if (callback_state.chained && chain_state(handle, (int)state, args)) return 0;
    u64 head, arg = argument_of(state, args);
    union slot *slot = event_find(handle, &head);
    if (slot && state == NCCL_GROUP_END_BEGINS && head_kind(head) == KIND_group_api &&
        (head_states(head) & (STATE_NOTED | STATE_SECOND)) == STATE_NOTED) {
        event_start_group_launch(slot, head, handle);
        return 0;
    }
    if (slot && store_state(slot, head, state, args, clock_ticks())) return 0;
    if (state == NCCL_NET_UPDATE) event_net_update(handle, args ? args->netPlugin.data : NULL);
    else if (slot && state == NCCL_STEP_SEND_PEER_WAIT && head_kind(head) == KIND_proxy_step &&
             (head_states(head) & (STATE_SECOND | STATE_STOPPED)) == STATE_SECOND)
        event_peer_wait_again(slot, head, handle, arg);
    else event_append_state(handle, state, arg, 0, 0);
    return 0;
}

#define FIRST_WITH_SILENT_BROADCASTS 6  // interface of NCCL 2.29.2

bool abi_modern_choose_call(union slot *entry, const struct nccl_descr *d, u64 type, int version) {
    bool silent_broadcast = version >= FIRST_WITH_SILENT_BROADCASTS && type == NCCL_COLL_API &&
                            d->collApi.func && strcmp(d->collApi.func, "Broadcast") == 0;
    u64 group = address(d->parentObj);
    // Of sizes that are counted together, the entry's stands for all.
    bool is_small = sampling_is_small(entry->tally.count, d->collApi.datatype);
    bool chosen = sampling_choose_call(entry, silent_broadcast ? 0 : group, is_small);
    if (!chosen || !timing_by_events()) return chosen;
    if (silent_broadcast || (type == NCCL_COLL_API && group && sampling_is_silent(entry, group)))
        event_note_group(group, address(d->collApi.stream));
    return chosen;
}

// Shared clock readings (event.h): NCCL reports that a group's calls may begin right after its
// start, and that they have ended right after the call where that is the only one and there is no
// group of the user's own. (AlltoAll is many calls of one group.)
EVENT u64 state_time(const struct writer *writer, const union slot *slot, u64 head,
                     unsigned state) {
    if (head_kind(head) == KIND_group_api) {
        if (state == NCCL_GROUP_START_DONE) return slot->group_api.t0;
        if (slot->group_api.depth == 1 && slot + 2 == writer->cur) {
            u64 call = slot_head_own(slot + 1);
            if (event_has_stopped(call, KIND_coll_api) || event_has_stopped(call, KIND_p2p_api))
                return slot[1].coll_api.t1;
        }
    }
    return clock_counter();
}

HOT nccl_result abi_modern_state(void *eHandle, int state, const union nccl_state_args *args) {
    u64 handle = address(eHandle), head;
    const struct writer *writer = writer_in_static_tls();
    union slot *slot = event_find_fast(writer, handle, &head);
    if (UNLIKELY(!slot) || UNLIKELY(!store_state(slot, head, (unsigned)state, args,
                                                 state_time(writer, slot, head, (unsigned)state))))
        return state_slow(handle, (unsigned)state, args);
    return 0;
}
