// Which calls are timed.
#include "sampling.h"

#include "test.h"

TEST(the_first_calls_of_a_key_are_all_timed) {
    for (u64 calls = 0; calls < SAMPLE_FIRST; calls++)
        CHECK_EQUAL(sampling_next(7, 1024, calls, SAMPLE_BLOCK), calls + 1);
}

TEST(blocks_of_small_messages_are_longer) {
    CHECK_EQUAL(sampling_block(1, "ncclInt8"), SAMPLE_BLOCK_SMALL);
    CHECK_EQUAL(sampling_block(1 << 18, "ncclFloat32"), SAMPLE_BLOCK_SMALL);
    CHECK_EQUAL(sampling_block((1 << 18) + 1, "ncclFloat32"), SAMPLE_BLOCK);
    CHECK_EQUAL(sampling_block(1 << 18, "ncclFloat64"), SAMPLE_BLOCK);
    CHECK_EQUAL(sampling_block(1 << 19, "ncclBfloat16"), SAMPLE_BLOCK_SMALL);
    CHECK_EQUAL(sampling_block(1 << 20, "ncclFloat8e4m3"), SAMPLE_BLOCK_SMALL);
    CHECK_EQUAL(sampling_block((1 << 20) + 1, "ncclFloat8e4m3"), SAMPLE_BLOCK);
    CHECK_EQUAL(sampling_block(~0ull, "Unknown"), SAMPLE_BLOCK);
    CHECK_EQUAL(sampling_block(1 << 20, NULL), SAMPLE_BLOCK_SMALL);
}

static void check_blocks(u64 block_calls) {
    u64 calls = SAMPLE_FIRST, distances = 0;
    for (u64 block = 0; block < 1000; block++) {
        u64 next = sampling_next(7, 1024, calls, block_calls);
        CHECK(next > calls);
        CHECK(next > SAMPLE_FIRST + block * block_calls);
        CHECK(next <= SAMPLE_FIRST + (block + 1) * block_calls);
        distances |= 1ull << (next - calls) % 64;
        calls = next;
    }
    CHECK(__builtin_popcountll(distances) > 48);  // no period of a job is always met in one place
}

TEST(then_one_call_of_each_block_is_timed) {
    check_blocks(SAMPLE_BLOCK);
    check_blocks(SAMPLE_BLOCK_SMALL);
}

TEST(ranks_of_a_communicator_choose_alike_and_others_do_not) {
    const u64 block = SAMPLE_BLOCK;
    unsigned same = 0;
    for (u64 calls = SAMPLE_FIRST; calls < 10000; calls = sampling_next(7, 1024, calls, block))
        same += sampling_next(7, 1024, calls, block) == sampling_next(8, 1024, calls, block);
    CHECK(same < 20);
}
