// Streams: one for each thread that NCCL calls from, the only writer of its slots; and which events
// are dropped first when memory is short.
//
// A stream is a chain of arena chunks. Slots are numbered through, over chunks and over the threads
// that own the stream one after another, so (stream, index) names one slot for the life of the
// process; a handle is nonce, stream and the index's lower bits in one word.
//
// The window rule: the owner may edit slots of its newest chunk and of the `callback_state.window`
// chunks before it. The helper thread frees only chunks older than that, so the two never meet on
// one slot. Example with a window of 2: while the owner writes chunk 7 of its stream, it may edit
// slots of chunks 5, 6 and 7. A stop of an event in chunk 4 becomes a State slot in chunk 7, and
// the helper may free chunk 4 once all of it has been drained.
#ifndef NCCLSCOPE_STREAM_H
#define NCCLSCOPE_STREAM_H

#include <stdbool.h>

#include "arena.h"
#include "callback_state.h"
#include "clock.h"
#include "nccl_abi.h"
#include "slot.h"

#define WINDOW_TABLE 32u               // power of two above the largest window
#define NO_EVENT EVENT_KINDS           // in place of an event's number: the slot is for an update
#define RANGE_EVENT (EVENT_KINDS + 1)  // or for a range
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

    // ---- the helper's (drain.c) ----
    _Alignas(64) u32 oldest_chunk;  // 1 + first chunk not yet freed, 0: none
    u64 oldest_number;              // its chunk number
    struct cursor visited;          // the next slot to visit
    struct cursor written;          // ring: the next slot to write
    u64 next_first_index;           // where a later owner starts
    bool adopted;                   // the helper has begun to drain it
    bool owner_exited;
    u32 idle_passes;
    u64 group;              // handle of the newest GroupApi; 0: there was none
    enum follows {          // what decides whether a slot goes to disk:
        FOLLOWS_MODE,       // the present mode
        FOLLOWS_UNWRITTEN,  // a group that does not
        FOLLOWS_WRITTEN,    // a group that does
    } group_follows,
        launch_follows;  // of that group; of the newest call or launch, and its works
};

extern HIDDEN struct stream streams[MAX_STREAMS];
extern HIDDEN u32 streams_used;  // streams with a higher number were never taken

void stream_setup_all(u64 nonce);
// A stream without an owner; NULL: all are taken.
struct stream *stream_take(void);
// Returns a stream that nobody owns. Its chunks must have been freed.
void stream_give_back(struct stream *stream);
// Makes the helper look at this stream from now on.
void stream_publish(struct stream *stream);
// `event`: the number of NCCL's event bit, or NO_EVENT.
COLD void stream_count_drop(struct stream *stream, enum counter reason, unsigned event);
// The slot of a handle that is not of the newest chunk; NULL: outside of the window.
COLD union slot *stream_find_older(const struct stream *stream, u64 handle);

// Chunks between a handle's chunk and the stream's newest one, of which handles know the lower
// bits.
static inline u64 stream_chunk_age(u64 newest_chunk_number, u64 handle) {
    return (newest_chunk_number - ((handle & INDEX_MASK) >> CHUNK_SLOTS_LOG2)) & CHUNK_NUMBER_MASK;
}

// Events that give way first when memory is short.
#define LOW_PRIORITY_EVENTS (NCCL_PROXY_STEP | NCCL_PROXY_CTRL | NCCL_NET_PLUGIN)
static inline bool stream_is_low_priority(unsigned event) {
    return ((u32)(LOW_PRIORITY_EVENTS | 1u << RANGE_EVENT) >> event) & 1;
}

#endif
