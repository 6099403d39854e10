// The recorder's clock: the cheapest counter that runs at one rate on all cores, and its pairing
// with the host's clocks.
#ifndef NCCLSCOPE_CLOCK_H
#define NCCLSCOPE_CLOCK_H

#include <stdbool.h>
#include <time.h>

#include "callback_state.h"

void clock_choose(void);
COLD u64 clock_monotonic_ns(void);
u64 clock_realtime_ns(void);

// One reading of the counter and of the host's clocks, taken together.
struct clock_pair {
    u64 ticks_before, ticks_after, monotonic_ns, realtime_ns;
};
struct clock_pair clock_sample(void);
u64 clock_hz_between(const struct clock_pair *earlier, const struct clock_pair *later);

// The counter, where that is the clock. Read without a barrier: the order inside a thread is the
// order of its slots, never that of times.
static inline u64 clock_counter(void) {
#if defined(__aarch64__)
    u64 ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#elif defined(__x86_64__)
    u32 low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (u64)high << 32 | low;
#else
#error "ncclscope supports x86_64 and aarch64"
#endif
}

static inline bool clock_is_counter(void) { return callback_state.clock != CLOCK_IS_MONOTONIC; }

static inline u64 clock_ticks(void) {
    return __builtin_expect(clock_is_counter(), 1) ? clock_counter() : clock_monotonic_ns();
}

#endif
