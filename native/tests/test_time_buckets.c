// Histogram buckets of times.
#include "ncclscope/time_buckets.h"
#include "test.h"

TEST(an_octave_has_equal_buckets) {
    const u64 first = 1u << TIME_FIRST_OCTAVE, width = first / TIME_BUCKETS_PER_OCTAVE;
    CHECK_EQUAL(time_bucket(0), 0);
    CHECK_EQUAL(time_bucket(first - 1), 0);
    CHECK_EQUAL(time_bucket(first), 1);
    CHECK_EQUAL(time_bucket(first + width - 1), 1);
    CHECK_EQUAL(time_bucket(first + width), 2);
    CHECK_EQUAL(time_bucket(2 * first - 1), TIME_BUCKETS_PER_OCTAVE);
    CHECK_EQUAL(time_bucket(2 * first), TIME_BUCKETS_PER_OCTAVE + 1);
    CHECK_EQUAL(time_bucket(2 * first + 2 * width - 1), TIME_BUCKETS_PER_OCTAVE + 1);
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
