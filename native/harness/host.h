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

// clang-format off
// F(type, name, key in a transcript): fields of descriptors that a transcript has as they are.
// play.c reads them by this list.
#define HOST_EVENT_FIELDS(F)                                                                      \
    /* Coll, P2p, CollApi, P2pApi, CeColl */                                                      \
    F(text, variant, variant) F(text, sync, sync) F(address, comm_hash, comm)                     \
    F(address, recv, recv) F(address, stream, stream) F(number, seq, seq) F(number, count, count) \
    F(number, traffic, traffic) F(number, tag, tag) F(word, op, op) F(word, batch_size, batch)    \
    F(word, num_batches, nbatches) F(word, ce_seq, ceseq) F(integer, root, root)                  \
    F(integer, peer, peer) F(integer, warps, nwarps) F(flag, collnet, collnet)                    \
    F(flag, nvls, nvls) F(flag, symmetric, sym) F(flag, graph, graph) F(flag, intra_sync, intra)  \
    /* ProxyOp, ProxyStep */                                                                      \
    F(integer, pid, pid) F(integer, channel, ch) F(integer, steps, nsteps)                        \
    F(integer, chunk_size, chunk) F(integer, step, step)                                          \
    /* KernelCh, KernelPhase */                                                                   \
    F(number, timer, ptimer) F(integer, phase, phase) F(text, phase_name, phname)                 \
    /* GroupApi, CeSync, CeBatch */                                                               \
    F(integer, depth, depth) F(integer, ranks, nranks) F(integer, ops, nops)                      \
    F(number, bytes, bytes) F(flag, complete, complete)
// clang-format on

typedef const char *host_text;
typedef uint64_t host_address, host_number;
typedef uint32_t host_word;
typedef int host_integer;
typedef bool host_flag;

// Any event's descriptor: `type` says which fields count, the version which of those exist.
#define AS_MEMBER(type, name, key) host_##type name;
struct host_event {
    uint64_t type;
    void *parent;
    int rank;
    HOST_EVENT_FIELDS(AS_MEMBER)
    // Coll, P2p, CollApi, P2pApi, CeColl
    const char *func, *dtype, *algo, *proto, *name;
    int func_number, dtype_number, algo_number, proto_number;  // v1
    uint64_t send;
    int channels;
    void *parent_group;
    // ProxyOp
    int is_send;
    // NetPlugin
    int64_t net_id;
    const void *net_data;
};
#undef AS_MEMBER

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
