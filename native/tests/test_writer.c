// Streams, their chunks, and what a thread may edit of them.
#include "writer.h"

#include <pthread.h>

#include "drain.h"
#include "test.h"

static u64 take(struct writer *writer, u64 type) {
    u64 handle = 0;
    union slot *slot = writer_take(writer, 1, NCCL_NUMBER(type), &handle);
    if (!slot) return 0;
    slot->group.t0 = clock_ticks();
    slot_commit(slot, head_word(NCCL_NUMBER(type) + 1, 0, 0, handle));
    return handle;
}

static void stop(struct writer *writer, u64 handle) {
    u64 head;
    union slot *slot = writer_find(writer, handle, &head);
    CHECK(slot);
    slot_commit(slot, head_with_states(head, STATE_STOPPED));
}

static struct drain_pass pass_to_nowhere(void) {
    return (struct drain_pass){.use = TO_NOWHERE, .now = clock_ticks(), .patience = 1ull << 60};
}

TEST(slots_of_a_stream_are_numbered_through) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    u64 first = take(writer, NCCL_GROUP);
    CHECK_EQUAL(first >> HANDLE_BITS, NONCE);
    CHECK_EQUAL(first & INDEX_MASK, 1);  // slot 0 is the chunk's own
    for (unsigned i = 2; i < CHUNK_SLOTS; i++) CHECK_EQUAL(take(writer, NCCL_GROUP), first + i - 1);
    CHECK_EQUAL(take(writer, NCCL_GROUP) & INDEX_MASK, CHUNK_SLOTS + 1);
    CHECK_EQUAL(writer->stream->chunk_number, 1);
}

TEST(two_slots_never_straddle_a_chunk) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    for (unsigned i = 1; i < CHUNK_SLOTS - 1; i++) take(writer, NCCL_GROUP);
    union slot *last = writer->cur;
    u64 handle;
    CHECK(writer_take(writer, 2, NCCL_NUMBER(NCCL_COLL), &handle));
    CHECK_EQUAL(handle & INDEX_MASK, CHUNK_SLOTS + 1);
    CHECK_EQUAL(head_kind(slot_head(last)), KIND_pad);
}

TEST(handles_are_found_within_the_window_alone) {
    start_recorder(256);  // a window of 4 chunks
    CHECK_EQUAL(callback_state.window, 4);
    struct writer *writer = writer_of_thread();
    u64 first = take(writer, NCCL_COLL), head;
    while (writer->stream->chunk_number < callback_state.window) take(writer, NCCL_GROUP);
    CHECK(writer_find(writer, first, &head));
    while (writer->stream->chunk_number <= callback_state.window) take(writer, NCCL_GROUP);
    CHECK(!writer_find(writer, first, &head));
    CHECK(!writer_find(writer, first ^ 1ull << HANDLE_BITS, &head));  // another process's
}

TEST(drained_chunks_are_used_again_with_cleared_heads) {
    start_recorder(16);  // a window of 1 chunk
    struct writer *writer = writer_of_thread();
    u64 most = 40 * CHUNK_SLOTS;
    for (u64 i = 0; i < most; i++) {
        u64 handle = take(writer, NCCL_GROUP);
        CHECK(handle);
        stop(writer, handle);
        if (i % CHUNK_SLOTS == 0) {
            struct drain_pass pass = pass_to_nowhere();
            drain_streams(&pass);
        }
    }
    CHECK(writer->stream->chunk_number >= 40);
    CHECK_EQUAL(counter_value(COUNTER_dropped_arena_full, NCCL_GROUP), 0);
    for (union slot *slot = writer->cur; slot < writer->end; slot++) CHECK_EQUAL(slot->head, 0);
}

