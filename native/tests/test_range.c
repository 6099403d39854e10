// Nests of ranges, and what they leave in streams.
#include "range.h"

#include <pthread.h>

#include "drain.h"
#include "test.h"
#include "training_steps.h"

static void start_with_ranges(unsigned chunks) {
    start_recorder(chunks);
    range_begin(true);
}

static struct range named(const char *text) {
    return (struct range){.text = range_text(text, strlen(text)), .source = RANGE_NVTX};
}

static int push(const char *text, unsigned stack) {
    struct range range = named(text);
    return range_push(&range, stack);
}

static union slot *newest(void) { return writer_self.cur - 1; }

TEST(a_range_is_one_slot_that_its_pop_closes) {
    start_with_ranges(16);
    CHECK_EQUAL(push("outer", 0), 0);
    union slot *slot = newest();
    CHECK_EQUAL(slot->kind, KIND_range);
    CHECK(head_is_open(slot->head));
    CHECK_EQUAL(slot->chan, RANGE_NVTX);
    CHECK_EQUAL(range_pop(0, NULL), 0);
    CHECK(newest() == slot);
    CHECK(!head_is_open(slot->head));
    CHECK(slot->range.t1 >= slot->range.t0);
    CHECK_EQUAL(range_pop(0, NULL), -1);
}

TEST(the_range_around_a_range_is_its_parent_whatever_its_stack) {
    start_with_ranges(16);
    push("a", 1);
    u64 outer = writer_self.next_handle - 1;
    push("b", 2);
    CHECK_EQUAL(newest()->range.parent, outer);
    u64 inner = writer_self.next_handle - 1;
    CHECK_EQUAL(range_pop(1, NULL), 0);  // not the innermost
    push("c", 1);
    CHECK_EQUAL(newest()->range.parent, inner);
    CHECK_EQUAL(range_pop(1, NULL), 1);
    CHECK_EQUAL(range_pop(2, NULL), 0);
    CHECK_EQUAL(range_pop(2, NULL), -1);
}

TEST(a_mark_and_a_started_range_do_not_nest) {
    start_with_ranges(16);
    struct range range = named("mark");
    range_mark(&range);
    CHECK_EQUAL(newest()->states, STATE_FIRST | STATE_STOPPED);
    u64 number = range_start(&range);
    CHECK(number != 0);
    CHECK(newest()->flags & FLAG_SEND);
    push("after", 0);
    CHECK_EQUAL(newest()->range.parent, 0);
    range_end(number, NULL);
    range_end(number, NULL);
    range_end(0, NULL);
    range_end(number ^ 1ull << 60, NULL);
    range_end(number + 1000, NULL);
    CHECK_EQUAL(range_pop(0, NULL), 0);
}

TEST(a_range_that_ends_after_its_chunk_has_left_the_window_gets_a_state) {
    start_with_ranges(64);
    push("long", 0);
    u64 handle = writer_self.next_handle - 1;
    for (unsigned i = 0; i < (callback_state.window + 2) * CHUNK_SLOTS; i++) {
        push("short", 1);
        range_pop(1, NULL);
    }
    range_pop(0, NULL);
    CHECK_EQUAL(newest()->kind, KIND_state);
    CHECK_EQUAL(newest()->state.parent, handle);
    CHECK_EQUAL(newest()->state.state, STATE_IS_STOP);
}

TEST(pushes_that_are_never_popped_do_not_fill_the_nest) {
    start_with_ranges(64);
    for (int i = 0; i < 1000; i++) push("leaked", 0);
    push("kept", 0);
    union slot *slot = newest();
    CHECK(range_pop(0, NULL) >= 0);
    CHECK(!head_is_open(slot->head));
    int popped = 0;
    while (range_pop(0, NULL) >= 0) popped++;
    CHECK(popped >= 40 && popped <= 64);
}

TEST(a_text_without_a_place_stands_behind_its_range) {
    start_with_ranges(16);
    struct range range = {.source = RANGE_API, .unplaced = "no room", .unplaced_bytes = 7};
    range_push(&range, 0);
    const union slot *slot = newest() - 1;
    CHECK_EQUAL(slot->kind, KIND_range);
    CHECK(slot->flags & FLAG_EXT);
    CHECK_EQUAL(newest()->kind, KIND_range_text);
    CHECK_EQUAL(strcmp(newest()->range_text.text, "no room"), 0);
    CHECK_EQUAL(counter_value(COUNTER_range_texts_dropped, 0), 1);
}

