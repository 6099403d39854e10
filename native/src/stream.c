// The pool of streams, and what one of them can say about its slots.
#include "stream.h"

#include <string.h>

#include "free_list.h"

struct stream streams[MAX_STREAMS];
u32 streams_used;

static u64 free_streams;
static u32 free_next[MAX_STREAMS];

struct stream *stream_take(void) {
    u32 number = free_list_pop(&free_streams, free_next);
    return number == FREE_LIST_EMPTY ? NULL : &streams[number];
}

void stream_setup_all(u64 nonce) {
    callback_state.nonce = nonce;
    callback_state.first_context = nonce << HANDLE_BITS | (u64)CONTEXT_STREAM << INDEX_BITS;
    callback_state.window = arena.chunk_limit / 64;
    if (callback_state.window < 1) callback_state.window = 1;
    if (callback_state.window > WINDOW_TABLE / 2) callback_state.window = WINDOW_TABLE / 2;
    for (u32 number = MAX_STREAMS;
         number-- > 0;) {  // touches every page now rather than in a callback
        streams[number].prefix = nonce << HANDLE_BITS | (u64)number << INDEX_BITS;
        free_list_push(&free_streams, free_next, number);
    }
    __atomic_store_n(&callback_state.recording, true, __ATOMIC_RELEASE);
}

void stream_publish(struct stream *stream) {
    u32 number = (u32)(stream - streams);
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_RELAXED);
    while (used <= number && !__atomic_compare_exchange_n(&streams_used, &used, number + 1, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    __atomic_store_n(&stream->attached, 1, __ATOMIC_RELEASE);
}

void stream_give_back(struct stream *stream) {
    __atomic_store_n(&stream->attached, 0, __ATOMIC_RELAXED);
    free_list_push(&free_streams, free_next, (u32)(stream - streams));
}

// Where in a Drop slot an event is counted.
#define DROPS(x, bit, constant, name, first, drop) [bit] = offsetof(struct slot_drop, drop),
static const u8 drop_fields[EVENT_KINDS] = {NCCL_EVENT_LIST(DROPS, )};
#undef DROPS

void stream_count_drop(struct stream *stream, enum counter reason, unsigned event) {
    if (event >= NO_EVENT) {
        arena_count(event == RANGE_EVENT ? COUNTER_dropped_ranges : COUNTER_updates_dropped, 0);
        return;
    }
    struct slot_drop *drops = &stream->drops;
    if (drops->total == 0) {
        memset(drops, 0, sizeof *drops);
        drops->t0 = clock_ticks();
    }
    drops->total++;
    ++*(u32 *)((char *)drops + drop_fields[event]);
    arena_count(reason, event);
}

union slot *stream_find_older(const struct stream *stream, u64 handle) {
    if ((handle ^ stream->prefix) >> INDEX_BITS) return NULL;
    if (stream_chunk_age(stream->chunk_number, handle) > callback_state.window) return NULL;
    u64 number = (handle & INDEX_MASK) >> CHUNK_SLOTS_LOG2;
    union slot *chunk = stream->window[number % WINDOW_TABLE];
    return chunk ? chunk + (handle & (CHUNK_SLOTS - 1)) : NULL;
}
