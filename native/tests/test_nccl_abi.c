// Facts of NCCL's interface versions, by heart.
#include "nccl_abi.h"
#include "test.h"

TEST(events_of_each_interface) {
    static const u32 events[] = {0, 0x3F, 0x3F, 0xFF, 0xFF, 0xFFF, 0x7FFF, 0xFFFF};
    _Static_assert(sizeof events / sizeof *events == NCCL_NEWEST_INTERFACE + 1, "every version");
    for (int version = 1; version <= NCCL_NEWEST_INTERFACE; version++)
        CHECK_EQUAL(nccl_events_of(version), events[version]);
}

TEST(descriptors_end_where_their_versions_do) {
    static const size_t bytes[] = {0, 120, 128, 120, 104, 112, 112, 136};
    _Static_assert(sizeof bytes / sizeof *bytes == NCCL_NEWEST_INTERFACE + 1, "every version");
    for (int version = 1; version <= NCCL_NEWEST_INTERFACE; version++)
        CHECK_EQUAL(nccl_descriptor_bytes(version), bytes[version]);
}

TEST(parents_come_with_their_children) {
    CHECK_EQUAL(nccl_emitted_for(2, NCCL_GROUP), 0x1E);
    CHECK_EQUAL(nccl_emitted_for(7, NCCL_GROUP), 0xDF);
    CHECK_EQUAL(nccl_emitted_for(1, NCCL_COLL), 0x1A);
    CHECK_EQUAL(nccl_emitted_for(4, NCCL_COLL), 0xDA);
    CHECK_EQUAL(nccl_emitted_for(2, NCCL_P2P), 0x1A);
    CHECK_EQUAL(nccl_emitted_for(4, NCCL_P2P), 0x5C);
    CHECK_EQUAL(nccl_emitted_for(5, NCCL_P2P), 0xDC);
    CHECK_EQUAL(nccl_emitted_for(2, NCCL_PROXY_OP), 0x18);
    CHECK_EQUAL(nccl_emitted_for(3, NCCL_PROXY_OP), 0x98);
    CHECK_EQUAL(nccl_emitted_for(3, NCCL_PROXY_STEP), 0x90);
    CHECK_EQUAL(nccl_emitted_for(5, NCCL_GROUP_API), 0xFDF);
    CHECK_EQUAL(nccl_emitted_for(7, NCCL_GROUP_API), 0x7FDF);
    CHECK_EQUAL(nccl_emitted_for(5, NCCL_COLL_API), 0x2DA);
    CHECK_EQUAL(nccl_emitted_for(6, NCCL_COLL_API), 0x72DA);
    CHECK_EQUAL(nccl_emitted_for(7, NCCL_P2P_API), 0x4DC);
    CHECK_EQUAL(nccl_emitted_for(6, NCCL_CE_COLL), 0x7000);
    CHECK_EQUAL(nccl_emitted_for(7, NCCL_KERNEL_PHASE), 0x8000);
}
