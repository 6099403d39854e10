// KernelCh for a second of every minute.
#include "timing_bursts.h"

#include "config.h"
#include "event_filter.h"
#include "test.h"
#include "timing_policy.h"

#define SECOND 1000000000ull

static int mask;

TEST(kernels_are_on_for_the_first_second_of_a_minute) {
    setenv("NCCLSCOPE_GPU_TIMING", "sampled", 1);
    config_read();
    timing_policy_choose(4);
    event_filter_remember_mask(&mask, 4, 0);
    timing_bursts_check(59 * SECOND, 1000);
    CHECK(!(mask & NCCL_KERNEL_CH));
    timing_bursts_check(60 * SECOND, 2000);
    CHECK(mask & NCCL_KERNEL_CH);
    CHECK(mask & NCCL_COLL);
    timing_bursts_check(61 * SECOND, 3000);
    CHECK(!(mask & NCCL_KERNEL_CH));
    CHECK(!timing_bursts_cover(1999));
    CHECK(timing_bursts_cover(2000) && timing_bursts_cover(2999));
    CHECK(!timing_bursts_cover(3000));
    for (u64 minute = 2; minute < 5; minute++) {
        timing_bursts_check(minute * 60 * SECOND, 10000 * minute);
        timing_bursts_check((minute * 60 + 1) * SECOND, 10000 * minute + 500);
    }
    CHECK(timing_bursts_cover(40100) && timing_bursts_cover(20100) && !timing_bursts_cover(40500));
}

TEST(without_bursts_the_mask_stays) {
    setenv("NCCLSCOPE_GPU_TIMING", "sampled", 1);
    config_read();
    timing_policy_choose(5);
    event_filter_remember_mask(&mask, 5, 0);
    timing_bursts_check(60 * SECOND, 2000);
    CHECK_EQUAL(mask, 0);
}
