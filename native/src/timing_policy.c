// Chooses where GPU times come from.
//
// KernelCh is the only event that slows a job down: with it NCCL hands every operation to a thread
// that polls until its kernel has ended, and adds a host node to captured graphs. Profile mode is
// meant to be always on, so `auto` samples there. Trace and full mode are about single operations,
// so `auto` asks for the kernels of all of them.
#include "timing_policy.h"

#include <stdio.h>

#include "callback_state.h"
#include "config.h"
#include "cuda_driver.h"

struct timing_policy timing_policy;

#define BECAUSE(...) snprintf(timing_policy.reason, sizeof timing_policy.reason, __VA_ARGS__)

static enum gpu_timing wanted(void) {
    if (config.gpu_timing_asked != GPU_TIMING_AUTO) return config.gpu_timing_asked;
    if (config.events_listed) {
        BECAUSE("NCCLSCOPE_EVENTS lists the events");
        return config.events & NCCL_KERNEL_CH ? GPU_TIMING_KERNEL : GPU_TIMING_OFF;
    }
    if (config.mode == MODE_PROFILE) {
        BECAUSE("profile mode samples, so that the job is not slowed down");
        return GPU_TIMING_SAMPLED;
    }
    BECAUSE("%s mode is for single operations", config_mode_name());
    return GPU_TIMING_KERNEL;
}

// Instead of samples. Whoever lists KernelCh beside them keeps it.
static enum gpu_timing without_samples(void) {
    bool lists = config.events_listed && config.events & NCCL_KERNEL_CH;
    return lists ? GPU_TIMING_KERNEL : GPU_TIMING_OFF;
}

// The nearest that this interface and driver allow.
static enum gpu_timing possible(enum gpu_timing timing, int version) {
    if (timing == GPU_TIMING_OFF) return timing;
    if (!(nccl_events_of(version) & NCCL_KERNEL_CH)) {
        BECAUSE("NCCL's profiler interface v%d reports no kernels", version);
        return GPU_TIMING_OFF;
    }
    if (timing == GPU_TIMING_KERNEL) {
        if (version < NCCL_FIRST_WITH_STAMPS)
            BECAUSE("NCCL's profiler interface v%d gives kernels no GPU times", version);
        return timing;
    }
    if (version < NCCL_FIRST_WITH_STAMPS) {
        BECAUSE("NCCL's profiler interface v%d has no GPU times to sample", version);
        return without_samples();
    }
    if (version < NCCL_FIRST_WITH_CALLS) {
        // KernelCh for a while is no way out: switching it can hang the job (docs/recorder.md).
        BECAUSE("NCCL's profiler interface v%d reports no launches to sample", version);
        return without_samples();
    }
    const char *missing = cuda_missing_for_events();
    if (!missing) return timing;
    BECAUSE("no CUDA events: %s is missing", missing);
    return without_samples();
}

u32 timing_policy_events(u32 events) {
    const u32 kernels = NCCL_KERNEL_CH | NCCL_KERNEL_PHASE;
    if (timing_policy.in_force == GPU_TIMING_KERNEL)
        return config.events_listed ? events : events | NCCL_KERNEL_CH;
    // Whoever lists KernelCh and asks for samples gets both, to compare them.
    bool compares = config.events_listed && config.gpu_timing_asked == GPU_TIMING_SAMPLED;
    if (!compares) events &= ~kernels;
    // A launch carries the stream, and its Group says which operations belong to it.
    if (timing_policy.by_events)
        events |= NCCL_KERNEL_LAUNCH | NCCL_GROUP | NCCL_GROUP_API | NCCL_COLL_API | NCCL_P2P_API;
    return events;
}

// NCCL counts kernels apart for tasks with and without KernelCh, and forgets to clear handles of
// API events once they are off: profile mode's events stay as they were at the first init.
u32 timing_policy_events_of_mode(enum mode mode) {
    u32 fixed = PROFILE_EVENTS | timing_policy_events(0);
    u32 extra = config_mode_events(mode) & ~fixed;
    if (timing_policy.in_force != GPU_TIMING_KERNEL) extra &= ~(u32)NCCL_KERNEL_PHASE;
    return (config.first_events & fixed) | extra;
}

void timing_policy_choose(int version) {
    timing_policy = (struct timing_policy){0};
    timing_policy.in_force = possible(wanted(), version);
    timing_policy.by_events = timing_by_events();
    config.events = config.first_events = timing_policy_events(config.events);
}

void timing_policy_settle_groups(void) {
    const u32 below_works =
        NCCL_KERNEL_CH | NCCL_KERNEL_PHASE | NCCL_PROXY_OP | NCCL_PROXY_STEP | NCCL_NET_PLUGIN;
    u32 events = __atomic_load_n(&config.events, __ATOMIC_RELAXED);
    bool drops = timing_policy.by_events && config.mode == MODE_PROFILE && !config.ring_bytes &&
                 !config.chain[0] && !(events & below_works);
    bool written = config.mode != MODE_PROFILE && !config.ring_bytes;
    u8 bits = (drops ? GROUP_DROPS_WORKS : 0) | (written ? GROUP_IS_WRITTEN : 0);
    __atomic_store_n(&callback_state.group_bits, bits, __ATOMIC_RELAXED);
}

bool timing_policy_switch(enum gpu_timing timing) {
    if (timing == timing_policy.in_force) return true;
    bool is_sound =
        timing_policy.by_events && (timing == GPU_TIMING_SAMPLED || timing == GPU_TIMING_OFF);
    if (is_sound) __atomic_store_n(&timing_policy.in_force, timing, __ATOMIC_RELAXED);
    return is_sound;
}
