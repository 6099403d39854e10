// Attaching threads to streams, and moving a stream on to its next chunk.
#define _GNU_SOURCE
#include "writer.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "range.h"

_Thread_local struct writer writer_self;

// The dynamic linker keeps two words about the variable. Where it placed it next to the thread's
// own storage, in every thread, the second one is its distance; else it is a pointer, which is
// never a small number.
void writer_locate(void) {
    const i64 *words;
#if defined(__x86_64__)
    __asm__("lea writer_self@tlsdesc(%%rip), %0" : "=a"(words));
#else
    __asm__("adrp %0, :tlsdesc:writer_self\n\tadd %0, %0, :tlsdesc_lo12:writer_self" : "=r"(words));
#endif
    i64 offset = (const char *)&writer_self - thread_pointer();
    callback_state.writer_offset = offset;
    callback_state.static_tls = words[1] == offset && offset > -(1 << 24) && offset < 1 << 24;
    callback_state_settle();
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

struct writer *writer_attach(void) {
    if (!__atomic_load_n(&callback_state.recording, __ATOMIC_ACQUIRE)) return NULL;
    struct stream *stream = stream_take();
    if (!stream) return NULL;
    u32 chunk = arena_take_chunk(false);
    if (chunk == NO_CHUNK) {
        stream_give_back(stream);
        return NULL;
    }
    memset(stream->window, 0, sizeof stream->window);
    stream->drops.total = 0;
    stream->last_late_stop = 0;
    // Two system calls once a thread, neither of which can wait.
    long tid = syscall(SYS_gettid);
    stream->tid = tid > 0 ? (u32)tid : 0;
    if (prctl(PR_GET_NAME, stream->thread_name) != 0) stream->thread_name[0] = 0;
    struct writer *writer = &writer_self;
    *writer = (struct writer){.stream = stream, .tally = stream->tally, .nest = writer->nest};
    begin_chunk(writer, chunk, stream->next_first_index);
    stream->first_index = stream->next_first_index;
    stream->first_chunk = chunk + 1;
    stream_publish(stream);
    range_write_remembered(writer);
    return writer;
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

bool writer_reopen(struct writer *writer) {
    if (memory_is_short()) return false;
    writer->low_priority_closed = false;
    if (writer->stream->drops.total && writer_has_room(writer, 2)) write_drops(writer);
    return true;
}

union slot *writer_next_chunk(struct writer *writer, unsigned event) {
    struct stream *stream = writer->stream;
    bool low_priority = stream_is_low_priority(event);
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