TEST(a_chunk_with_an_open_event_is_freed_when_it_leaves_the_window) {
    start_recorder(16);  // a window of 1 chunk
    struct writer *writer = writer_of_thread();
    CHECK(take(writer, NCCL_COLL));  // stays open
    struct drain_pass pass = pass_to_nowhere();
    pass.patience = 0;
    while (writer->stream->chunk_number < 3) {
        stop(writer, take(writer, NCCL_GROUP));
        pass.now = clock_ticks();
        drain_streams(&pass);
        bool in_window = writer->stream->chunk_number <= callback_state.window;
        CHECK_EQUAL(writer->stream->oldest_number == 0, in_window);
    }
}

TEST(drops_are_counted_by_class_and_written_when_there_is_room) {
    start_recorder(16);
    struct writer *writer = writer_of_thread();
    while (take(writer, NCCL_COLL)) {
    }
    take(writer, NCCL_GROUP);
    take(writer, NCCL_CE_BATCH);
    CHECK_EQUAL(counter_value(COUNTER_dropped_arena_full, NCCL_COLL), 1);
    CHECK_EQUAL(counter_value(COUNTER_dropped_arena_full, NCCL_CE_BATCH), 1);
    CHECK_EQUAL(writer->stream->drops.total, 3);
    CHECK_EQUAL(writer->stream->drops.coll, 1);
    CHECK_EQUAL(writer->stream->drops.group, 1);
    CHECK_EQUAL(writer->stream->drops.other, 1);
    struct drain_pass pass = pass_to_nowhere();
    pass.everything = true;
    drain_streams(&pass);
    CHECK(take(writer, NCCL_COLL));
    CHECK_EQUAL(writer->stream->drops.total, 0);
    CHECK_EQUAL(head_kind(slot_head(writer->end - CHUNK_SLOTS + 1)), KIND_drop);
}

TEST(low_priority_events_give_way_first) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    while (take(writer, NCCL_PROXY_STEP)) {
    }
    CHECK_EQUAL(counter_value(COUNTER_dropped_low_priority, NCCL_PROXY_STEP), 1);
    CHECK(__atomic_load_n(&arena.free_count, __ATOMIC_RELAXED) > 0);
    CHECK(take(writer, NCCL_COLL));
}

static void *one_event(void *handle) {
    struct writer *writer = writer_of_thread();
    CHECK(writer);
    *(u64 *)handle = take(writer, NCCL_GROUP);
    stop(writer, *(u64 *)handle);
    return NULL;
}

TEST(a_stream_of_an_exited_thread_goes_to_the_next) {
    start_recorder(64);
    u64 first = 0, second = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, one_event, &first);
    pthread_join(thread, NULL);
    struct drain_pass pass = pass_to_nowhere();
    pass.everything = pass.scarce = true;
    for (int i = 0; i < 100 && streams[0].attached; i++) {
        drain_streams(&pass);
        usleep(1000);  // the kernel may take a moment to end the thread
    }
    CHECK(!streams[0].attached);
    pthread_create(&thread, NULL, one_event, &second);
    pthread_join(thread, NULL);
    CHECK_EQUAL(second >> INDEX_BITS, first >> INDEX_BITS);
    CHECK((second & INDEX_MASK) > (first & INDEX_MASK));  // no index is used twice
}

TEST(a_pass_takes_a_part_of_a_long_stream_and_is_due_again) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    u64 taken = 0;
    for (; writer->stream->chunk_number < 40; taken++) stop(writer, take(writer, NCCL_GROUP));
    struct drain_pass pass = pass_to_nowhere();
    CHECK(drain_is_due());
    u32 free_before = arena.free_count;
    u64 visited = drain_streams(&pass);
    CHECK(0 < visited && visited < taken);
    CHECK(arena.free_count > free_before);  // while the rest is still to be visited
    CHECK(drain_is_due());
    CHECK_EQUAL(drain_streams(&pass), taken - visited);
    CHECK(!drain_is_due());
}

TEST(a_pass_that_is_to_take_everything_does) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    u64 taken = 0;
    for (; writer->stream->chunk_number < 40; taken++) stop(writer, take(writer, NCCL_GROUP));
    struct drain_pass pass = pass_to_nowhere();
    pass.everything = true;
    CHECK_EQUAL(drain_streams(&pass), taken);
}
