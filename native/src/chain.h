// A second profiler behind this one: NCCL loads one plugin, and a site may need its own, too.
//
// Every callback of the negotiated interface version is passed on to it, with its own contexts,
// handles and mask, as if NCCL called it alone.
#ifndef NCCLSCOPE_CHAIN_H
#define NCCLSCOPE_CHAIN_H

#include "comm.h"
#include "nccl_abi.h"

// Loads NCCLSCOPE_CHAIN for that interface version. If that fails, one note says why, and recording
// goes on without it.
void chain_load(int version);

// Opens the communicator there, too; returns the mask it wants.
u32 chain_init(void *context, int version, const struct comm_description *description,
               nccl_log_fn log);
void chain_finalize(void *context);
// After the recorder's own start. *handle is the recorder's, NULL when it dropped the event; then
// it becomes a handle for the chained profiler's event alone.
void chain_start(void *context, void **handle, const void *descriptor, u64 type, int version);
// Both: true when only the chained profiler has the event.
bool chain_state(u64 handle, int state, const void *args);
bool chain_stop(u64 handle);

#endif
