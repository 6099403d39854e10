// Attaches to the Python around us: runs ncclscope_attach.py, which lies beside the plugin.
#ifndef NCCLSCOPE_ATTACH_H
#define NCCLSCOPE_ATTACH_H

// At every communicator's init: asks Python's main thread to attach soon, or, once it has, to look
// at the new communicator. Does nothing where there is no Python, or no PyTorch.
void attach_request(void);

#endif
