// A second profiler behind this one: NCCL has one slot for a plugin, and the site may need its own.
//
// Every callback of the negotiated interface version goes to it as well, with its own contexts,
// handles and mask, as if NCCL called it alone.
#ifndef NCCLSCOPE_CHAIN_H
#define NCCLSCOPE_CHAIN_H

#include "comm.h"
#include "nccl_abi.h"

// Loads NCCLSCOPE_CHAIN for that interface version. Whatever is wrong with it is said once, and
// everything goes on without it.
void chain_load(int version);

// Opens the communicator there, too; returns the mask it wants.
u32 chain_init(void *context, int version, const struct comm_description *description,
               nccl_log_fn log);
void chain_finalize(void *context);
// After our own start; *handle is ours, NULL when dropped, and is replaced then where it must be.
void chain_start(void *context, void **handle, const void *descriptor, u64 type, int version);
// Both: true when the event is theirs alone.
bool chain_state(u64 handle, int state, const void *args);
bool chain_stop(u64 handle);

#endif