TEST(a_payload_is_kept_in_the_slot_and_in_pieces_behind_it) {
    start_with_ranges(16);
    u8 bytes[60];
    for (u8 i = 0; i < sizeof bytes; i++) bytes[i] = i;
    struct range range = named("split");
    range_push(&range, 0);
    union slot *slot = newest();
    struct range payload = {.payload_type = PAYLOAD_SCHEMA,
                            .schema = 3,
                            .payload = bytes,
                            .payload_bytes = sizeof bytes};
    range_pop(0, &payload);
    CHECK(!head_is_open(slot->head));
    CHECK_EQUAL(slot->range.payload_type, PAYLOAD_SCHEMA);
    CHECK_EQUAL(slot->range.payload_bytes, 60);
    CHECK_EQUAL(slot->range.schema, 3);
    CHECK_EQUAL(memcmp(&slot->range.payload, bytes, 16), 0);
    CHECK_EQUAL(slot[1].range_payload.offset, 16);
    CHECK_EQUAL(memcmp(slot[1].range_payload.data, bytes + 16, 32), 0);
    CHECK_EQUAL(slot[2].range_payload.offset, 48);
    CHECK_EQUAL(memcmp(slot[2].range_payload.data, bytes + 48, 12), 0);
}

TEST(what_is_open_before_recording_is_written_when_it_begins) {
    range_expect();
    push("forgotten", 0);
    CHECK_EQUAL(range_pop(0, NULL), 0);
    push("outer", 0);
    push("inner", 5);
    push("also inner", 0);
    CHECK_EQUAL(range_pop(5, NULL), 1);  // from the middle
    start_recorder(16);
    u64 before = clock_ticks();
    range_begin(true);
    CHECK(writer_of_thread() != NULL);
    const union slot *slots = writer_self.end - CHUNK_SLOTS + 1;
    CHECK_EQUAL(slots[0].range.text, range_text("outer", 5));
    CHECK_EQUAL(slots[1].range.text, range_text("also inner", 10));
    CHECK_EQUAL(slots[2].head, 0);
    CHECK(slots[1].range.t0 < before);
    CHECK_EQUAL(slots[1].range.parent, slots[0].check | callback_state.nonce << HANDLE_BITS);
    CHECK_EQUAL(range_pop(0, NULL), 1);
    CHECK_EQUAL(range_pop(0, NULL), 0);
    CHECK(!head_is_open(slots[0].head) && !head_is_open(slots[1].head));
}

TEST(calls_that_are_events_leave_no_range_and_stay_balanced) {
    start_with_ranges(16);
    range_know_interface(NCCL_FIRST_WITH_CALLS);
    push("outer", 1);
    u64 outer = writer_self.next_handle - 1;
    struct range call = named("ncclAllReduce");
    call.is_nccl_call = true;
    range_push(&call, 1);
    CHECK_EQUAL(writer_self.next_handle - 1, outer);
    push("inner", 1);
    CHECK_EQUAL(newest()->range.parent, outer);
    for (int i = 0; i < 3; i++) CHECK_EQUAL(range_pop(1, NULL), 2 - i);
}

static void *use_ranges(void *unused) {
    push("of a thread", 0);
    push("left open", 3);
    range_pop(0, NULL);
    return unused;
}

TEST(threads_that_exit_with_open_ranges_leave_nothing_behind) {
    start_with_ranges(64);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, use_ranges, NULL);
        pthread_join(thread, NULL);
    }
    CHECK_EQUAL(counter_value(COUNTER_dropped_ranges, 0), 0);
}

TEST(ranges_are_dropped_and_counted_when_no_memory_is_left) {
    start_with_ranges(8);
    for (int i = 0; i < 20000; i++) {
        push("flood", 0);
        range_pop(0, NULL);
    }
    CHECK(counter_value(COUNTER_dropped_ranges, 0) > 10000);
    u64 handle;
    CHECK(writer_take(&writer_self, 1, NCCL_NUMBER(NCCL_COLL), &handle) != NULL);
    CHECK_EQUAL(counter_value(COUNTER_updates_dropped, 0), 0);
}

