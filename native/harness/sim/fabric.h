// Shared memory between the ranks of a communicator: how they find each other, move bytes, and see
// when the others arrived.
//
// Collectives go through two chunks a rank, messages through two chunks a pair. Whoever waits
// sleeps on one bell that every change rings; abort and dead peers are noticed there.
#ifndef NCCLSCOPE_SIM_FABRIC_H
#define NCCLSCOPE_SIM_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl_api.h"

enum { MAX_RANKS = 64, MAX_CHANNELS = 64, FOR_EVER = -1 };

enum function { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SEND, RECV };

// What one rank asks of the others.
struct transfer_spec {
    enum function function;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;  // or the peer
};

struct member {
    int pid, global_rank;
    uint64_t host;
};

struct fabric;

// Waits for all ranks. NULL, and why.
struct fabric *fabric_join(const char *name, int ranks, int rank, uint64_t host, int global_rank,
                           int64_t origin_ns, const char **why);
void fabric_leave(struct fabric *fabric);
const struct member *fabric_member(const struct fabric *fabric, int rank);
int64_t fabric_origin_ns(const struct fabric *fabric);  // of the job's first communicator
int fabric_dead_peer(const struct fabric *fabric);      // -1: none was noticed

// Everybody's pair of numbers, by rank.
bool fabric_exchange(struct fabric *fabric, const int64_t own[2], int64_t (*all)[2]);

// ---- waiting ----
void fabric_ring(struct fabric *fabric);
// Until ready(argument), abort (false) or the time; false as well after the time.
bool fabric_wait(struct fabric *fabric, bool (*ready)(void *), void *argument, int64_t until_ns);
// For threads that look at many things: the bell's count, and a wait for the next ring.
uint32_t fabric_bell(const struct fabric *fabric);
void fabric_wait_bell(struct fabric *fabric, uint32_t heard, int64_t until_ns);
void fabric_abort(struct fabric *fabric);
bool fabric_aborted(const struct fabric *fabric);

// ---- moving bytes; one thread at a time ----
// Returns when the last rank had come that this one depends on; -1 after an abort. Ranks that ask
// for different things wait for ever, as NCCL's do.
int64_t fabric_collective(struct fabric *fabric, const struct transfer_spec *spec,
                          int64_t start_ns);
// Sends and receives that go on side by side; `ready_ns` as above, for each.
bool fabric_messages(struct fabric *fabric, const struct transfer_spec *specs, int count,
                     int64_t start_ns, int64_t *ready_ns);

// ---- what network proxies have sent so far, by pair and channel ----
void fabric_add_step(struct fabric *fabric, int to, int channel);
uint64_t fabric_steps(const struct fabric *fabric, int from, int to, int channel);

#endif
