// Where GPU times come from: what was asked for (NCCLSCOPE_GPU_TIMING), what is possible with this
// interface and driver, and what is in force.
#ifndef NCCLSCOPE_TIMING_POLICY_H
#define NCCLSCOPE_TIMING_POLICY_H

#include <stdbool.h>

#include "ncclscope/format.h"

struct timing_policy {
    enum gpu_timing in_force;
    bool by_events;    // sampling by CUDA events is possible, and was in force at the start
    char reason[160];  // why that one, where it is not simply what was asked for; else empty
};
extern struct timing_policy timing_policy;

// Once, at the first init, with the version of its interface; sets config.events accordingly.
void timing_policy_choose(int version);
// Helper: stops sampling, or goes on with it. False: that is not sound. KernelCh is never switched:
// from NCCL 2.31 on its stamps would be those of other works.
bool timing_policy_switch(enum gpu_timing timing);
// The events of a mode, or those that the user listed, as the policy in force changes them.
u32 timing_policy_events(u32 events);
// The events of a mode, as far as they may be switched on and off while a job runs; those that are
// always on or always off are left as they are.
u32 timing_policy_events_of_mode(enum mode mode);

// At the first init, and by the helper when the mode has changed: whether groups that start from
// now on go to disk, and whether they keep slots of launches that are not timed, and of their
// works. Profile mode without a ring writes none of them, and without KernelCh and network events
// nothing else belongs to a work.
void timing_policy_settle_groups(void);

// Launches are chosen and timed by CUDA events.
static inline bool timing_by_events(void) {
    return __atomic_load_n(&timing_policy.in_force, __ATOMIC_RELAXED) == GPU_TIMING_SAMPLED;
}

#endif
