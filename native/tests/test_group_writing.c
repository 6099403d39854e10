// What goes to disk of a group, whatever the mode has become.
#include "group_writing.h"

#include <pthread.h>

#include "drain.h"
#include "test.h"
#include "writer.h"

static u64 take(struct writer *writer, u64 type, u64 parent, u16 bits) {
    u64 handle = 0;
    union slot *slot = writer_take(writer, 1, NCCL_NUMBER(type), &handle);
    CHECK(slot);
    slot->group.parent = parent;
    slot->group.t0 = clock_ticks();
    slot->group_api.bits = bits;
    slot_commit(slot, head_word(NCCL_NUMBER(type) + 1, 0, 0, handle));
    return handle;
}

static bool goes_to_disk(struct writer *writer, u64 handle, bool by_mode) {
    u64 head;
    union slot *slot = writer_find(writer, handle, &head);
    CHECK(slot);
    return group_writing_decide(writer->stream, slot, head, handle, by_mode);
}

TEST(calls_launches_and_works_follow_their_group) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    for (int written = 0; written < 2; written++) {
        u64 group = take(writer, NCCL_GROUP_API, 0, written ? GROUP_IS_WRITTEN : 0);
        u64 call = take(writer, NCCL_COLL_API, group, 0);
        u64 launch = take(writer, NCCL_KERNEL_LAUNCH, group, 0);
        u64 work = take(writer, NCCL_COLL, call, 0);
        CHECK_EQUAL(goes_to_disk(writer, group, !written), written);
        CHECK_EQUAL(goes_to_disk(writer, call, !written), written);
        CHECK_EQUAL(goes_to_disk(writer, launch, !written), written);
        CHECK_EQUAL(goes_to_disk(writer, work, !written), written);
        CHECK_EQUAL(goes_to_disk(writer, take(writer, NCCL_PROXY_CTRL, 0, 0), !written), !written);
    }
}

TEST(without_a_group_the_mode_decides) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    const u64 types[] = {NCCL_GROUP, NCCL_COLL, NCCL_KERNEL_LAUNCH, NCCL_COLL_API, NCCL_P2P};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        u64 handle = take(writer, types[i], 0, 0);
        CHECK(goes_to_disk(writer, handle, true));
        CHECK(!goes_to_disk(writer, handle, false));
    }
}

static u64 group_of_main;

static void *launch_it(void *unused) {
    (void)unused;
    struct writer *writer = writer_of_thread();
    u64 own = take(writer, NCCL_GROUP_API, 0, 0);
    u64 launch = take(writer, NCCL_KERNEL_LAUNCH, group_of_main, 0);
    u64 work = take(writer, NCCL_P2P, 0, 0);
    CHECK(!goes_to_disk(writer, own, true));
    CHECK(goes_to_disk(writer, launch, false));
    CHECK(goes_to_disk(writer, work, false));
    u64 unknown = take(writer, NCCL_KERNEL_LAUNCH, group_of_main + 100, 0);
    CHECK(goes_to_disk(writer, unknown, true));
    CHECK(!goes_to_disk(writer, unknown, false));
    return NULL;
}

TEST(a_launch_of_another_thread_follows_the_group_of_its_call) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    while (writer->stream->chunk_number < 2) take(writer, NCCL_GROUP, 0, 0);
    group_of_main = take(writer, NCCL_GROUP_API, 0, GROUP_IS_WRITTEN);
    struct drain_pass pass = {.use = TO_NOWHERE, .now = clock_ticks(), .patience = 1ull << 60};
    drain_streams(&pass);  // takes the stream into its care
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launch_it, NULL) == 0);
    pthread_join(thread, NULL);
}
