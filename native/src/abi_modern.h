// Interface versions from 4 on: one family of layouts, each a prefix of the next. abi_v4.c and
// later call in here with their version as a constant, so that the compiler leaves out what a
// version does not have.
#ifndef NCCLSCOPE_ABI_MODERN_H
#define NCCLSCOPE_ABI_MODERN_H

#include "abi_modern_slots.h"
#include "event_filter.h"
#include "launch_events.h"
#include "plugin.h"
#include "sampling.h"

// A start is written twice, of the same parts. start_slow handles all that can happen. start_fast
// handles what happens nearly always: it checks first whether this is it, and leaves the rest to
// start_slow before it changes anything. So it calls nothing and needs few cache lines: between
// two callbacks NCCL and the driver run for microseconds, and each of our lines is a cache miss.

// A call's texts.
struct texts {
    const char *func, *dtype, *algo, *proto, *variant;
};

// ---- calls: counted, whatever becomes of their events ----
#define CALL_EVENTS (NCCL_COLL_API | NCCL_P2P_API)
#define COUNTED_EVENTS (NCCL_COLL | NCCL_P2P | CALL_EVENTS | NCCL_CE_COLL)

// CollApi and P2pApi begin alike, Coll and CeColl too.
MODERN struct texts texts_in(const struct nccl_descr *d, u64 type, int version) {
    if (type & (NCCL_COLL_API | NCCL_P2P_API))
        return (struct texts){.func = d->collApi.func, .dtype = d->collApi.datatype};
    if (type == NCCL_P2P) return (struct texts){.func = d->p2p.func, .dtype = d->p2p.datatype};
    struct texts texts = {.func = d->coll.func, .dtype = d->coll.datatype};
    if (type != NCCL_COLL) return texts;
    texts.algo = d->coll.algo;
    texts.proto = d->coll.proto;
    if (HAS_TAGS(version)) texts.variant = d->coll.kernelVariant;
    return texts;
}

// False: one of them is not where it is expected.
MODERN bool names_are_known(struct texts texts, u64 type, int version, struct names *names) {
    if (!intern_find(texts.func, &names->func) || !intern_find(texts.dtype, &names->dtype))
        return false;
    if (type != NCCL_COLL) return true;
    if (!intern_find(texts.algo, &names->algo) || !intern_find(texts.proto, &names->proto))
        return false;
    return !HAS_TAGS(version) || intern_find(texts.variant, &names->variant);
}

MODERN struct tally_key key_of_call(const struct nccl_descr *d, u64 type, u32 comm,
                                    struct names names) {
    enum tally_level level = LEVEL_WORK;
    bool captured = false;
    u64 count = d->coll.count;
    if (type & (NCCL_COLL_API | NCCL_P2P_API)) {
        level = LEVEL_CALL;
        count = d->collApi.count;
        captured = type == NCCL_COLL_API ? d->collApi.graphCaptured : d->p2pApi.graphCaptured;
    } else if (type == NCCL_P2P) count = d->p2p.count;
    else if (type == NCCL_CE_COLL) level = LEVEL_COPY_ENGINE;
    return tally_key(comm, level, names.func, names.dtype, names.algo, names.proto,
                     captured ? TALLY_CAPTURED : 0, count);
}

// Whether sampling chooses a call. Where NCCL reports no launch, its group is timed instead: of a
// lone Broadcast from 2.29.2 on, and of what sampling_is_silent finds.
COLD bool abi_modern_choose_call(union slot *entry, const struct nccl_descr *d, u64 type,
                                 int version);

// Whether the slot before a Coll is its own Group's, which has room for the buffers, and the rest
// of an extension would be zeros: nearly always.
MODERN bool coll_fits_group(const struct writer *writer, const struct nccl_descr *d, u32 comm,
                            int version) {
    if (!HAS_CALLS(version) || comm == NO_COMM || d->rank != comm_ranks[comm]) return false;
    if (HAS_TAGS(version) && d->coll.userTag) return false;
    return address(d->coll.parentGroup) == writer->next_handle - 1 && writer_has_room(writer, 1) &&
           event_is_open(slot_head_own(writer->cur - 1), KIND_group);
}

