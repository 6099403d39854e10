// What a thread writes its stream with: the next slot, and where its recent slots are.
#ifndef NCCLSCOPE_WRITER_H
#define NCCLSCOPE_WRITER_H

#include "stream.h"

#define RECENT_ENTRIES 4u  // Send and Recv in one group: each as a call and as a work

// glibc places the storage of a library that comes late next to the thread's own, where it is
// found soonest, only if it asks for no more alignment than that has.
#if defined(__x86_64__)
#define WRITER_ALIGNMENT 64
#else
#define WRITER_ALIGNMENT 16
#endif

// Used in every callback. One cache line in the thread's own storage: were it a part of the stream,
// each callback would wait for a pointer to it first.
struct writer {
    _Alignas(WRITER_ALIGNMENT) union slot *cur;  // the next slot
    union slot *end;                             // of the chunk
    u64 next_handle;                             // of *cur
    union slot *tally;                           // the stream's table of call counts
    struct stream *stream;                       // NULL: none
    u16 recent_entries[RECENT_ENTRIES];          // entries of that table, by turns
    u8 recent_next;                              // where in recent_entries the next one goes
    bool low_priority_closed;  // memory is short: this chunk is not for steps, ctrl, net and ranges
    bool works_dropped;       // the newest launch has no slot, so its works get none (abi_modern.h)
    u8 group_bits;            // GROUP_… of the newest group (callback_state.h)
    struct range_nest *nest;  // the thread's open ranges (range.c); NULL: it never had any
};
_Static_assert(sizeof(struct writer) <= 64, "a line");
extern HIDDEN _Thread_local struct writer writer_self;

// Where the thread's own storage begins: a register holds it, or the word that another one points
// at.
static inline char *thread_pointer(void) {
    char *thread;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(thread));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(thread));
#endif
    return thread;
}

// writer_self without asking the dynamic linker where it is, which is a call and two more cache
// lines. What it returns may be used only where callback_state.fast_path is set.
static inline struct writer *writer_in_static_tls(void) {
    return (struct writer *)(thread_pointer() + callback_state.writer_offset);
}

// At init: finds out whether and where writers lie in static thread-local storage.
void writer_locate(void);
// ---- slow paths, out of line. A writer is the calling thread's own. ----
COLD struct writer *writer_attach(void);
// Moves on to a new chunk and returns its first free slot; NULL: dropped. `event`: the number of
// NCCL's event bit, or NO_EVENT.
COLD union slot *writer_next_chunk(struct writer *writer, unsigned event);
// Whether steps, ctrl and net may use the current chunk again; leaves room for one slot.
COLD bool writer_reopen(struct writer *writer);

// The calling thread's; NULL when it cannot have a stream.
static inline struct writer *writer_of_thread(void) {
    struct writer *writer = &writer_self;
    return LIKELY(writer->stream != NULL) ? writer : writer_attach();
}

static inline bool writer_has_room(const struct writer *writer, unsigned slots) {
    return writer->cur + slots <= writer->end;
}

// The next slots, where there is room for them.
static inline union slot *writer_advance(struct writer *writer, unsigned slots, u64 *handle) {
    union slot *slot = writer->cur;
    *handle = writer->next_handle;
    writer->cur = slot + slots;
    writer->next_handle += slots;
    // Between two callbacks NCCL and the driver run for microseconds, and the hardware's own
    // prefetch forgets the stream: without this every slot costs a miss.
    slot_prefetch_for_write(slot + slots + 1);
    return slot;
}

// `slots` neighbouring slots (1 or 2) and the handle of the first; NULL: dropped and counted.
static inline union slot *writer_take(struct writer *writer, unsigned slots, unsigned event,
                                      u64 *handle) {
    if (UNLIKELY(!writer_has_room(writer, slots)) && !writer_next_chunk(writer, event)) return NULL;
    if (stream_is_low_priority(event) && UNLIKELY(writer->low_priority_closed)) {
        if (!writer_reopen(writer)) {
            stream_count_drop(writer->stream, COUNTER_dropped_low_priority, event);
            return NULL;
        }
    }
    return writer_advance(writer, slots, handle);
}

// Whether a handle is of the newest chunk, and its place there.
static inline bool writer_is_newest(const struct writer *writer, u64 handle) {
    return (handle ^ writer->next_handle) >> CHUNK_SLOTS_LOG2 == 0;
}
static inline union slot *writer_newest_place(const struct writer *writer, u64 handle) {
    return writer->end - CHUNK_SLOTS + (handle & (CHUNK_SLOTS - 1));
}

// The committed slot of a handle, if this thread may edit it; its kind may be any.
static inline union slot *writer_find(const struct writer *writer, u64 handle, u64 *head) {
    union slot *slot = writer_is_newest(writer, handle) ? writer_newest_place(writer, handle)
                                                        : stream_find_older(writer->stream, handle);
    if (!slot) return NULL;
    *head = slot_head_own(slot);
    return LIKELY(head_kind(*head) != 0 && head_check(*head) == (u32)handle) ? slot : NULL;
}

#endif
