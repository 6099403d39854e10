// Plays NCCL's part towards a profiler plugin: loads it as NCCL does and calls it in any interface
// version.
//
// Descriptors and state arguments lie in heap blocks of exactly the version's size and are poisoned
// after each call, so that a plugin that reads too far or keeps a pointer is found out.
#ifndef NCCLSCOPE_HOST_H
#define NCCLSCOPE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host {
    int version;
    const void *object;  // the plugin's ncclProfiler_vN
    void *library;
    int mask;  // what the plugin asked for last
};

// A call of init; the fields that a version lacks are not passed.
struct host_comm {
    uint64_t id;
    const char *name;
    int nodes, ranks, rank;
};

// Any event's descriptor: `type` says which fields count, the version which of those exist.
struct host_event {
    uint64_t type;
    void *parent;
    int rank;
    // Coll, P2p, CollApi, P2pApi, CeColl
    const char *func, *dtype, *algo, *proto, *name, *variant, *sync;
    uint64_t comm_hash, seq, count, traffic, tag, send, recv, stream;
    uint32_t op, batch_size, num_batches, ce_seq;
    int root, peer, channels, warps, func_number, dtype_number, algo_number, proto_number;
    void *parent_group;
    bool collnet, nvls, symmetric, graph, intra_sync;
    // ProxyOp, ProxyStep
    int pid, channel, steps, chunk_size, is_send, step;
    // KernelCh, KernelPhase
    uint64_t timer;
    int phase;
    const char *phase_name;
    // NetPlugin
    int64_t net_id;
    const void *net_data;
    // GroupApi, CeSync, CeBatch
    int depth, ranks, ops;
    uint64_t bytes;
    bool complete;
};

// dlopen as NCCL does (RTLD_NOW | RTLD_LOCAL) and looks up the object of `version`. Prints why not
// and returns false.
bool host_load(struct host *host, const char *plugin, int version);
void host_unload(struct host *host);

int host_init(struct host *host, void **context, const struct host_comm *comm);
void host_start(const struct host *host, void *context, void **handle,
                const struct host_event *event);
void host_stop(const struct host *host, void *handle);
// has_args: NULL is passed otherwise. arg: first 8 bytes; steps: versions 1 to 3.
void host_state(const struct host *host, void *handle, int state, bool has_args, uint64_t arg,
                int steps);
void host_finalize(const struct host *host, void *context);
// Called by each thread when it makes no more calls.
void host_thread_done(void);

// One address for one text, for ever, as NCCL's literals have.
const char *host_literal(const char *text);

#endif
