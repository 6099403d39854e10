// What the files of the simulated runtime share.
#ifndef NCCLSCOPE_SIM_RUNTIME_H
#define NCCLSCOPE_SIM_RUNTIME_H

#include "cuda_api.h"

// Keeps the error for cudaGetLastError, and returns it.
cudaError_t runtime_fail(cudaError_t error);
// The error of a call that a capture of this stream forbids, which invalidates the capture.
cudaError_t runtime_forbidden(cudaStream_t stream);
// As NCCL does before it launches: the device's context is current, made anew where it is gone.
void runtime_use_current_device(void);

#endif
