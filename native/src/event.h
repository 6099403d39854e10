// The life of an event: a slot is taken and filled at start, edited in place by states and stop.
//
// Rules of a callback: no lock, no allocation, no system call, no call into NCCL; none into CUDA
// but for launches that sampling chose (launch_events.h); stores go to populated memory only.
// Nothing NCCL hands in is dereferenced but the descriptor, string literals on first sight, state
// arguments that are not NULL, and network data of a known id. Handles and contexts are numbers;
// any value of them is harmless.
#ifndef NCCLSCOPE_EVENT_H
#define NCCLSCOPE_EVENT_H

#include "callback_state.h"
#include "comm.h"
#include "nccl_abi.h"
#include "tally.h"
#include "writer.h"

_Static_assert(NCCL_EVENT_COUNT == EVENT_KINDS, "an event without a slot kind, or the reverse");

// ---- start ----
// Adapters call event_start (or event_of and event_begin, when something lies between), fill the
// slot that comes back, and event_commit it. Of two slots the second is filled and committed
// (event_commit_ext) first. `type` is NCCL's event bit; callers pass a constant.

struct event {
    union slot *slot;  // NULL: dropped, *eHandle is NULL already
    u64 handle;
    u32 comm;  // NO_COMM when the context is another process's, or none
};

COLD void event_count_lost(unsigned number);

#define EVENT static inline __attribute__((always_inline))

EVENT struct event event_of(void *context, u64 type) {
    return (struct event){NULL, 0, comm_of_context(context, NCCL_NUMBER(type))};
}

// False: dropped and counted.
EVENT bool event_begin(struct event *event, struct writer *writer, void **handle_out,
                       const void *parent, unsigned slots, u64 type) {
    unsigned number = NCCL_NUMBER(type);
    if (UNLIKELY(!writer)) event_count_lost(number);
    else event->slot = writer_take(writer, slots, number, &event->handle);
    // NCCL keeps what was there before; NULL when dropped.
    *handle_out = (void *)(uintptr_t)event->handle;
    if (UNLIKELY(!event->slot)) return false;
    event->slot->group.parent = (u64)(uintptr_t)parent;
    event->slot->group.t0 = clock_ticks();
    return true;
}

// ---- one reading of the clock for callbacks that NCCL makes one right after the other ----
// Reading the counter is most of what a callback costs, and between some of them NCCL does nothing:
// a group's first call comes right after the GroupApi; a Group right after the launch; the works of
// a Group start in one loop right after it, and stop in one right before it does. Such a callback
// checks whether its neighbour in the stream is the one it follows, and takes its time.
//
// Example, one AllReduce: the slots of a thread are GroupApi, CollApi, KernelLaunch, Group, Coll.
// CollApi takes GroupApi's t0, Group takes KernelLaunch's t1, Coll takes Group's t0, and Group's
// stop takes Coll's t1: four of its ten times cost no reading.
#define WORKS_A_READING \
    8u  // works of a Group that share one; a power of two. AlltoAll has thousands

EVENT bool event_is_open(u64 head, unsigned kind) {
    return head_kind(head) == kind && !(head_states(head) & STATE_STOPPED);
}
EVENT bool event_has_stopped(u64 head, unsigned kind) {
    return head_kind(head) == kind && (head_states(head) & STATE_STOPPED);
}

EVENT u64 event_start_time(const union slot *slot, u64 handle, u64 type) {
    const union slot *before = slot - 1;  // a chunk's first slot is its own head, no event
    u64 head = slot_head_own(before);
    const u32 calls =
        NCCL_COLL_API | NCCL_P2P_API;  // without one of them there may be calls between
    if ((type & calls) && event_is_open(head, KIND_group_api) &&
        !(head_states(head) & STATE_SECOND) && (callback_state.fast_events & calls) == calls)
        return before->group_api.t0;
    if (type == NCCL_GROUP && event_has_stopped(head, KIND_kernel_launch))
        return before->kernel_launch.t1;
    if ((type & (NCCL_COLL | NCCL_P2P)) && event_is_open(head, KIND_group)) return before->group.t0;
    if (type == NCCL_P2P && handle % WORKS_A_READING && event_is_open(head, KIND_p2p))
        return before->p2p.t0;
    return clock_counter();
}

