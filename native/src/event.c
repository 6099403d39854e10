// Events off the fast path: late stops and states, repeats, network data.
#include "event.h"

#include <string.h>

#include "chain.h"
#include "launch_events.h"

void event_count_lost(unsigned number) {
    // In a fork child the counters are the parent's.
    if (callback_state_is_recording()) arena_count(COUNTER_dropped_no_stream, number);
}

void event_start_unknown(void **handle) {
    *handle = NULL;
    if (callback_state_is_recording()) arena_count(COUNTER_dropped_unknown_type, 0);
}

// ---- updates that need a slot of their own ----
// Whether a handle may be one of this process's events, for which another slot must be written.
// Counts why not.
static bool handle_may_live(u64 handle) {
    if (!callback_state_is_recording()) return false;
    if (handle == 0) {
        arena_count(COUNTER_handle_null, 0);
        return false;
    }
    if (handle >> HANDLE_BITS != callback_state.nonce) {
        arena_count(COUNTER_handle_foreign, 0);
        return false;
    }
    u64 number = (handle >> INDEX_BITS) & CONTEXT_STREAM;
    if (number < __atomic_load_n(&streams_used, __ATOMIC_RELAXED)) {
        u64 newest = __atomic_load_n(&streams[number].published_chunk_number, __ATOMIC_RELAXED);
        if (stream_chunk_age(newest, handle) <= CHUNK_NUMBER_MASK / 2) return true;
    }
    arena_count(COUNTER_handle_dead, 0);
    return false;
}

static union slot *write_state(u64 handle, unsigned state, u64 arg, u64 arg2, i32 steps,
                               unsigned states, u64 *own_handle) {
    struct writer *writer = writer_of_thread();
    if (!writer) {
        arena_count(COUNTER_updates_dropped, 0);
        return NULL;
    }
    union slot *slot = writer_take(writer, 1, NO_EVENT, own_handle);
    if (!slot) return NULL;
    memset(&slot->words[1], 0, SLOT_BYTES - 8);
    slot->state.parent = handle;
    slot->state.t0 = slot->state.t1 = clock_ticks();
    slot->state.arg = arg;
    slot->state.arg2 = arg2;
    slot->state.state = (u16)state;
    slot->state.repeats = 1;
    slot->state.steps = steps;
    slot_commit(slot, head_with_states(head_word(KIND_state, 0, 0, *own_handle), states));
    return slot;
}

bool event_append_state(u64 handle, unsigned state, u64 arg, u64 arg2, i32 steps) {
    if (!handle_may_live(handle)) return false;
    u64 own_handle, head;
    const struct stream *stream = writer_self.stream;
    if (stream) {  // a slot of this thread's that is no event any more, or never was
        union slot *slot = writer_find(&writer_self, handle, &head);
        bool in_window = !((handle ^ stream->prefix) >> INDEX_BITS) &&
                         stream_chunk_age(stream->chunk_number, handle) <= callback_state.window;
        if (in_window && (!slot || !head_is_event(head))) {
            arena_count(COUNTER_handle_dead, 0);
            return false;
        }
    }
    arena_count(COUNTER_late_updates, 0);
    return write_state(handle, state, arg, arg2, steps, STATE_STOPPED, &own_handle) != NULL;
}

void event_op_state(u64 handle, unsigned state, u64 size, i32 steps) {
    u64 head, own_handle;
    union slot *slot = event_find(handle, &head);
    if (slot && head_kind(head) == KIND_proxy_op)
        write_state(handle, state, size, 0, steps, STATE_STOPPED, &own_handle);
    else event_append_state(handle, state, size, 0, steps);
}

// NCCL asks again until the network accepts a send: the first time stays in the step, one State
// slot keeps the last time and the number of repeats.
void event_peer_wait_again(union slot *slot, u64 head, u64 handle, u64 size) {
    u64 note_handle, note_head;
    if (head_states(head) & STATE_NOTED) {
        union slot *note = writer_find(&writer_self, slot->proxy_step.t1, &note_head);
        if (note && head_kind(note_head) == KIND_state && note->state.parent == handle) {
            SLOT_STORE(note->state.t1, clock_ticks());
            SLOT_STORE(note->state.arg, size);
            SLOT_STORE(note->state.repeats, note->state.repeats + 1);
            return;
        }
    }
    arena_count(COUNTER_late_updates, NCCL_NUMBER(NCCL_PROXY_STEP));
    if (!write_state(handle, NCCL_STEP_SEND_PEER_WAIT, size, 0, 0, 0, &note_handle)) return;
    SLOT_STORE(slot->proxy_step.t1, note_handle);
    slot_commit(slot, head_with_states(head, STATE_NOTED));
}

static void close_note(const union slot *slot, u64 handle) {
    u64 head;
    union slot *note = writer_find(&writer_self, slot->proxy_step.t1, &head);
    if (note && head_kind(head) == KIND_state && note->state.parent == handle)
        slot_commit(note, head_with_states(head, STATE_STOPPED));
}

// ---- stop ----
static nccl_result append_stop(u64 handle) {
    const struct stream *stream = writer_self.stream;
    if (stream && handle && stream->last_late_stop == handle) arena_count(COUNTER_stop_repeated, 0);
    else if (event_append_state(handle, STATE_IS_STOP, 0, 0, 0))
        writer_self.stream->last_late_stop = handle;
    return 0;
}

static inline nccl_result store_stop(union slot *slot, u64 head, u64 now) {
    SLOT_STORE(slot->group.t1, now);
    slot_commit(slot, head_with_states(head, STATE_STOPPED));
    return 0;
}

