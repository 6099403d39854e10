// Sampling where NCCL reports no launches (interface v4): KernelCh for one second of every minute
// of wall-clock time, which is the same second on all hosts.
//
// NCCL up to 2.30 counts works on host and device whether or not KernelCh is on, so eager works get
// the right stamps. A graph that was captured while it was off breaks that count, and NCCL may then
// wait for ever when the communicator is destroyed. Interface v4 does not say what is captured. So
// bursts come only where somebody asks for them.
#ifndef NCCLSCOPE_TIMING_BURSTS_H
#define NCCLSCOPE_TIMING_BURSTS_H

#include <stdbool.h>

#include "ncclscope/format.h"

#define BURST_S 1u
#define BURST_PERIOD_S 60u

// Helper, every few ms: switches KernelCh on and off.
void timing_bursts_check(u64 realtime_ns, u64 ticks);
// Helper: whether an operation that began at these ticks fell into a burst.
bool timing_bursts_cover(u64 ticks);

#endif
