// Which calls are timed.
#include "sampling.h"

#include "test.h"

TEST(the_first_calls_of_a_key_are_all_timed) {
    for (u64 calls = 0; calls < SAMPLE_FIRST; calls++) {
        CHECK_EQUAL(sampling_next(7, 1024, calls, false), calls + 1);
        CHECK_EQUAL(sampling_next(7, 1024, calls, true), calls + 1);
    }
}

TEST(small_is_a_matter_of_bytes) {
    CHECK(sampling_is_small(1, "ncclInt8"));
    CHECK(sampling_is_small(1 << 18, "ncclFloat32"));
    CHECK(!sampling_is_small((1 << 18) + 1, "ncclFloat32"));
    CHECK(!sampling_is_small(1 << 18, "ncclFloat64"));
    CHECK(sampling_is_small(1 << 19, "ncclBfloat16"));
    CHECK(sampling_is_small(1 << 20, "ncclFloat8e4m3"));
    CHECK(!sampling_is_small((1 << 20) + 1, "ncclFloat8e4m3"));
    CHECK(!sampling_is_small(~0ull, "Unknown"));
    CHECK(sampling_is_small(1 << 20, NULL));
}

static void check_blocks(u64 block_calls, bool sparse) {
    u64 calls = SAMPLE_FIRST, distances = 0;
    for (u64 block = 0; block < 1000; block++) {
        u64 next = sampling_next(7, 1024, calls, sparse);
        CHECK(next > calls);
        CHECK(next > SAMPLE_FIRST + block * block_calls);
        CHECK(next <= SAMPLE_FIRST + (block + 1) * block_calls);
        distances |= 1ull << (next - calls) % 64;
        calls = next;
    }
    CHECK(__builtin_popcountll(distances) > 48);  // no period of a job is always met in one place
}

TEST(then_one_call_of_each_block_is_timed) { check_blocks(SAMPLE_BLOCK, false); }

TEST(sparse_sampling_times_one_call_of_four_blocks) {
    check_blocks(SAMPLE_BLOCK * SPARSE_BLOCKS, true);
}

TEST(what_is_timed_sparsely_is_timed_in_other_modes_too) {
    u64 calls = 0;
    for (int i = 0; i < 1000; i++) {
        calls = sampling_next(7, 1024, calls, true);
        CHECK_EQUAL(sampling_next(7, 1024, calls - 1, false), calls);
    }
}

TEST(the_choice_does_not_depend_on_when_it_is_asked_for) {
    u64 next = sampling_next(7, 1024, 0, false);
    for (u64 calls = 0; calls < 2000; calls++) {
        if (calls == next) next = sampling_next(7, 1024, calls, false);
        CHECK_EQUAL(sampling_next(7, 1024, calls, false), next);
    }
}

TEST(ranks_of_a_communicator_choose_alike_and_others_do_not) {
    unsigned same = 0;
    for (u64 calls = SAMPLE_FIRST; calls < 10000; calls = sampling_next(7, 1024, calls, false))
        same += sampling_next(7, 1024, calls, false) == sampling_next(8, 1024, calls, false);
    CHECK(same < 20);
}