EVENT u64 event_stop_time(const struct writer *writer, const union slot *slot, u64 head) {
    unsigned kind = head_kind(head);
    if (kind == KIND_p2p) {
        if (head_check(head) % WORKS_A_READING &&
            event_has_stopped(slot_head_own(slot - 1), KIND_p2p) && slot[-1].p2p.t1 >= slot->p2p.t0)
            return slot[-1].p2p.t1;
    } else if (kind == KIND_group) {
        const union slot *last = writer->cur - 1;
        if (head_kind(slot_head_own(last)) == KIND_coll_ext) last--;
        u64 work = slot_head_own(last);
        if (last > slot &&
            (event_has_stopped(work, KIND_coll) || event_has_stopped(work, KIND_p2p)))
            return last->group.t1;
    } else if (kind == KIND_kernel_ch && (head_states(head) & STATE_FIRST))
        return slot->kernel_ch.t_stop;
    return clock_counter();
}

// A start on the fast path: there is room, and the clock is a counter.
EVENT struct event event_take(struct writer *writer, u32 comm, void **handle_out,
                              const void *parent, unsigned slots, u64 type) {
    struct event event = {.comm = comm};
    event.slot = writer_advance(writer, slots, &event.handle);
    *handle_out = (void *)(uintptr_t)event.handle;
    event.slot->group.parent = (u64)(uintptr_t)parent;
    event.slot->group.t0 = event_start_time(event.slot, event.handle, type);
    return event;
}

EVENT struct event event_start(void *context, void **handle_out, const void *parent, unsigned slots,
                               u64 type) {
    struct event event = event_of(context, type);
    event_begin(&event, writer_of_thread(), handle_out, parent, slots, type);
    return event;
}

// Most events carry rank 0 or the communicator's; anything else needs a field of its own.
static inline unsigned event_rank_flag(const struct event *event, i32 rank) {
    if (rank == 0) return 0;
    bool expected = event->comm != NO_COMM && rank == comm_ranks[event->comm];
    return expected ? FLAG_RANK : FLAG_RANK_IN;
}

static inline void event_commit(const struct event *event, unsigned kind, unsigned chan,
                                unsigned flags) {
    slot_commit(event->slot, head_word(kind, chan, flags, event->handle));
}
static inline void event_commit_ext(const struct event *event, unsigned kind) {
    slot_commit(event->slot + 1, head_word(kind, 0, 0, event->handle + 1));
}

// ---- the kinds that all interface versions share. Each fill stores the fields, returns flags ----
static inline unsigned event_fill_group(const struct event *event) {
    event->slot->group.comm = (u16)event->comm;
    return 0;
}

static inline unsigned event_fill_proxy_op(const struct event *event, const void *context, i32 rank,
                                           const struct nccl_proxy_op *op) {
    struct slot_proxy_op *slot = &event->slot->proxy_op;
    slot->pid = op->pid;
    slot->peer = op->peer;
    slot->steps = op->nSteps;
    slot->chunk_size = op->chunkSize;
    // Under PXN another process's number; its nonce says whose.
    slot->comm = (u16)comm_number_in(context);
    slot->ctx_nonce = (u16)((u64)(uintptr_t)context >> HANDLE_BITS);
    slot->rank = rank;
    return FLAG_RANK_IN | (op->isSend ? FLAG_SEND : 0);
}

static inline unsigned event_fill_proxy_step(const struct event *event, i32 rank, i32 step) {
    event->slot->proxy_step.step = step;
    event->slot->proxy_step.rank = rank;
    return FLAG_RANK_IN;
}

static inline unsigned event_fill_proxy_ctrl(const struct event *event) {
    event->slot->proxy_ctrl.comm = (u16)event->comm;
    return 0;
}

static inline unsigned event_fill_kernel_ch(const struct event *event, i32 rank,
                                            const struct nccl_kernel_ch *kernel, bool has_stamp) {
    event->slot->kernel_ch.gpu_start = has_stamp ? kernel->pTimer : 0;
    event->slot->kernel_ch.comm = (u16)event->comm;
    return event_rank_flag(event, rank) | (has_stamp ? 0 : FLAG_NO_STAMP);
}

// Whether the open step in *handle is this very step: NCCL starts a receive again on every poll.
COLD bool event_is_repeated_step(void *handle, const void *parent, i32 step);

void event_start_net(void *context, void **handle, const void *parent, i32 rank,
                     const struct nccl_net_plugin *net);
COLD void event_start_unknown(void **handle);
void event_net_update(u64 handle, const void *data);

