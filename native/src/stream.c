// Attaching threads to streams, and moving a stream on to its next chunk.
#define _GNU_SOURCE
#include "stream.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct stream streams[MAX_STREAMS];
u32 streams_used;
_Thread_local struct writer writer_self;

// Stack of streams without an owner, as arena.c keeps its chunks.
static u64 free_top;
static u32 free_next[MAX_STREAMS];

static void push_free(u32 number) {
    u64 top = __atomic_load_n(&free_top, __ATOMIC_RELAXED), above;
    do {
        __atomic_store_n(&free_next[number], (u32)top, __ATOMIC_RELAXED);
        above = ((top >> 32) + 1) << 32 | (number + 1);
    } while (!__atomic_compare_exchange_n(&free_top, &top, above, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

static struct stream *pop_free(void) {
    u64 top = __atomic_load_n(&free_top, __ATOMIC_ACQUIRE), below;
    do {
        if ((u32)top == 0) return NULL;
        below =
            ((top >> 32) + 1) << 32 | __atomic_load_n(&free_next[(u32)top - 1], __ATOMIC_RELAXED);
    } while (!__atomic_compare_exchange_n(&free_top, &top, below, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    return &streams[(u32)top - 1];
}

// The dynamic linker keeps two words about the variable. Where it placed it next to the thread's
// own storage, in every thread, the second one is its distance; else it is a pointer, and no
// pointer is so small a number.
static void writer_locate(void) {
#if defined(__x86_64__)
    const i64 *words;
    const char *thread;
    __asm__("lea writer_self@tlsdesc(%%rip), %0" : "=a"(words));
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    callback_state.writer_offset = (const char *)&writer_self - thread;
    callback_state.static_tls = words[1] == callback_state.writer_offset &&
                                callback_state.writer_offset < 0 &&
                                callback_state.writer_offset > -(1 << 24);
#else
    callback_state.static_tls = true;
#endif
    callback_state_settle();
}

void streams_setup(u64 nonce) {
    writer_locate();
    callback_state.nonce = nonce;
    callback_state.first_context = nonce << 48 | (u64)CONTEXT_STREAM << INDEX_BITS;
    callback_state.window = arena.chunk_limit / 64;
    if (callback_state.window < 1) callback_state.window = 1;
    if (callback_state.window > WINDOW_TABLE / 2) callback_state.window = WINDOW_TABLE / 2;
    for (u32 number = MAX_STREAMS;
         number-- > 0;) {  // touches every page now rather than in a callback
        streams[number].prefix = nonce << 48 | (u64)number << INDEX_BITS;
        push_free(number);
    }
    __atomic_store_n(&callback_state.recording, true, __ATOMIC_RELEASE);
}

static void begin_chunk(struct writer *writer, u32 chunk, u64 first_index) {
    struct stream *stream = writer->stream;
    union slot *slots = arena_chunk(chunk);
    slots->block.first = first_index;
    slots->block.stream = (u32)(stream - streams);
    slots->block.count = 0;
    slots->block.written = 0;
    slots->block.tid = stream->tid;
    memcpy(slots->block.thread_name, stream->thread_name, sizeof slots->block.thread_name);
    slot_commit(slots, head_word(KIND_block, 0, 0, first_index));
    stream->chunk = chunk;
    stream->chunk_number = first_index >> CHUNK_SLOTS_LOG2;
    stream->window[stream->chunk_number % WINDOW_TABLE] = slots;
    writer->cur = slots + 1;
    writer->end = slots + CHUNK_SLOTS;
    writer->next_handle = stream->prefix | ((first_index + 1) & INDEX_MASK);
    __atomic_store_n(&arena_next[chunk], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stream->published_chunk_number, stream->chunk_number, __ATOMIC_RELEASE);
}

struct writer *stream_attach(void) {
    if (!__atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE)) return NULL;
    struct stream *stream = pop_free();
    if (!stream) return NULL;
    u32 number = (u32)(stream - streams);
    u32 chunk = arena_take_chunk(false);
    if (chunk == NO_CHUNK) {
        push_free(number);
        return NULL;
    }
    memset(stream->window, 0, sizeof stream->window);
    stream->drops.total = 0;
    stream->last_late_stop = 0;
    stream->tid =
        (u32)syscall(SYS_gettid);  // two system calls once a thread, neither of which can wait
    prctl(PR_GET_NAME, stream->thread_name);
    struct writer *writer = &writer_self;
    *writer = (struct writer){.stream = stream, .tally = stream->tally};
    begin_chunk(writer, chunk, stream->next_first_index);
    stream->first_index = stream->next_first_index;
    stream->first_chunk = chunk + 1;
    u32 used = __atomic_load_n(&streams_used, __ATOMIC_RELAXED);
    while (used <= number && !__atomic_compare_exchange_n(&streams_used, &used, number + 1, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    __atomic_store_n(&stream->attached, 1, __ATOMIC_RELEASE);
    return writer;
}

void stream_recycle(struct stream *stream) {
    __atomic_store_n(&stream->attached, 0, __ATOMIC_RELAXED);
    push_free((u32)(stream - streams));
}

void stream_count_drop(struct stream *stream, enum counter reason, unsigned event) {
    static const u8 class_of[EVENT_KINDS] = {1, 2, 3, 4, 5, 7, 6, 7, 0, 0, 0, 0, 7, 7, 7, 6};
    if (event >= NO_EVENT) {
        arena_count(COUNTER_updates_dropped, 0);
        return;
    }
    struct slot_drop *drops = &stream->drops;
    if (drops->total == 0) {
        memset(drops, 0, sizeof *drops);
        drops->t0 = clock_ticks();
    }
    drops->total++;
    (&drops->api)[class_of[event]]++;
    arena_count(reason, event);
}

static void write_drops(struct writer *writer) {
    struct stream *stream = writer->stream;
    union slot *slot = writer->cur++;
    memcpy(&slot->words[1], &((union slot *)&stream->drops)->words[1], SLOT_BYTES - 8);
    slot->drop.t1 = clock_ticks();
    slot_commit(slot, head_word(KIND_drop, 0, 0, writer->next_handle++));
    stream->drops.total = 0;
}

static bool memory_is_short(void) {
    return __atomic_load_n(&arena.free_count, __ATOMIC_RELAXED) <
           __atomic_load_n(&arena.low_priority_reserve, __ATOMIC_RELAXED);
}

bool stream_reopen(struct writer *writer) {
    if (memory_is_short()) return false;
    writer->low_priority_closed = false;
    if (writer->stream->drops.total && writer_has_room(writer, 2)) write_drops(writer);
    return true;
}

union slot *stream_next_chunk(struct writer *writer, unsigned event) {
    struct stream *stream = writer->stream;
    bool low_priority = event_is_low_priority(event);
    u32 chunk = arena_take_chunk(low_priority), previous = stream->chunk;
    if (chunk == NO_CHUNK) {
        stream_count_drop(stream,
                          low_priority ? COUNTER_dropped_low_priority : COUNTER_dropped_arena_full,
                          event);
        return NULL;
    }
    if (writer_has_room(writer, 1))  // two slots never straddle a chunk's end
        slot_commit(writer->cur, head_word(KIND_pad, 0, 0, writer->next_handle));
    begin_chunk(writer, chunk, (stream->chunk_number + 1) << CHUNK_SLOTS_LOG2);
    __atomic_store_n(&arena_next[previous], chunk + 1, __ATOMIC_RELEASE);
    writer->low_priority_closed = memory_is_short();
    if (stream->drops.total) write_drops(writer);
    return writer->cur;
}

union slot *stream_older_place(const struct stream *stream, u64 handle) {
    if ((handle ^ stream->prefix) >> INDEX_BITS) return NULL;
    u64 number = (handle & INDEX_MASK) >> CHUNK_SLOTS_LOG2;
    if (((stream->chunk_number - number) & CHUNK_NUMBER_MASK) > callback_state.window) return NULL;
    union slot *chunk = stream->window[number % WINDOW_TABLE];
    return chunk ? chunk + (handle & (CHUNK_SLOTS - 1)) : NULL;
}