static SLOW_PATH nccl_result stop_slow(u64 handle) {
    u64 head;
    if (callback_state.chained && chain_stop(handle)) return 0;
    union slot *slot = event_find(handle, &head);
    if (!slot) return append_stop(handle);
    if (head_states(head) & STATE_STOPPED) {
        arena_count(COUNTER_stop_repeated, head_kind(head) - 1u);
        return 0;
    }
    u64 now = clock_ticks();
    bool noted = head_states(head) & STATE_NOTED;
    if (noted && head_kind(head) == KIND_proxy_step) close_note(slot, handle);
    store_stop(slot, head, now);
    if (noted && head_kind(head) == KIND_kernel_launch)
        launch_events_stop(slot->kernel_launch.sample, handle, false, slot->kernel_launch.comm);
    if (noted && head_kind(head) == KIND_group_api)
        launch_events_stop(slot->group_api.sample, handle, true, slot->group_api.comm);
    return 0;
}

// The fast path: an open event of this thread in its newest chunk, as nearly all are. It leaves
// everything else to stop_slow before it changes anything (as start_fast in abi_modern.h).
HOT nccl_result event_stop(void *eHandle) {
    u64 handle = (u64)(uintptr_t)eHandle, head;
    const struct writer *writer = writer_in_static_tls();
    union slot *slot = event_find_fast(writer, handle, &head);
    if (UNLIKELY(!slot) || UNLIKELY(head_states(head) & (STATE_STOPPED | STATE_NOTED)))
        return stop_slow(handle);
    return store_stop(slot, head, event_stop_time(writer, slot, head));
}

// ---- a group whose launch NCCL does not report ----
void event_note_group(u64 group, u64 stream) {
    u64 head;
    union slot *slot = event_find(group, &head);
    const unsigned passed = STATE_SECOND | STATE_NOTED | STATE_STOPPED;
    if (!slot || head_kind(head) != KIND_group_api || (head_states(head) & passed)) return;
    if (slot->group_api.depth != 1) return;  // a group of the user's own may hold more
    SLOT_STORE(slot->group_api.t_end_begins, stream);
    SLOT_STORE(slot->group_api.sample, 0);
    slot_commit(slot, head_with_states(head, STATE_NOTED));
}

void event_start_group_launch(union slot *slot, u64 head, u64 handle) {
    void *stream = (void *)(uintptr_t)slot->group_api.t_end_begins;
    u16 comm = slot->group_api.comm;
    u64 now = clock_ticks();
    struct launch_sample sample = launch_events_start(stream, comm);
    launch_events_bind(sample.sample, handle, true);
    SLOT_STORE(slot->group_api.t_end_begins, now);
    SLOT_STORE(slot->group_api.sample, sample.sample);
    slot_commit(slot, head_with_states(head, STATE_SECOND));
    if (sample.capture) launch_events_note_captured_group(handle, comm, sample.capture);
}

// ---- start, the rarer kinds ----
bool event_is_repeated_step(void *handle, const void *parent, i32 step) {
    u64 head;
    union slot *slot = event_find((u64)(uintptr_t)handle, &head);
    if (!slot || head_kind(head) != KIND_proxy_step || (head_states(head) & STATE_STOPPED))
        return false;
    if (slot->proxy_step.parent != (u64)(uintptr_t)parent || slot->proxy_step.step != step)
        return false;
    arena_count(COUNTER_start_repeated, NCCL_NUMBER(NCCL_PROXY_STEP));
    if (head_chan(head) < 255) slot_commit(slot, head + (1u << 16));
    return true;
}

static void copy_net_data(struct slot_net *slot, u8 *type, i64 id, const void *data) {
    slot->wr_id = slot->length = 0;
    slot->opcode = slot->device = 0;
    slot->qp_or_fd = 0;
    *type = 0;
    if (id != NCCL_NET_IB_V1 && id != NCCL_NET_SOCKET_V1) {
        slot->wr_id = (u64)id;  // what data points to is not known
    } else if (data && id == NCCL_NET_IB_V1) {
        const struct nccl_net_ib_v1 *ib = data;
        *type = ib->type;
        slot->device = (u8)ib->device;
        slot->wr_id = ib->wr_id;
        slot->opcode = (u8)ib->opcode;
        slot->qp_or_fd = (u32)ib->qpNum;
        slot->length = ib->length;
    } else if (data) {
        const struct nccl_net_socket_v1 *socket = data;
        *type = socket->type;
        slot->opcode = (u8)socket->op;
        slot->qp_or_fd = (u32)socket->fd;
        slot->length = socket->length;
    }
}

void event_start_net(void *context, void **handle, const void *parent, i32 rank,
                     const struct nccl_net_plugin *net) {
    struct event event = event_start(context, handle, parent, 1, NCCL_NET_PLUGIN);
    if (!event.slot) return;
    u8 type;
    event.slot->net.id = (u32)net->id;
    event.slot->net.rank = rank;
    event.slot->net.comm = (u16)event.comm;
    copy_net_data(&event.slot->net, &type, net->id, net->data);
    event_commit(&event, KIND_net, type, FLAG_RANK_IN);
}

void event_net_update(u64 handle, const void *data) {
    u64 head;
    union slot *slot = event_find(handle, &head);
    if (!slot || head_kind(head) != KIND_net) {
        event_append_state(handle, NCCL_NET_UPDATE, 0, 0, 0);
        return;
    }
    struct slot_net fresh;
    u8 type;
    u64 own_handle;
    copy_net_data(&fresh, &type, slot->net.id, data);
    write_state(handle, NCCL_NET_UPDATE, fresh.length, fresh.wr_id, 0, STATE_STOPPED, &own_handle);
}