// ---- a group whose launch NCCL does not report ----
// In the callback of its only call, which sampling chose: the stream is kept where the time of
// state 24 will be. In the callback of that state: records the first event of two. The second one
// is recorded when the group stops.
COLD void event_note_group(u64 group, u64 stream);
COLD void event_start_group_launch(union slot *slot, u64 head, u64 handle);

// ---- states and stop ----
nccl_result event_stop(void *handle);

// A state that cannot be stored in place gets a State slot: another thread's event, one too old, a
// state that repeats, or a bad handle. True when it is on record.
COLD bool event_append_state(u64 handle, unsigned state, u64 arg, u64 arg2, i32 steps);
// One of the ProxyOp states 0 to 7.
void event_op_state(u64 handle, unsigned state, u64 size, i32 steps);
COLD void event_peer_wait_again(union slot *slot, u64 head, u64 handle, u64 size);

// The event's slot if this thread may edit it.
static inline union slot *event_find(u64 handle, u64 *head) {
    const struct writer *writer = &writer_self;
    if (UNLIKELY(!writer->stream)) return NULL;
    union slot *slot = writer_find(writer, handle, head);
    return LIKELY(slot && head_is_event(*head)) ? slot : NULL;
}

// The same on the fast path: its chunk is the thread's newest, the clock is a counter, and no
// profiler is chained. NULL: take the slow path.
EVENT union slot *event_find_fast(const struct writer *writer, u64 handle, u64 *head) {
    if (UNLIKELY(!callback_state.fast_path) || UNLIKELY(!writer->stream) ||
        UNLIKELY(!writer_is_newest(writer, handle)))
        return NULL;
    union slot *slot = writer_newest_place(writer, handle);
    *head = slot_head_own(slot);
    return LIKELY(head_is_event(*head)) && LIKELY(head_check(*head) == (u32)handle) ? slot : NULL;
}

static inline bool event_store_step_state(union slot *slot, u64 head, unsigned which,
                                          unsigned direction, u64 size, u64 now) {
    const unsigned seen = STATE_FIRST | STATE_SECOND | STATE_THIRD;
    u64 elapsed = now - slot->proxy_step.t0;
    unsigned states = head_states(head);
    if (UNLIKELY(head_kind(head) != KIND_proxy_step || elapsed > UINT32_MAX || size > UINT32_MAX ||
                 (states & (1u << which | STATE_STOPPED)) ||
                 ((states & seen) && (states & STATE_RECV) != direction)))
        return false;
    SLOT_STORE(slot->proxy_step.dt[which], (u32)elapsed);
    SLOT_STORE(slot->proxy_step.size[which], (u32)size);
    slot_commit(slot, head_with_states(head, 1u << which | direction));
    return true;
}

static inline bool event_store_ctrl_state(union slot *slot, u64 head, unsigned state, i32 appended,
                                          u64 now) {
    unsigned states = head_states(head);
    if (UNLIKELY(head_kind(head) != KIND_proxy_ctrl || (states & (STATE_SECOND | STATE_STOPPED))))
        return false;
    if (state == NCCL_CTRL_APPEND_END) SLOT_STORE(slot->proxy_ctrl.appended, appended);
    bool first = !(states & STATE_FIRST);
    if (first) SLOT_STORE(slot->proxy_ctrl.first, (u8)state);
    else SLOT_STORE(slot->proxy_ctrl.second, (u8)state);
    if (first) SLOT_STORE(slot->proxy_ctrl.t_first, now);
    else SLOT_STORE(slot->proxy_ctrl.t_second, now);
    slot_commit(slot, head_with_states(head, first ? STATE_FIRST : STATE_SECOND));
    return true;
}

// Kinds whose states are one time each.
static inline bool event_store_time(union slot *slot, u64 head, unsigned kind, unsigned bit,
                                    u64 *field, u64 now) {
    if (UNLIKELY(head_kind(head) != kind ||
                 (head_states(head) & (bit | STATE_NOTED | STATE_STOPPED))))
        return false;
    SLOT_STORE(*field, now);
    slot_commit(slot, head_with_states(head, bit));
    return true;
}

static inline bool event_store_gpu_stop(union slot *slot, u64 head, unsigned kind, u64 *gpu_stop,
                                        u64 *t_stop, u64 stamp, u64 now) {
    if (UNLIKELY(head_kind(head) != kind || (head_states(head) & (STATE_FIRST | STATE_STOPPED))))
        return false;
    SLOT_STORE(*gpu_stop, stamp);
    SLOT_STORE(*t_stop, now);
    slot_commit(slot, head_with_states(head, STATE_FIRST));
    return true;
}

#endif
