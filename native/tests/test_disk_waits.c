// What counts as a slow disk: a call that waits, not one that is kept from its CPU.
#include "disk_waits.h"

#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "test.h"

// Far above the 50 ms of a slow call: the kernel counts the time that a thread ran by ticks.
#define SLOW_US 120000u

static void work(void) {
    for (u64 end = clock_monotonic_ns() + SLOW_US * 1000; clock_monotonic_ns() < end;) {
    }
}

// Each call is made twice: one alone is never slow, unless it takes a second.
#define TWICE for (int i_ = 0; i_ < 2; i_++)

TEST(calls_that_wait_long_are_slow) {
    TWICE {
        CHECK(!disk_is_slow());
        struct disk_wait wait = disk_wait_begin();
        usleep(SLOW_US);
        disk_wait_end(wait);
    }
    CHECK(disk_is_slow());
}

TEST(calls_that_wait_shortly_are_not) {
    TWICE disk_wait_end(disk_wait_begin());
    CHECK(!disk_is_slow());
}

TEST(calls_without_a_cpu_are_not) {
    TWICE {
        struct disk_wait wait = disk_wait_begin();
        work();  // takes long and never sleeps, as a thread whose CPU others use
        disk_wait_end(wait);
    }
    CHECK(!disk_is_slow());
}

TEST(calls_that_sleep_shortly_and_then_have_no_cpu_are_not) {
    if (access("/proc/thread-self/schedstat", R_OK) != 0) return;  // nobody counts it here
    work();
    TWICE {
        struct disk_wait wait = disk_wait_begin();
        usleep(SLOW_US);
        wait.awake_ns = 1;  // as if the time of work() had passed within the call
        disk_wait_end(wait);
    }
    CHECK(!disk_is_slow());
}

TEST(calls_that_wait_for_a_cpu_and_for_the_disk_are_slow) {
    TWICE {
        struct disk_wait wait = disk_wait_begin();
        work();
        usleep(SLOW_US);
        disk_wait_end(wait);
    }
    CHECK(disk_is_slow());
}

TEST(calls_of_which_the_system_says_nothing_are_slow) {
    TWICE {
        struct disk_wait wait = disk_wait_begin();
        wait.blocked = -1;
        wait.awake_ns = 0;
        work();
        disk_wait_end(wait);
    }
    CHECK(disk_is_slow());
}

#define MS 1000000ull
#define START (1000 * MS)  // of a clock that these tests make up

TEST(one_call_is_not_slow_as_its_cpu_may_have_been_taken_by_the_host) {
    disk_waited(START, START + 100 * MS, 100 * MS);
    CHECK(!disk_is_slow());
    disk_waited(START + 2101 * MS, START + 2201 * MS, 100 * MS);
    CHECK(!disk_is_slow());  // too long after the first one
    disk_waited(START + 2300 * MS, START + 2349 * MS, 49 * MS);
    CHECK(!disk_is_slow());
    disk_waited(START + 3000 * MS, START + 3051 * MS, 51 * MS);
    CHECK(disk_is_slow());  // the second within two seconds
}

TEST(a_call_and_the_one_around_it_are_one) {
    disk_waited(START + 1 * MS, START + 101 * MS, 100 * MS);
    disk_waited(START, START + 102 * MS, 102 * MS);
    CHECK(!disk_is_slow());
    disk_waited(START + 102 * MS, START + 202 * MS, 100 * MS);
    CHECK(disk_is_slow());
}

TEST(a_call_that_waits_a_second_is_slow_by_itself) {
    disk_waited(START, START + 1100 * MS, 999 * MS);
    CHECK(!disk_is_slow());
    disk_waited(START + 9000 * MS, START + 10000 * MS, 1000 * MS);
    CHECK(disk_is_slow());
}

TEST(the_error_of_the_call_stays) {
    struct disk_wait wait = disk_wait_begin();
    work();
    errno = ENOSPC;
    disk_wait_end(wait);
    CHECK_EQUAL(errno, ENOSPC);
}
