// Streams: each thread that NCCL calls from owns one and is the only writer of its slots.
//
// A stream is a chain of arena chunks. Slots are numbered through, over chunks and over the threads
// that own the stream one after another, so (stream, index) names one slot for the life of the
// process; a handle is nonce, stream and the index's lower bits in one word. The owner may edit
// slots of its newest `hot.window` chunks; the helper thread frees only chunks older than that,
// so the two never meet on one slot.
#ifndef NCCLSCOPE_STREAM_H
#define NCCLSCOPE_STREAM_H

#include <stdbool.h>

#include "arena.h"
#include "clock.h"
#include "callback_state.h"
#include "slot.h"

#define WINDOW_TABLE 32u      // power of two above the largest window
#define COUNTED_LAST 4u       // Send and Recv in one group: each as a call and as a work
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
    struct cursor met;              // the next slot to look at
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
#define PEN_ALIGNMENT 64
#else
#define PEN_ALIGNMENT 16
#endif

// What a thread writes its stream with, in every callback. One cache line in the thread's own
// storage: were it a part of the stream, each callback would wait for a pointer to it first.
struct pen {
    _Alignas(PEN_ALIGNMENT) union slot *cur;  // the next slot
    union slot *end;                          // of the chunk
    u64 next_handle;                          // of *cur
    union slot *tally;                        // the stream's
    struct stream *stream;                    // NULL: none
    u16 counted_last[COUNTED_LAST];           // entries of that table, by turns
    u8 counted;                               // where in counted_last the next one goes
    bool low_priority_closed;  // memory is short: this chunk is not for steps, ctrl and net
};
_Static_assert(sizeof(struct pen) <= 64, "a line");
extern HIDDEN _Thread_local struct pen pen_self;

// pen_self without asking the dynamic linker where it is, which is a call and two more lines. To be
// looked into only where hot.usual says that pens are near.
static inline struct pen *pen_near(void) {
#if defined(__x86_64__)
    char *thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    return (struct pen *)(thread + hot.pen_offset);
#else
    return &pen_self;
#endif
}

void streams_setup(u64 nonce);
// Slow paths, out of line. A pen is the calling thread's own.
COLD struct pen *stream_attach(void);
// Moves on to a new chunk and returns its first free slot; NULL: dropped. event is NCCL's event bit
// number or NO_EVENT.
COLD union slot *stream_next_chunk(struct pen *pen, unsigned event);
// Whether steps, ctrl and net may use the current chunk again; leaves room for one slot.
COLD bool stream_reopen(struct pen *pen);
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
static inline struct pen *pen_of_thread(void) {
    struct pen *pen = &pen_self;
    return LIKELY(pen->stream != NULL) ? pen : stream_attach();
}

static inline bool pen_has_room(const struct pen *pen, unsigned slots) {
    return pen->cur + slots <= pen->end;
}

// The next slots, where there is room for them.
static inline union slot *pen_advance(struct pen *pen, unsigned slots, u64 *handle) {
    union slot *slot = pen->cur;
    *handle = pen->next_handle;
    pen->cur = slot + slots;
    pen->next_handle += slots;
    // Between two callbacks NCCL and the driver run for microseconds, and the hardware's own
    // prefetch forgets the stream: without this every slot costs a miss.
    fetch_to_write(slot + slots + 1);
    return slot;
}

// `slots` neighbouring slots (1 or 2) and the handle of the first; NULL: dropped and counted.
static inline union slot *pen_take(struct pen *pen, unsigned slots, unsigned event, u64 *handle) {
    if (UNLIKELY(!pen_has_room(pen, slots)) && !stream_next_chunk(pen, event)) return NULL;
    if (event_is_low_priority(event) && UNLIKELY(pen->low_priority_closed)) {
        if (!stream_reopen(pen)) {
            stream_count_drop(pen->stream, COUNTER_dropped_low_priority, event);
            return NULL;
        }
    }
    return pen_advance(pen, slots, handle);
}

// Whether a handle is of the newest chunk, and its place there.
static inline bool pen_is_newest(const struct pen *pen, u64 handle) {
    return (handle ^ pen->next_handle) >> CHUNK_SLOTS_LOG2 == 0;
}
static inline union slot *pen_newest_place(const struct pen *pen, u64 handle) {
    return pen->end - CHUNK_SLOTS + (handle & (CHUNK_SLOTS - 1));
}

// The committed slot of a handle, if this thread may edit it; its kind may be any.
static inline union slot *pen_find(const struct pen *pen, u64 handle, u64 *head) {
    union slot *slot = pen_is_newest(pen, handle) ? pen_newest_place(pen, handle)
                                                  : stream_older_place(pen->stream, handle);
    if (!slot) return NULL;
    *head = slot_head_own(slot);
    return LIKELY(head_kind(*head) != 0 && head_check(*head) == (u32)handle) ? slot : NULL;
}

#endif