MODERN unsigned slots_of_call(const struct writer *writer, const struct nccl_descr *d, u64 type,
                              u32 comm, int version) {
    if (type == NCCL_P2P) return HAS_TAGS(version) && d->p2p.userTag ? 2 : 1;
    if (type == NCCL_COLL) return coll_fits_group(writer, d, comm, version) ? 1 : 2;
    return type == NCCL_CE_COLL ? 2 : 1;
}

// ---- profile mode: launches without slots ----
// Nobody reads the slot of a launch that is neither timed nor captured, nor those of its works,
// which are counted in the callback: such an event gets the handle NULL, for which NCCL makes no
// further callback. That is decided when a group starts: its calls and launches follow it, and
// works their launch, so that a change of the mode does not part them. A communicator that does not
// block launches from another thread, which does not know: there every launch has its slot, and the
// drain asks its group (drain.c).
MODERN bool drops_works(const struct writer *writer) {
    return writer->group_bits & GROUP_DROPS_WORKS;
}
MODERN bool is_of_thread(const struct writer *writer, const void *handle) {
    return !((address(handle) ^ writer->next_handle) >> INDEX_BITS);
}
#define WORK_EVENTS (NCCL_GROUP | NCCL_COLL | NCCL_P2P)
MODERN bool has_no_slot(struct writer *writer, const struct nccl_descr *d, u64 type, int version) {
    if (!HAS_CALLS(version)) return false;
    if (type == NCCL_KERNEL_LAUNCH) {
        writer->works_dropped = drops_works(writer) && is_of_thread(writer, d->parentObj);
    }
    return (type & (WORK_EVENTS | NCCL_KERNEL_LAUNCH)) && writer->works_dropped;
}

MODERN void begin_group(struct writer *writer, u64 type) {
    if (type == NCCL_GROUP_API) writer->group_bits = callback_state_group_bits();
}
MODERN void store_group_bits(const struct event *event, const struct writer *writer, u64 type) {
    if (type == NCCL_GROUP_API) event->slot->group_api.bits = writer->group_bits;
}

// Nor does anybody ask when a call that is not timed ended: whether a thread is inside of NCCL is
// seen by its GroupApi, which is open until the launch is made. So such a call is over at once.
MODERN void close_call(const struct event *event, void **handle) {
    SLOT_STORE(event->slot->coll_api.t1, event->slot->coll_api.t0);
    slot_commit(event->slot, head_with_states(slot_head_own(event->slot), STATE_STOPPED));
    *handle = NULL;
}

// Whether a GroupApi is timed itself, as if it had no launch (event_note_group).
MODERN bool group_is_timed(u64 group) {
    u64 head;
    return event_find(group, &head) && (head_states(head) & STATE_NOTED);
}

// A launch that sampling chose, or that is captured.
MODERN void start_chosen_launch(struct event *event, struct writer *writer, void **handle,
                                const struct nccl_descr *d) {
    void *stream = (void *)(uintptr_t)address(d->kernelLaunch.stream);
    struct launch_sample sample = launch_events_start(stream, event->comm);
    bool begun = event_begin(event, writer, handle, d->parentObj, 1, NCCL_KERNEL_LAUNCH);
    launch_events_bind(sample.sample, begun ? event->handle : 0, false);
    if (writer) writer->works_dropped = false;
    if (!begun) return;
    struct slot_kernel_launch *slot = &event->slot->kernel_launch;
    slot->stream = address(stream);
    slot->comm = (u16)event->comm;
    slot->sample = sample.sample;
    slot->capture = sample.capture;
    unsigned flags = event_rank_flag(event, d->rank) | (sample.capture ? FLAG_GRAPH : 0);
    u64 head = head_word(KIND_kernel_launch, 0, flags, event->handle);
    slot_commit(event->slot, head_with_states(head, sample.sample ? STATE_NOTED : 0));
}

