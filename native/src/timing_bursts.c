// Switches KernelCh by the wall clock.
#include "timing_bursts.h"

#include "config.h"
#include "event_filter.h"
#include "timing_policy.h"

#define BURSTS_KEPT 4u  // slots are drained seconds later

static struct {
    u64 first, last;  // ticks; last 0: still on
} bursts[BURSTS_KEPT];
static u64 begun;
static bool on;

void timing_bursts_check(u64 realtime_ns, u64 ticks) {
    if (!timing_policy.bursts) return;
    bool wanted = realtime_ns / 1000000000u % BURST_PERIOD_S < BURST_S;
    if (wanted == on) return;
    u32 events = __atomic_load_n(&config.events, __ATOMIC_RELAXED);
    on = wanted;
    if (on) {
        begun++;
        bursts[begun % BURSTS_KEPT].last = 0;
        bursts[begun % BURSTS_KEPT].first = ticks;
    } else bursts[begun % BURSTS_KEPT].last = ticks;
    event_filter_set_events(on ? events | NCCL_KERNEL_CH : events & ~(u32)NCCL_KERNEL_CH);
}

bool timing_bursts_cover(u64 ticks) {
    for (u32 i = 0; i < BURSTS_KEPT; i++)
        if (bursts[i].first && ticks >= bursts[i].first &&
            (!bursts[i].last || ticks < bursts[i].last))
            return true;
    return false;
}
