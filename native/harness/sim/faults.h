// Faults of the simulated driver, from NCCLSCOPE_SIM_CUDA_FAULTS: words separated by commas.
//
//   cuEventRecord@3=700     the third call returns error 700
//   cuEventQuery@5+=600     the fifth and all later ones do
//   cuEventRecord=missing   the driver has no such function
//   cuEventRecord@9+=slow2  the ninth and all later ones take 2 ms longer, as where others hold the
//                           driver or the GPU
//   cuStreamIsCapturing@2=capturing   the second call says that the stream is captured
#ifndef NCCLSCOPE_SIM_FAULTS_H
#define NCCLSCOPE_SIM_FAULTS_H

#include <stdbool.h>

enum { FAULT_CAPTURING = -1 };

// What this call of a function is to return; 0: nothing special.
int fault_of_call(const char *function);
bool fault_is_missing(const char *function);
// Tests: how often a function with a fault has been called.
long ncclSimDriverCalls(const char *function);

#endif
