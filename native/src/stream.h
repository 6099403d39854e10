// Streams: each thread that NCCL calls from owns one and is the only writer of its slots.
//
// A stream is a chain of arena chunks. Slots are numbered through, over chunks and over the threads
// that own the stream one after another, so (stream, index) names one slot for the life of the
// process; a handle is nonce, stream and the index's lower bits in one word. The owner may edit
// slots of its newest `callback_state.window` chunks; the helper thread frees only chunks older
// than that, so the two never meet on one slot.
#ifndef NCCLSCOPE_STREAM_H
#define NCCLSCOPE_STREAM_H

#include <stdbool.h>

#include "arena.h"
#include "callback_state.h"
#include "clock.h"
#include "slot.h"

#define WINDOW_TABLE 32u      // power of two above the largest window
#define RECENT_ENTRIES 4u     // Send and Recv in one group: each as a call and as a work
#define NO_EVENT EVENT_KINDS  // in place of an event bit: the slot is for an update
#define CHUNK_NUMBER_MASK \
    (INDEX_MASK >> CHUNK_SLOTS_LOG2)  // as far as handles tell chunk numbers apart

// A place in a stream's chain of chunks.
struct cursor {
    u32 chunk;  // 1 + chunk in the arena
    u64 index;
};

struct stream {
    // ---- the owner's ----
    union slot *tally;  // table of call counts; stays with the stream
    u32 tally_keys;
    u32 chunk;                         // the current chunk's place in the arena
    u64 chunk_number;                  // index >> CHUNK_SLOTS_LOG2 of the current chunk
    u64 prefix;                        // nonce and stream number; index bits zero
    union slot *window[WINDOW_TABLE];  // chunks by chunk_number modulo the table
    u64 last_late_stop;                // handle; a stop that NCCL repeats for ever is recorded once
    struct slot_drop drops;            // being counted; written out when there is room again

    // ---- written by the owner, read by the helper ----
    _Alignas(64) u64 published_chunk_number;
    u32 tid;
    char thread_name[16];
    u32 attached;     // 1 while a thread owns the stream; the helper resets it
    u64 first_index;  // of the present owner
    u32 first_chunk;  // 1 + chunk; of the present owner

    // ---- the helper's ----
    _Alignas(64) u32 oldest_chunk;  // 1 + first chunk not yet freed, 0: none
    u64 oldest_number;              // its chunk number
    struct cursor visited;          // the next slot to look at
    struct cursor written;          // ring: the next slot to write
    u64 next_first_index;           // where a later owner starts
    bool known;                     // to the helper
    bool gone;                      // its thread does not exist any more
    u32 idle_passes;
};

extern HIDDEN struct stream streams[MAX_STREAMS];
extern HIDDEN u32 streams_used;  // streams with a higher number were never taken

// glibc places the storage of a library that comes late next to the thread's own, where it is
// found soonest, only if it asks for no more alignment than that has.
#if defined(__x86_64__)
#define WRITER_ALIGNMENT 64
#else
#define WRITER_ALIGNMENT 16
#endif

// What a thread writes its stream with, in every callback. One cache line in the thread's own
// storage: were it a part of the stream, each callback would wait for a pointer to it first.
struct writer {
    _Alignas(WRITER_ALIGNMENT) union slot *cur;  // the next slot
    union slot *end;                             // of the chunk
    u64 next_handle;                             // of *cur
    union slot *tally;                           // the stream's
    struct stream *stream;                       // NULL: none
    u16 recent_entries[RECENT_ENTRIES];          // entries of that table, by turns
    u8 recent_next;                              // where in recent_entries the next one goes
    bool low_priority_closed;  // memory is short: this chunk is not for steps, ctrl and net
};
_Static_assert(sizeof(struct writer) <= 64, "a line");
extern HIDDEN _Thread_local struct writer writer_self;

// writer_self without asking the dynamic linker where it is, which is a call and two more lines. To
// be looked into only where callback_state.fast_path says that pens are near.
static inline struct writer *writer_in_static_tls(void) {
#if defined(__x86_64__)
    char *thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    return (struct writer *)(thread + callback_state.writer_offset);
#else
    return &writer_self;
#endif
}

void streams_setup(u64 nonce);
// Slow paths, out of line. A pen is the calling thread's own.
COLD struct writer *stream_attach(void);
// Moves on to a new chunk and returns its first free slot; NULL: dropped. event is NCCL's event bit
// number or NO_EVENT.
COLD union slot *stream_next_chunk(struct writer *writer, unsigned event);
// Whether steps, ctrl and net may use the current chunk again; leaves room for one slot.
COLD bool stream_reopen(struct writer *writer);
COLD void stream_count_drop(struct stream *stream, enum counter reason, unsigned event);
// The place of a handle that is not of the newest chunk; NULL: not for this thread to edit.
COLD union slot *stream_older_place(const struct stream *stream, u64 handle);
// Helper: hands a stream of a dead thread out again. Its chunks are freed already.
void stream_recycle(struct stream *stream);

#define LOW_PRIORITY_EVENTS 0xB0u  // ProxyStep, ProxyCtrl, NetPlugin
static inline bool event_is_low_priority(unsigned event) {
    return (LOW_PRIORITY_EVENTS >> event) & 1;
}

// The calling thread's; NULL when it cannot have a stream.
static inline struct writer *writer_of_thread(void) {
    struct writer *writer = &writer_self;
    return LIKELY(writer->stream != NULL) ? writer : stream_attach();
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
    if (UNLIKELY(!writer_has_room(writer, slots)) && !stream_next_chunk(writer, event)) return NULL;
    if (event_is_low_priority(event) && UNLIKELY(writer->low_priority_closed)) {
        if (!stream_reopen(writer)) {
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
    union slot *slot = writer_is_newest(writer, handle)
                           ? writer_newest_place(writer, handle)
                           : stream_older_place(writer->stream, handle);
    if (!slot) return NULL;
    *head = slot_head_own(slot);
    return LIKELY(head_kind(*head) != 0 && head_check(*head) == (u32)handle) ? slot : NULL;
}

#endif