MODERN nccl_result start_slow(void *context, void **handle, const struct nccl_descr *d, u64 type,
                              int version) {
    if (!callback_state_is_recording()) {
        *handle = NULL;
        return 0;
    }
    if (!(type & (u64)NCCL_EVENTS_OF(version)) || (type & (type - 1))) {
        event_start_unknown(handle);
        return 0;
    }
    if (type == NCCL_NET_PLUGIN) {
        event_start_net(context, handle, d->parentObj, d->rank, &d->netPlugin);
        return 0;
    }
    if (type == NCCL_PROXY_STEP && *handle &&
        event_is_repeated_step(*handle, d->parentObj, d->proxyStep.step))
        return 0;
    unsigned slots = 1;
    bool ends_at_once = false;
    struct event event = event_of(context, type);
    struct writer *writer = writer_of_thread();
    struct names names = {0};
    if (type & COUNTED_EVENTS) {
        struct texts texts = texts_in(d, type, version);
        names = (struct names){intern(texts.func), intern(texts.dtype), intern(texts.algo),
                               intern(texts.proto), intern(texts.variant)};
        union slot *entry = tally_call(writer, key_of_call(d, type, event.comm, names));
        bool chosen = (type & CALL_EVENTS) && entry && sampling_may_choose(entry) &&
                      abi_modern_choose_call(entry, d, type, version);
        ends_at_once = (type & CALL_EVENTS) && !chosen && writer && drops_works(writer);
        if (writer) slots = slots_of_call(writer, d, type, event.comm, version);
    }
    if (is_known(version, type, NCCL_KERNEL_LAUNCH) && sampling_chose_group(d->parentObj)) {
        sampling_note_launch(address(d->parentObj), writer && is_of_thread(writer, d->parentObj));
        if (!group_is_timed(address(d->parentObj))) {
            start_chosen_launch(&event, writer, handle, d);
            return 0;
        }
    }
    if (writer && has_no_slot(writer, d, type, version)) {
        *handle = NULL;
        return 0;
    }
    if (writer) begin_group(writer, type);
    if (!event_begin(&event, writer, handle, d->parentObj, slots, type)) return 0;
    store_group_bits(&event, writer, type);
    fill_and_commit(&event, context, d, type, names, version, slots);
    if (ends_at_once) close_call(&event, handle);
    return 0;
}

MODERN nccl_result start_fast_event(void *context, void **handle, const struct nccl_descr *d,
                                    u64 type, int version, record_fn slow) {
    struct writer *writer = writer_in_static_tls();
    u64 comm = address(context) - callback_state.first_context;
    bool counted = type & COUNTED_EVENTS, low_priority = type & LOW_PRIORITY_EVENTS;
    if (UNLIKELY(!callback_state.fast_path) || UNLIKELY(!writer->stream) ||
        UNLIKELY(comm >= NO_COMM) || UNLIKELY(low_priority && writer->low_priority_closed) ||
        UNLIKELY(type == NCCL_PROXY_STEP && *handle) ||
        UNLIKELY(type == NCCL_KERNEL_LAUNCH && sampling_chose_group(d->parentObj)))
        return slow(context, handle, d);
    bool dropped = has_no_slot(writer, d, type, version);
    if (dropped && !counted) {
        *handle = NULL;
        return 0;
    }
    unsigned slots = 1;
    if (dropped) slots = 0;
    else if (counted) slots = slots_of_call(writer, d, type, (u32)comm, version);
    if (UNLIKELY(!writer_has_room(writer, slots)) ||
        UNLIKELY(type == NCCL_COLL && HAS_CALLS(version) && slots == 2))  // rarer, and longer
        return slow(context, handle, d);
    // Compared with the descriptor's at the very end.
    if (!dropped && (type & (NCCL_P2P | NCCL_KERNEL_CH))) __builtin_prefetch(&comm_ranks[comm]);
    struct names names = {0};
    bool ends_at_once = false;
    if (counted) {  // only where names and key are in their tables already
        struct texts texts = texts_in(d, type, version);
        if (UNLIKELY(!names_are_known(texts, type, version, &names)))
            return slow(context, handle, d);
        struct tally_key key = key_of_call(d, type, (u32)comm, names);
        union slot *entry = tally_find_fast(writer, key);
        if (UNLIKELY(!entry)) return slow(context, handle, d);
        tally_add(entry, key.count);
        tally_note_recent(writer, entry);
        if (type & CALL_EVENTS) {
            bool chosen = UNLIKELY(sampling_may_choose(entry)) &&
                          abi_modern_choose_call(entry, d, type, version);
            ends_at_once = !chosen && drops_works(writer);
        }
    }
    if (dropped) {
        *handle = NULL;
        return 0;
    }
    if (type == NCCL_GROUP_API) tally_prefetch_recent(writer);
    begin_group(writer, type);
    struct event event = event_take(writer, (u32)comm, handle, d->parentObj, slots, type);
    store_group_bits(&event, writer, type);
    fill_and_commit(&event, context, d, type, names, version, slots);
    if (ends_at_once) close_call(&event, handle);
    return 0;
}

