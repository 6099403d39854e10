// The tick clock: its rate, and pairs of ticks and ns.
#include "clock.h"
#include "test.h"

static struct clock_pair at(u64 ticks, u64 ns) {
    return (struct clock_pair){.ticks_before = ticks, .ticks_after = ticks + 4, .monotonic_ns = ns};
}

TEST(the_rate_is_that_between_two_pairs) {
    callback_state.clock = CLOCK_IS_TSC;
    struct clock_pair first = at(1000, 5000), second = at(1000 + 1500000000u, 5000 + 500000000u);
    CHECK_EQUAL(clock_hz_between(&first, &second), 3000000000u);
    CHECK_EQUAL(clock_hz_between(&first, &first), 0);
}

TEST(the_rate_is_exact_after_a_year) {
    callback_state.clock = CLOCK_IS_TSC;
    u64 year_ns = 365ull * 86400 * 1000000000u;
    struct clock_pair first = at(1ull << 40, 1ull << 50);
    struct clock_pair second = at((1ull << 40) + year_ns / 2 * 5, (1ull << 50) + year_ns);
    CHECK_EQUAL(clock_hz_between(&first, &second), 2500000000u);
}

TEST(a_clock_of_ns_has_a_billion_ticks_a_second) {
    callback_state.clock = CLOCK_IS_MONOTONIC;
    struct clock_pair first = at(7, 7), second = at(9, 9);
    CHECK_EQUAL(clock_hz_between(&first, &second), 1000000000u);
}

TEST(the_clock_of_ns_is_the_hosts_own) {
    callback_state.clock = CLOCK_IS_MONOTONIC;
    u64 before = clock_monotonic_ns(), ticks = clock_ticks();
    CHECK(before <= ticks && ticks <= clock_monotonic_ns());
}

TEST(samples_enclose_the_host_clocks) {
    clock_choose();
    struct clock_pair pair = clock_sample();
    CHECK(pair.ticks_before <= pair.ticks_after);
    CHECK(pair.monotonic_ns <= clock_monotonic_ns());
    CHECK(pair.realtime_ns > 1500000000ull * 1000000000u);  // after 2017
}

TEST(the_fast_path_needs_a_counter_static_storage_and_nobody_chained) {
    callback_state.clock = CLOCK_IS_TSC;
    callback_state.static_tls = true;
    callback_state_settle();
    CHECK(callback_state.fast_path);
    callback_state.chained = true;
    callback_state_settle();
    CHECK(!callback_state.fast_path);
    callback_state.chained = false;
    callback_state.clock = CLOCK_IS_MONOTONIC;
    callback_state_settle();
    CHECK(!callback_state.fast_path);
}
