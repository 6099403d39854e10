// Chooses the counter, and pairs it with CLOCK_MONOTONIC and CLOCK_REALTIME.
#include "clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static u64 read_clock(clockid_t id) {
    struct timespec now = {0};
    clock_gettime(id, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}

u64 clock_monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }
u64 clock_realtime_ns(void) { return read_clock(CLOCK_REALTIME); }

#if defined(__x86_64__)
// The kernel keeps its own time by the TSC only after checking that it runs at one rate on all
// cores and in all sleep states. kvm-clock and the Hyper-V page correct a TSC that a hypervisor may
// change under us, so those are not enough.
static bool kernel_trusts_tsc(void) {
    char name[32] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, name, sizeof name - 1);
    close(fd);
    return length >= 3 && strncmp(name, "tsc", 3) == 0;
}
#endif

void clock_choose(void) {
#if defined(__aarch64__)
    callback_state.clock = CLOCK_IS_CNTVCT;  // architecturally constant
#else
    callback_state.clock = kernel_trusts_tsc() ? CLOCK_IS_TSC : CLOCK_IS_MONOTONIC;
#endif
    callback_state_settle();
}

// The tightest of several sandwiches: a preempted one is wide and loses.
struct clock_pair clock_sample(void) {
    struct clock_pair best = {0};
    for (int attempt = 0; attempt < 16; attempt++) {
        struct clock_pair pair;
        pair.ticks_before = clock_ticks();
        pair.monotonic_ns = read_clock(CLOCK_MONOTONIC);
        pair.realtime_ns = read_clock(CLOCK_REALTIME);
        pair.ticks_after = clock_ticks();
        if (attempt == 0 ||
            pair.ticks_after - pair.ticks_before < best.ticks_after - best.ticks_before)
            best = pair;
    }
    return best;
}

u64 clock_hz_between(const struct clock_pair *earlier, const struct clock_pair *later) {
    if (callback_state.clock == CLOCK_IS_MONOTONIC) return 1000000000u;
#if defined(__aarch64__)
    if (callback_state.clock == CLOCK_IS_CNTVCT) {
        u64 hz;
        __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
        return hz;
    }
#endif
    u64 ns = later->monotonic_ns - earlier->monotonic_ns;
    u64 ticks = later->ticks_before - earlier->ticks_before;
    return ns == 0 ? 0 : (u64)((double)ticks * 1e9 / (double)ns);
}