// One function a kind: straight code, from its first line to its last.
#define FAST_START(name, type)                                                                   \
    static HOT __attribute__((noinline, unused)) nccl_result fast_##name(                        \
        void *context, void **handle, const struct nccl_descr *d, int version, record_fn slow) { \
        return start_fast_event(context, handle, d, type, version, slow);                        \
    }
FAST_START(proxy_step, NCCL_PROXY_STEP)
FAST_START(kernel_ch, NCCL_KERNEL_CH)
FAST_START(group_api, NCCL_GROUP_API)
FAST_START(coll_api, NCCL_COLL_API)
FAST_START(p2p_api, NCCL_P2P_API)
FAST_START(kernel_launch, NCCL_KERNEL_LAUNCH)
FAST_START(group, NCCL_GROUP)
FAST_START(coll, NCCL_COLL)
FAST_START(p2p, NCCL_P2P)
FAST_START(proxy_op, NCCL_PROXY_OP)
FAST_START(proxy_ctrl, NCCL_PROXY_CTRL)

MODERN nccl_result start_fast(void *context, void **handle, const struct nccl_descr *d, u64 type,
                              int version, record_fn slow) {
    if (type == NCCL_PROXY_STEP) return fast_proxy_step(context, handle, d, version, slow);
    if (type == NCCL_KERNEL_CH) return fast_kernel_ch(context, handle, d, version, slow);
    if (HAS_CALLS(version)) {
        if (type == NCCL_GROUP_API) return fast_group_api(context, handle, d, version, slow);
        if (type == NCCL_COLL_API) return fast_coll_api(context, handle, d, version, slow);
        if (type == NCCL_P2P_API) return fast_p2p_api(context, handle, d, version, slow);
        if (type == NCCL_KERNEL_LAUNCH)
            return fast_kernel_launch(context, handle, d, version, slow);
    }
    if (type == NCCL_GROUP) return fast_group(context, handle, d, version, slow);
    if (type == NCCL_COLL) return fast_coll(context, handle, d, version, slow);
    if (type == NCCL_P2P) return fast_p2p(context, handle, d, version, slow);
    if (type == NCCL_PROXY_OP) return fast_proxy_op(context, handle, d, version, slow);
    if (type == NCCL_PROXY_CTRL) return fast_proxy_ctrl(context, handle, d, version, slow);
    return slow(context, handle, d);
}

// One function for all of these versions.
nccl_result abi_modern_state(void *handle, int state, const union nccl_state_args *args);

MODERN nccl_result abi_modern_init(void **context, u64 id, int *mask, const char *name, i32 nodes,
                                   i32 ranks, i32 rank, nccl_log_fn log, int version,
                                   const void *nccl_address) {
    struct comm_description description = {.version = (unsigned)version,
                                           .known = true,
                                           .id = id,
                                           .name = name,
                                           .nodes = nodes,
                                           .ranks = ranks,
                                           .rank = rank};
    return plugin_init(context, mask, &description, log, nccl_address);
}

#endif
