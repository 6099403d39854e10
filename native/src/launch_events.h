// GPU times of launches, between two CUDA events.
//
// A pool of event pairs belongs to each CUDA context that was current at an init. A chosen launch
// takes a pair; the callbacks of its start and stop record one event each. Whoever stops a later
// launch of that context looks at what has finished meanwhile, and writes LaunchTime slots. No call
// made here waits for the GPU. What cannot be timed is counted and written with the reason.
#ifndef NCCLSCOPE_LAUNCH_EVENTS_H
#define NCCLSCOPE_LAUNCH_EVENTS_H

#include <stdbool.h>

#include "callback_state.h"
#include "slot.h"

// At finalize: reads what has finished; at the last one, gives up the rest.
void launch_events_close(bool last);
// Helper, at the end of the process: counts launches that nobody will read any more.
void launch_events_count_unread(void);

// What a launch keeps of it, in its slot's `sample`; 0: nothing.
struct launch_sample {
    u32 sample;
    u64 capture;  // CUDA's id of the capture, where the stream is captured; else 0
};
// Before a chosen launch: records the first event. The launch's slot comes afterwards.
COLD struct launch_sample launch_events_start(void *stream, u32 comm);
// The handle of that launch's slot; 0: there is none, the sample is given back. of_group: it is a
// GroupApi, because NCCL reports no launch.
COLD void launch_events_bind(u32 sample, u64 launch, bool of_group);
// After the launch: records the second event, then reads some that have finished.
COLD void launch_events_stop(u32 sample, u64 launch, bool of_group, u32 comm);
// The calls of a GroupApi were captured.
COLD void launch_events_note_captured_group(u64 group, u32 comm, u64 capture);

#endif
