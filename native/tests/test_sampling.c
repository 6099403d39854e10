// Which calls are timed.
#include "sampling.h"

#include "test.h"

TEST(the_first_calls_of_a_key_are_all_timed) {
    for (u64 calls = 0; calls < SAMPLE_FIRST; calls++)
        CHECK_EQUAL(sampling_next(7, 1024, calls), calls + 1);
}

TEST(then_one_call_of_each_block_is_timed) {
    u64 calls = SAMPLE_FIRST, distances = 0;
    for (u64 block = 0; block < 1000; block++) {
        u64 next = sampling_next(7, 1024, calls);
        CHECK(next > calls);
        CHECK(next > SAMPLE_FIRST + block * SAMPLE_BLOCK);
        CHECK(next <= SAMPLE_FIRST + (block + 1) * SAMPLE_BLOCK);
        distances |= 1ull << (next - calls) % 64;
        calls = next;
    }
    CHECK(__builtin_popcountll(distances) > 48);  // no period of a job is always met in one place
}

TEST(ranks_of_a_communicator_choose_alike_and_others_do_not) {
    unsigned same = 0;
    for (u64 calls = SAMPLE_FIRST; calls < 10000; calls = sampling_next(7, 1024, calls))
        same += sampling_next(7, 1024, calls) == sampling_next(8, 1024, calls);
    CHECK(same < 20);
}
