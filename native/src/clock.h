// The recorder's clock: the cheapest counter that runs at one rate on all cores, and its pairing
// with the host's clocks.
#ifndef NCCLSCOPE_CLOCK_H
#define NCCLSCOPE_CLOCK_H

#include <stdbool.h>
#include <time.h>

#include "ncclscope/format.h"

// Set once, before any event can be recorded.
extern enum clock_kind clock_kind;

void clock_choose(void);
u64 clock_monotonic_ns(void);

// One reading of the counter and of the host's clocks, taken together.
struct clock_pair {
    u64 ticks_before, ticks_after, monotonic_ns, realtime_ns;
};
struct clock_pair clock_sample(void);
u64 clock_hz_between(const struct clock_pair *earlier, const struct clock_pair *later);

// Unordered: order inside a thread comes from slot order, never from times.
static inline u64 clock_ticks(void) {
#if defined(__aarch64__)
    u64 ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#elif defined(__x86_64__)
    if (__builtin_expect(clock_kind != CLOCK_IS_TSC, 0)) return clock_monotonic_ns();
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
#else
#error "ncclscope supports x86_64 and aarch64"
#endif
}

#endif
