// NCCL's side of the profiler interface: loads the plugin by NCCL's rules, and says which events a
// mask asks for in the simulated release.
#ifndef NCCLSCOPE_SIM_PROFILER_H
#define NCCLSCOPE_SIM_PROFILER_H

#include "../../src/nccl_abi.h"
#include "../host.h"

// Of the process. `object` is NULL where no plugin is loaded.
extern struct host profiler;

// At the first communicator; a failure is remembered for the process's life.
void profiler_load(void);
// What the plugin asks for now.
int profiler_mask(void);
// Whether the release makes the event for this mask.
bool profiler_wants(int mask, enum nccl_event event);

#endif
