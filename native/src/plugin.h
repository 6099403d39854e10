// The plugin's life in its host process: first init, later inits, finalize, fork, exit.
#ifndef NCCLSCOPE_PLUGIN_H
#define NCCLSCOPE_PLUGIN_H

#include "comm.h"
#include "nccl_abi.h"

// Never fails: where recording is impossible, mask becomes 0 and the context is still valid.
// nccl_address: any address inside the NCCL that called.
nccl_result plugin_init(void **context, int *mask, struct comm_description *description,
                        nccl_log_fn log, const void *nccl_address);
nccl_result plugin_finalize(void *context);

#define PLUGIN_NAME "ncclscope"
#define PLUGIN_EXPORT __attribute__((visibility("default")))

#endif
