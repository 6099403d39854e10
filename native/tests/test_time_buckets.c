// Histogram buckets of times.
#include "ncclscope/time_buckets.h"
#include "test.h"

TEST(buckets_of_the_example_in_the_header) {
    CHECK_EQUAL(time_bucket(0), 0);
    CHECK_EQUAL(time_bucket(511), 0);
    CHECK_EQUAL(time_bucket(512), 1);
    CHECK_EQUAL(time_bucket(575), 1);
    CHECK_EQUAL(time_bucket(576), 2);
    CHECK_EQUAL(time_bucket(1023), 8);
    CHECK_EQUAL(time_bucket(1024), 9);
    CHECK_EQUAL(time_bucket(1100), 9);
    CHECK_EQUAL(time_bucket(UINT64_MAX), TIME_BUCKETS - 1);
}

TEST(buckets_grow_by_one_at_a_time) {
    unsigned before = 0;
    for (u64 ns = 1; ns < 1u << 22; ns++) {
        unsigned bucket = time_bucket(ns);
        CHECK(bucket == before || bucket == before + 1);
        before = bucket;
    }
    CHECK_EQUAL(before, (22 - TIME_FIRST_OCTAVE) * TIME_BUCKETS_PER_OCTAVE);
}