TEST(a_fork_child_makes_no_ranges) {
    start_with_ranges(16);
    push("parent", 0);
    range_in_fork_child();
    CHECK_EQUAL(push("child", 0), -1);
    CHECK_EQUAL(range_pop(0, NULL), -1);
    range_expect();
    CHECK_EQUAL(push("child", 0), -1);
}

// ---- steps ----
static union slot ended(const char *text, u8 source, u64 t0, u64 t1, unsigned states) {
    union slot slot = {0};
    slot.range.text = range_text(text, strlen(text));
    slot.range.t0 = t0;
    slot.range.t1 = t1;
    slot.head = head_with_states(head_word(KIND_range, source, 0, 1), states);
    return slot;
}

TEST(steps_end_with_the_first_optimizer_and_rather_with_marks) {
    union slot out, slot;
    training_steps_use_rate(1000000000);
    CHECK_EQUAL(training_steps_live(&out), 0);
    for (u64 step = 0; step < 5; step++) {
        slot = ended("Optimizer.step#A", RANGE_RECORD_FUNCTION, step * 100, step * 100 + 10,
                     STATE_STOPPED);
        training_steps_see(1, &slot);
        slot = ended("Optimizer.step#B", RANGE_RECORD_FUNCTION, step * 100 + 20, step * 100 + 30,
                     STATE_STOPPED);
        training_steps_see(2, &slot);
    }
    CHECK_EQUAL(training_steps_live(&out), 1);
    CHECK_EQUAL(out.live_step.steps, 5);
    CHECK_EQUAL(out.live_step.last_ns, 100);
    slot = ended("ncclscope.step", RANGE_API, 1000, 1000, STATE_FIRST | STATE_STOPPED);
    training_steps_see(3, &slot);
    slot = ended("Optimizer.step#A", RANGE_RECORD_FUNCTION, 1100, 1110, STATE_STOPPED);
    training_steps_see(4, &slot);
    training_steps_live(&out);
    CHECK_EQUAL(out.live_step.steps, 1);
    CHECK_EQUAL(out.live_step.source, RANGE_API);
}

TEST(tokens_of_all_steps_are_added_up) {
    union slot out, slot;
    const u64 said[] = {512, 1ull << 60, 256};  // one of them cannot be
    for (u64 step = 0; step < 3; step++) {
        slot = ended("ncclscope.tokens", RANGE_API, step, step, STATE_FIRST | STATE_STOPPED);
        slot.range.payload = said[step];
        training_steps_see(1, &slot);
        slot = ended("ncclscope.step", RANGE_API, step, step, STATE_FIRST | STATE_STOPPED);
        training_steps_see(2, &slot);
    }
    training_steps_live(&out);
    CHECK_EQUAL(out.live_step.steps, 3);
    CHECK_EQUAL(out.live_step.tokens, 768);
}

TEST(the_phase_is_that_of_the_newest_open_range) {
    union slot out, slot;
    slot = ended("enumerate(DataLoader)#x", RANGE_RECORD_FUNCTION, 100, 130, STATE_STOPPED);
    training_steps_use_rate(1000000000);
    training_steps_see(1, &slot);
    training_steps_live(&out);
    CHECK_EQUAL(out.live_step.phase, PHASE_UNKNOWN);
    CHECK_EQUAL(out.live_step.data_ns, 30);
    slot = ended("autograd.backward", RANGE_ENGINE, 200, 0, 0);
    training_steps_see(2, &slot);
    training_steps_live(&out);
    CHECK_EQUAL(out.live_step.phase, PHASE_BACKWARD);
    CHECK_EQUAL(out.live_step.t_phase, 200);
    slot = ended("autograd.backward", RANGE_ENGINE, 200, 300, STATE_STOPPED);
    training_steps_see(2, &slot);
    training_steps_live(&out);
    CHECK_EQUAL(out.live_step.phase, PHASE_UNKNOWN);
}
