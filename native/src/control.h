// The capture's control file: what somebody outside asks of the processes of a running job.
#ifndef NCCLSCOPE_CONTROL_H
#define NCCLSCOPE_CONTROL_H

#include <stdbool.h>

struct control_request {
    bool copy_out;  // write the ring to disk
};

// Helper thread, twice a second: true when the file says something new.
bool control_poll(struct control_request *request);

#endif
