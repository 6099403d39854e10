// What counts as a slow disk: a call that waits, not one that is kept from its CPU.
#include "disk_waits.h"

#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "test.h"

#define SLOW_US 60000u

static void work(void) {
    for (u64 end = clock_monotonic_ns() + SLOW_US * 1000; clock_monotonic_ns() < end;) {
    }
}

TEST(a_call_that_waits_long_is_slow) {
    struct disk_wait wait = disk_wait_begin();
    usleep(SLOW_US);
    disk_wait_end(wait);
    CHECK(disk_is_slow());
}

TEST(a_call_that_waits_shortly_is_not) {
    struct disk_wait wait = disk_wait_begin();
    disk_wait_end(wait);
    CHECK(!disk_is_slow());
}

TEST(a_call_without_a_cpu_is_not) {
    struct disk_wait wait = disk_wait_begin();
    work();  // takes long and never sleeps, as a thread whose CPU others use
    disk_wait_end(wait);
    CHECK(!disk_is_slow());
}

TEST(a_call_that_sleeps_shortly_and_then_has_no_cpu_is_not) {
    if (access("/proc/thread-self/schedstat", R_OK) != 0) return;  // nobody counts it here
    work();
    struct disk_wait wait = disk_wait_begin();
    usleep(SLOW_US);
    wait.awake_ns = 1;  // as if the time of work() had passed within the call
    disk_wait_end(wait);
    CHECK(!disk_is_slow());
}

TEST(a_call_that_waits_for_a_cpu_and_for_the_disk_is_slow) {
    struct disk_wait wait = disk_wait_begin();
    work();
    usleep(SLOW_US);
    disk_wait_end(wait);
    CHECK(disk_is_slow());
}

TEST(a_call_of_which_the_system_says_nothing_is_slow) {
    struct disk_wait wait = disk_wait_begin();
    wait.blocked = -1;
    wait.awake_ns = 0;
    work();
    disk_wait_end(wait);
    CHECK(disk_is_slow());
}

TEST(the_error_of_the_call_stays) {
    struct disk_wait wait = disk_wait_begin();
    work();
    errno = ENOSPC;
    disk_wait_end(wait);
    CHECK_EQUAL(errno, ENOSPC);
}
