// Attaches to the Python around us: runs ncclscope_attach.py, which lies beside the plugin.
#ifndef NCCLSCOPE_ATTACH_H
#define NCCLSCOPE_ATTACH_H

#include "ncclscope/format.h"

// At every communicator's init: asks Python's main thread to attach soon, or, once it has, to look
// at the new communicator. Does nothing where there is no Python, or no PyTorch.
void attach_request(void);
// Helper thread: asks the attached file for the CUDA kernels of some training steps, not before a
// time by the wall clock. Does nothing where it is not attached.
void attach_take_kernels(u64 steps, u64 after_ns);
// Before the first init: where the process's files are.
void attach_use_folder(const char *process_folder);

#endif
