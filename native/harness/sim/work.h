// Works, and the plan that holds those of one communicator in one group: NCCL makes a kernel of it.
#ifndef NCCLSCOPE_SIM_WORK_H
#define NCCLSCOPE_SIM_WORK_H

#include "comm.h"
#include "stream.h"
#include "tuning.h"

struct work {
    struct transfer_spec spec;
    int mask;         // as it was at the call
    bool unreported;  // below the API: a Broadcast of 2.29 and later, symmetric memory up to 2.30,
                      // one rank
    void *api;        // handle of CollApi or P2pApi
    struct tuning tuning;
    int round, order;  // of a message: its round, and how many went to the same peer before
    uint64_t sequence;
    struct run *run;
    void *event;  // handle of Coll or P2p
};

struct plan {
    struct task task;
    struct comm *comm;
    struct stream *stream, *shown_stream;  // the one to use; what the user gave
    bool captured;
    void *group_api;
    int count, collectives;  // collectives come first
    int holds;               // what it does not get past: ncclscopeHold
    struct work works[];
};

bool work_is_message(const struct work *work);
bool work_has_kernel_events(const struct work *work);
// Send and Recv of one round are one work of the device.
bool work_same_round(const struct work *a, const struct work *b);
// A message to itself.
bool work_is_self(const struct comm *comm, const struct work *work);

// How long after this process's first operation a time is.
int64_t work_since_first_ns(int64_t t);
// How many bytes a rank sends in a collective, and in how many turns.
double work_sent_bytes(const struct comm *comm, const struct transfer_spec *spec);

#endif
