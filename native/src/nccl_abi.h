// What NCCL passes to a profiler plugin, all interface versions, declared anew from their layouts.
//
// Offsets hold on LP64 little-endian machines, the only ones NCCL runs on. A descriptor lives on
// NCCL's stack and is valid during the call only. Nothing here is trusted: see event.h for what may
// be dereferenced. It is one file of more than 400 lines on purpose: a version is compared with the
// ones before it, and half of the lines are declarations and the asserts on their offsets.
//
// The lists below are X-macros: C takes its enums and tables from them, Python nccl/_events.py
// (`make generate`).
#ifndef NCCLSCOPE_NCCL_ABI_H
#define NCCLSCOPE_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t nccl_result;  // 0 is success; NCCL reads it from init alone
typedef void (*nccl_log_fn)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

// clang-format off
// E(x, bit, constant, name, first interface version that has it, field of a Drop slot that counts
// it). x is whatever the user of the list passes on. The kind of an event's slot is 1 + its bit
// (event.h checks that).
#define NCCL_EVENT_LIST(E, x)                           \
    E(x, 0, GROUP, Group, 1, group)                     \
    E(x, 1, COLL, Coll, 1, coll)                        \
    E(x, 2, P2P, P2p, 1, p2p)                           \
    E(x, 3, PROXY_OP, ProxyOp, 1, proxy_op)             \
    E(x, 4, PROXY_STEP, ProxyStep, 1, proxy_step)       \
    E(x, 5, PROXY_CTRL, ProxyCtrl, 1, other)            \
    E(x, 6, KERNEL_CH, KernelCh, 3, kernel)             \
    E(x, 7, NET_PLUGIN, NetPlugin, 3, other)            \
    E(x, 8, GROUP_API, GroupApi, 5, api)                \
    E(x, 9, COLL_API, CollApi, 5, api)                  \
    E(x, 10, P2P_API, P2pApi, 5, api)                   \
    E(x, 11, KERNEL_LAUNCH, KernelLaunch, 5, api)       \
    E(x, 12, CE_COLL, CeColl, 6, other)                 \
    E(x, 13, CE_SYNC, CeSync, 6, other)                 \
    E(x, 14, CE_BATCH, CeBatch, 6, other)               \
    E(x, 15, KERNEL_PHASE, KernelPhase, 7, kernel)

// V(version, family, descriptor, its bytes). Families differ in init and state arguments: early has
// a silent init, named names the communicator, modern gives it an id.
#define NCCL_INTERFACES(V)                                      \
    V(1, early, struct nccl_descr_v1, 120)                      \
    V(2, early, struct nccl_descr_v2, 128)                      \
    V(3, early, struct nccl_descr_v3, 120)                      \
    V(4, named, struct nccl_descr, 104)                         \
    V(5, modern, struct nccl_descr, 112)                        \
    V(6, modern, struct nccl_descr, 112)                        \
    V(7, modern, struct nccl_descr, 136)

// F(what, version): first interface version with …
#define NCCL_FIRST_WITH_LIST(F)                                                                    \
    F(STAMPS, 4)  /* GPU times of kernels, sizes of steps, numbers of channels, communicators */   \
    F(CALLS, 5)   /* API calls, the Group of a work, types of more than a byte */                  \
    F(TAGS, 7)    /* the user's tag, the kernel's variant, symmetric kernels */

// S(number, constant, name)
#define NCCL_STATE_LIST(S)                                                                         \
    S(0, OP_SEND_POSTED, ProxyOpSendPosted)  /* 0 to 7: of a ProxyOp up to NCCL 2.26 */            \
    S(1, OP_SEND_REM_FIFO_WAIT, ProxyOpSendRemFifoWait)                                            \
    S(2, OP_SEND_TRANSMITTED, ProxyOpSendTransmitted)                                              \
    S(3, OP_SEND_DONE, ProxyOpSendDone)                                                            \
    S(4, OP_RECV_POSTED, ProxyOpRecvPosted)                                                        \
    S(5, OP_RECV_RECEIVED, ProxyOpRecvReceived)                                                    \
    S(6, OP_RECV_TRANSMITTED, ProxyOpRecvTransmitted)                                              \
    S(7, OP_RECV_DONE, ProxyOpRecvDone)                                                            \
    S(8, STEP_SEND_GPU_WAIT, ProxyStepSendGPUWait)                                                 \
    S(9, STEP_SEND_WAIT, ProxyStepSendWait)                                                        \
    S(10, STEP_RECV_WAIT, ProxyStepRecvWait)                                                       \
    S(11, STEP_RECV_FLUSH_WAIT, ProxyStepRecvFlushWait)                                            \
    S(12, STEP_RECV_GPU_WAIT, ProxyStepRecvGPUWait)                                                \
    S(13, CTRL_IDLE, ProxyCtrlIdle)                                                                \
    S(14, CTRL_ACTIVE, ProxyCtrlActive)                                                            \
    S(15, CTRL_SLEEP, ProxyCtrlSleep)                                                              \
    S(16, CTRL_WAKEUP, ProxyCtrlWakeup)                                                            \
    S(17, CTRL_APPEND, ProxyCtrlAppend)                                                            \
    S(18, CTRL_APPEND_END, ProxyCtrlAppendEnd)                                                     \
    S(19, OP_IN_PROGRESS, ProxyOpInProgress)                                                       \
    S(20, STEP_SEND_PEER_WAIT, ProxyStepSendPeerWait)                                              \
    S(21, NET_UPDATE, NetPluginUpdate)                                                             \
    S(22, KERNEL_CH_STOP, KernelChStop)                                                            \
    S(23, GROUP_START_DONE, GroupStartApiStop)                                                     \
    S(24, GROUP_END_BEGINS, GroupEndApiStart)                                                      \
    S(25, CE_COLL_START, CeCollStart)  /* 25 to 30 are defined and never sent */                   \
    S(26, CE_COLL_COMPLETE, CeCollComplete)                                                        \
    S(27, CE_SYNC_START, CeSyncStart)                                                              \
    S(28, CE_SYNC_COMPLETE, CeSyncComplete)                                                        \
    S(29, CE_BATCH_START, CeBatchStart)                                                            \
    S(30, CE_BATCH_COMPLETE, CeBatchComplete)                                                      \
    S(31, KERNEL_PHASE_STOP, KernelPhaseStop)

// N(constant, id): data of network-plugin events, by id = type << 16 | version.
#define NCCL_NET_DATA(N) N(NET_IB_V1, 0x10001) N(NET_SOCKET_V1, 0x20001)
// clang-format on

#define AS_EVENT(x, bit, constant, name, first, drop) NCCL_##constant = 1 << (bit),
enum nccl_event { NCCL_EVENT_LIST(AS_EVENT, ) };
#undef AS_EVENT
#define AS_COUNT(...) +1
enum {
    NCCL_EVENT_COUNT = 0 NCCL_EVENT_LIST(AS_COUNT, ),
    NCCL_NEWEST_INTERFACE = 0 NCCL_INTERFACES(AS_COUNT),  // they are numbered from 1
};
#undef AS_COUNT
#define AS_FIRST(what, version) NCCL_FIRST_WITH_##what = version,
enum { NCCL_FIRST_WITH_LIST(AS_FIRST) };
#undef AS_FIRST
#define AS_STATE(number, constant, name) NCCL_##constant = number,
enum nccl_state { NCCL_STATE_LIST(AS_STATE) };
#undef AS_STATE
#define AS_DATA(constant, id) NCCL_##constant = id,
enum { NCCL_NET_DATA(AS_DATA) };
#undef AS_DATA

// The events that an interface version has, as a mask.
#define NCCL_EVENT_OF(version, bit, constant, name, first, drop) \
    | ((version) >= (first) ? 1 << (bit) : 0)
#define NCCL_EVENTS_OF(version) (0 NCCL_EVENT_LIST(NCCL_EVENT_OF, version))
#define NCCL_EVENTS_NEWEST NCCL_EVENTS_OF(NCCL_NEWEST_INTERFACE)

// The number of an event's bit.
#define NCCL_NUMBER(event) ((unsigned)__builtin_ctzll(event))

// ---- Events with one layout in every version that has them. ----
struct nccl_proxy_op {
    int pid;
    uint8_t channelId;
    int peer, nSteps, chunkSize, isSend;
};
struct nccl_proxy_step {
    int step;
};
struct nccl_kernel_ch {
    uint8_t channelId;
    uint64_t pTimer;  // v4 and later
};
struct nccl_net_plugin {
    int64_t id;
    const void *data;
};

// ---- v1 ----
struct nccl_descr_v1 {
    uint8_t type;
    void *parentObj;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t commHash, seqNumber;
            uint8_t func;
            const void *sendBuff;
            void *recvBuff;
            size_t count;
            int root;
            uint8_t datatype;
            uint32_t op;
            size_t trafficBytes;
            uint8_t nMaxChannels, nWarps, algo, proto;
            int isCollnet, isNvls;
        } coll;
        struct {
            const char *name;
            uint64_t commHash;
            uint8_t func;
            void *buff;
            uint8_t datatype;
            size_t count;
            int peer;
        } p2p;
        struct nccl_proxy_op proxyOp;
        struct nccl_proxy_step proxyStep;
    };
};

// ---- v2 and v3: strings instead of numbers ----
struct nccl_p2p_v2 {
    const char *name;
    uint64_t commHash;
    const char *func;
    void *buff;
    const char *datatype;
    size_t count;
    int peer;
};
struct nccl_descr_v2 {
    uint8_t type;
    void *parentObj;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t commHash, seqNumber;
            const char *func;
            const void *sendBuff;
            void *recvBuff;
            size_t count;
            int root;
            const char *datatype;
            size_t trafficBytes;
            uint8_t nMaxChannels, nWarps;
            const char *algo, *proto;
        } coll;
        struct nccl_p2p_v2 p2p;
        struct nccl_proxy_op proxyOp;
        struct nccl_proxy_step proxyStep;
    };
};
struct nccl_descr_v3 {
    uint8_t type;
    void *parentObj;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t commHash, seqNumber;
            const char *func;
            const void *sendBuff;
            void *recvBuff;
            size_t count;
            int root;
            const char *datatype;
            uint8_t nMaxChannels, nWarps;
            const char *algo, *proto;
        } coll;
        struct nccl_p2p_v2 p2p;
        struct nccl_proxy_op proxyOp;
        struct nccl_proxy_step proxyStep;
        struct nccl_kernel_ch kernelCh;  // channelId alone
        struct nccl_net_plugin netPlugin;
    };
};

// What v1 to v3 have at the same places, each as far as it has the event.
struct nccl_descr_early {
    uint8_t type;
    void *parentObj;
    int rank;
    union {
        struct nccl_proxy_op proxyOp;
        struct nccl_proxy_step proxyStep;
        struct nccl_kernel_ch kernelCh;
        struct nccl_net_plugin netPlugin;
    };
};

// ---- v4 and later: each version only adds members at the end of a union arm, and v5 widened
// `type`. Declared once in the newest form; an adapter must not read what its version lacks
// (marked).
struct nccl_coll {
    uint64_t seqNumber;
    const char *func;
    const void *sendBuff;
    void *recvBuff;
    size_t count;
    int root;
    const char *datatype;
    uint8_t nChannels, nWarps;
    const char *algo, *proto;
    void *parentGroup;          // v5
    const char *kernelVariant;  // v7
    bool isSymColl;             // v7
    uint64_t userTag;           // v7
};
struct nccl_p2p {
    const char *func;
    void *buff;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t nChannels;
    void *parentGroup;  // v5
    uint64_t userTag;   // v7
};
struct nccl_ce_coll {  // v6
    uint64_t seqNumber;
    const char *func;
    const void *sendBuff;
    void *recvBuff;
    size_t count;
    int root;
    const char *datatype, *syncStrategy;
    bool intraBatchSync;
    uint32_t batchSize, numBatches, ceSeqNum;
    void *stream;
    uint64_t userTag;  // v7
};
struct nccl_descr {
    uint64_t type;  // v4: only the first byte
    void *parentObj;
    int rank;
    union {
        struct nccl_coll coll;
        struct nccl_p2p p2p;
        struct nccl_proxy_op proxyOp;
        struct nccl_proxy_step proxyStep;
        struct nccl_kernel_ch kernelCh;
        struct nccl_net_plugin netPlugin;
        struct {
            bool graphCaptured;
            int groupDepth;
        } groupApi;  // v5
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool graphCaptured;
            uint64_t userTag;  // v7
        } collApi;             // v5
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            void *stream;
            bool graphCaptured;
            uint64_t userTag;  // v7
        } p2pApi;              // v5
        struct {
            void *stream;
        } kernelLaunch;  // v5
        struct nccl_ce_coll ceColl;
        struct {
            bool isComplete;
            int nRanks;
        } ceCollSync;  // v6
        struct {
            int numOps;
            size_t totalBytes;
            bool useIntraSync;
        } ceCollBatch;  // v6
        struct {
            uint8_t channelId, phaseId;
            const char *phaseName;
            uint64_t pTimer;
        } kernelPhase;  // v7
    };
};

// ---- State arguments; NULL is common ----
union nccl_state_args_v1 {  // v1 to v3
    struct {
        size_t transSize;
        int steps;
    } proxyOp;
    struct {
        int appendedProxyOps;
    } proxyCtrl;
};
union nccl_state_args {  // v4 and later
    struct {
        size_t transSize;
    } proxyStep;
    struct {
        int appendedProxyOps;
    } proxyCtrl;
    struct {
        const void *data;
    } netPlugin;
    struct {
        uint64_t pTimer;
    } kernelCh;  // also KernelPhase
};

// ---- Data of network-plugin events ----
struct nccl_net_ib_v1 {
    uint8_t type, padding[7];
    int device;
    uint64_t wr_id;
    int opcode, qpNum;
    size_t length;
};
struct nccl_net_socket_v1 {
    uint8_t type, padding[7];
    int fd, op;
    size_t length;
};

// ---- The objects NCCL looks up: ncclProfiler_v1, ncclProfiler_v2 … ----
typedef nccl_result (*nccl_stop_fn)(void *eHandle);
typedef nccl_result (*nccl_finalize_fn)(void *context);
typedef nccl_result (*nccl_init_v1_fn)(void **context, int *mask);  // v1 to v3
typedef nccl_result (*nccl_init_v4_fn)(void **context, int *mask, const char *commName,
                                       uint64_t commHash, int nNodes, int nRanks, int rank,
                                       nccl_log_fn log);
typedef nccl_result (*nccl_init_v5_fn)(void **context, uint64_t commId, int *mask,
                                       const char *commName, int nNodes, int nRanks, int rank,
                                       nccl_log_fn log);  // v5 and later
typedef nccl_init_v1_fn nccl_init_early_fn;
typedef nccl_init_v4_fn nccl_init_named_fn;
typedef nccl_init_v5_fn nccl_init_modern_fn;
typedef union nccl_state_args_v1 nccl_state_args_early;
typedef union nccl_state_args nccl_state_args_named, nccl_state_args_modern;
#define NCCL_PROFILER(version, family, descr, bytes)                                   \
    struct nccl_profiler_v##version {                                                  \
        const char *name;                                                              \
        nccl_init_##family##_fn init;                                                  \
        nccl_result (*startEvent)(void *context, void **eHandle, const descr *eDescr); \
        nccl_stop_fn stopEvent;                                                        \
        nccl_result (*recordEventState)(void *eHandle, int state,                      \
                                        const nccl_state_args_##family *eStateArgs);   \
        nccl_finalize_fn finalize;                                                     \
    };                                                                                 \
    _Static_assert(sizeof(struct nccl_profiler_v##version) == 48, "interface object");
NCCL_INTERFACES(NCCL_PROFILER)
#undef NCCL_PROFILER

static inline size_t nccl_descriptor_bytes(int version) {
#define AS_BYTES(version, family, descr, bytes) bytes,
    static const size_t bytes[] = {0, NCCL_INTERFACES(AS_BYTES)};
#undef AS_BYTES
    return bytes[version];
}

static inline uint32_t nccl_events_of(int version) {
#define AS_EVENTS(version, family, descr, bytes) NCCL_EVENTS_OF(version),
    static const uint32_t events[] = {0, NCCL_INTERFACES(AS_EVENTS)};
#undef AS_EVENTS
    return events[version];
}

// Which bits of a mask make NCCL emit an event: parents come with their children. By interface
// version, as the releases that speak it have it; what looks like a slip there is one of NCCL's.
static inline uint32_t nccl_emitted_for(int version, uint64_t event) {
    const uint32_t net = version >= 3 ? NCCL_NET_PLUGIN : 0;
    const uint32_t kernel = version >= 3 ? NCCL_KERNEL_CH : 0;
    const uint32_t copy_engine = version >= 6 ? NCCL_CE_COLL | NCCL_CE_SYNC | NCCL_CE_BATCH : 0;
    const uint32_t step = NCCL_PROXY_STEP | net, op = NCCL_PROXY_OP | step;
    const uint32_t coll = NCCL_COLL | op | kernel, p2p = NCCL_P2P | op | kernel;
    switch (event) {
        case NCCL_GROUP: return version <= 2 ? coll | p2p : NCCL_GROUP | coll | p2p;
        case NCCL_COLL: return coll;
        case NCCL_P2P: return version <= 2 ? coll : version <= 4 ? p2p & ~net : p2p;
        case NCCL_PROXY_OP: return op;
        case NCCL_PROXY_STEP: return step;
        case NCCL_GROUP_API:
            return NCCL_GROUP | coll | p2p | NCCL_GROUP_API | NCCL_COLL_API | NCCL_P2P_API |
                   NCCL_KERNEL_LAUNCH | copy_engine;
        case NCCL_COLL_API: return NCCL_COLL_API | coll | copy_engine;
        case NCCL_P2P_API: return NCCL_P2P_API | p2p;
        case NCCL_CE_COLL: return NCCL_CE_COLL | NCCL_CE_SYNC | NCCL_CE_BATCH;
        default: return (uint32_t)event;
    }
}

static inline bool nccl_emits(uint32_t mask, int version, uint64_t event) {
    return (mask & nccl_emitted_for(version, event)) != 0;
}

// ---- Offsets, as read from NCCL's releases ----
// clang-format off
#define AT(descr, member, offset) _Static_assert(offsetof(struct descr, member) == (offset), #descr "." #member)
#define COMMON_AT(descr) AT(descr, parentObj, 8); AT(descr, rank, 16)
#define PROXY_AT(descr)                                                                            \
    AT(descr, proxyOp.pid, 24); AT(descr, proxyOp.channelId, 28); AT(descr, proxyOp.peer, 32);     \
    AT(descr, proxyOp.nSteps, 36); AT(descr, proxyOp.chunkSize, 40); AT(descr, proxyOp.isSend, 44); \
    AT(descr, proxyStep.step, 24)
#define KERNEL_AT(descr)                                                                         \
    AT(descr, kernelCh.channelId, 24); AT(descr, netPlugin.id, 24); AT(descr, netPlugin.data, 32)
#define P2P_V2_AT(descr)                                                                         \
    AT(descr, p2p.name, 24); AT(descr, p2p.commHash, 32); AT(descr, p2p.func, 40);               \
    AT(descr, p2p.buff, 48); AT(descr, p2p.datatype, 56); AT(descr, p2p.count, 64); AT(descr, p2p.peer, 72)
#define COLL_V2_AT(descr)                                                                        \
    AT(descr, coll.name, 24); AT(descr, coll.commHash, 32); AT(descr, coll.seqNumber, 40);       \
    AT(descr, coll.func, 48); AT(descr, coll.sendBuff, 56); AT(descr, coll.recvBuff, 64);        \
    AT(descr, coll.count, 72); AT(descr, coll.root, 80)
COMMON_AT(nccl_descr_v1); PROXY_AT(nccl_descr_v1); P2P_V2_AT(nccl_descr_v1); COLL_V2_AT(nccl_descr_v1);
AT(nccl_descr_v1, coll.datatype, 84); AT(nccl_descr_v1, coll.op, 88); AT(nccl_descr_v1, coll.trafficBytes, 96);
AT(nccl_descr_v1, coll.nMaxChannels, 104); AT(nccl_descr_v1, coll.nWarps, 105); AT(nccl_descr_v1, coll.algo, 106);
AT(nccl_descr_v1, coll.proto, 107); AT(nccl_descr_v1, coll.isCollnet, 108); AT(nccl_descr_v1, coll.isNvls, 112);
_Static_assert(sizeof(struct nccl_descr_v1) == 120, "v1");
COMMON_AT(nccl_descr_v2); PROXY_AT(nccl_descr_v2); P2P_V2_AT(nccl_descr_v2); COLL_V2_AT(nccl_descr_v2);
AT(nccl_descr_v2, coll.datatype, 88); AT(nccl_descr_v2, coll.trafficBytes, 96);
AT(nccl_descr_v2, coll.nMaxChannels, 104); AT(nccl_descr_v2, coll.nWarps, 105); AT(nccl_descr_v2, coll.algo, 112);
AT(nccl_descr_v2, coll.proto, 120);
_Static_assert(sizeof(struct nccl_descr_v2) == 128, "v2");
COMMON_AT(nccl_descr_v3); PROXY_AT(nccl_descr_v3); P2P_V2_AT(nccl_descr_v3); COLL_V2_AT(nccl_descr_v3);
KERNEL_AT(nccl_descr_v3);
AT(nccl_descr_v3, coll.datatype, 88); AT(nccl_descr_v3, coll.nMaxChannels, 96); AT(nccl_descr_v3, coll.nWarps, 97);
AT(nccl_descr_v3, coll.algo, 104); AT(nccl_descr_v3, coll.proto, 112);
_Static_assert(sizeof(struct nccl_descr_v3) == 120, "v3");
COMMON_AT(nccl_descr_early); PROXY_AT(nccl_descr_early); KERNEL_AT(nccl_descr_early);
COMMON_AT(nccl_descr); PROXY_AT(nccl_descr); KERNEL_AT(nccl_descr); AT(nccl_descr, kernelCh.pTimer, 32);
AT(nccl_descr, coll.seqNumber, 24); AT(nccl_descr, coll.func, 32); AT(nccl_descr, coll.sendBuff, 40);
AT(nccl_descr, coll.recvBuff, 48); AT(nccl_descr, coll.count, 56); AT(nccl_descr, coll.root, 64);
AT(nccl_descr, coll.datatype, 72); AT(nccl_descr, coll.nChannels, 80); AT(nccl_descr, coll.nWarps, 81);
AT(nccl_descr, coll.algo, 88); AT(nccl_descr, coll.proto, 96); AT(nccl_descr, coll.parentGroup, 104);
AT(nccl_descr, coll.kernelVariant, 112); AT(nccl_descr, coll.isSymColl, 120); AT(nccl_descr, coll.userTag, 128);
AT(nccl_descr, p2p.func, 24); AT(nccl_descr, p2p.buff, 32); AT(nccl_descr, p2p.datatype, 40);
AT(nccl_descr, p2p.count, 48); AT(nccl_descr, p2p.peer, 56); AT(nccl_descr, p2p.nChannels, 60);
AT(nccl_descr, p2p.parentGroup, 64); AT(nccl_descr, p2p.userTag, 72);
AT(nccl_descr, groupApi.graphCaptured, 24); AT(nccl_descr, groupApi.groupDepth, 28);
AT(nccl_descr, collApi.func, 24); AT(nccl_descr, collApi.count, 32); AT(nccl_descr, collApi.datatype, 40);
AT(nccl_descr, collApi.root, 48); AT(nccl_descr, collApi.stream, 56); AT(nccl_descr, collApi.graphCaptured, 64);
AT(nccl_descr, collApi.userTag, 72);
AT(nccl_descr, p2pApi.func, 24); AT(nccl_descr, p2pApi.count, 32); AT(nccl_descr, p2pApi.datatype, 40);
AT(nccl_descr, p2pApi.stream, 48); AT(nccl_descr, p2pApi.graphCaptured, 56); AT(nccl_descr, p2pApi.userTag, 64);
AT(nccl_descr, kernelLaunch.stream, 24);
AT(nccl_descr, ceColl.seqNumber, 24); AT(nccl_descr, ceColl.func, 32); AT(nccl_descr, ceColl.sendBuff, 40);
AT(nccl_descr, ceColl.recvBuff, 48); AT(nccl_descr, ceColl.count, 56); AT(nccl_descr, ceColl.root, 64);
AT(nccl_descr, ceColl.datatype, 72); AT(nccl_descr, ceColl.syncStrategy, 80);
AT(nccl_descr, ceColl.intraBatchSync, 88); AT(nccl_descr, ceColl.batchSize, 92);
AT(nccl_descr, ceColl.numBatches, 96); AT(nccl_descr, ceColl.ceSeqNum, 100); AT(nccl_descr, ceColl.stream, 104);
AT(nccl_descr, ceColl.userTag, 112);
AT(nccl_descr, ceCollSync.isComplete, 24); AT(nccl_descr, ceCollSync.nRanks, 28);
AT(nccl_descr, ceCollBatch.numOps, 24); AT(nccl_descr, ceCollBatch.totalBytes, 32);
AT(nccl_descr, ceCollBatch.useIntraSync, 40);
AT(nccl_descr, kernelPhase.channelId, 24); AT(nccl_descr, kernelPhase.phaseId, 25);
AT(nccl_descr, kernelPhase.phaseName, 32); AT(nccl_descr, kernelPhase.pTimer, 40);
_Static_assert(sizeof(struct nccl_descr) == 136, "v7");
AT(nccl_descr, coll.parentGroup, 104);    // v4 ends before it
AT(nccl_descr, coll.kernelVariant, 112);  // v5 and v6 end before it
AT(nccl_descr, ceColl.userTag, 112);      // v6 ends before it
_Static_assert(sizeof(union nccl_state_args_v1) == 16 && sizeof(union nccl_state_args) == 8, "state arguments");
AT(nccl_net_ib_v1, device, 8); AT(nccl_net_ib_v1, wr_id, 16); AT(nccl_net_ib_v1, opcode, 24);
AT(nccl_net_ib_v1, qpNum, 28); AT(nccl_net_ib_v1, length, 32);
AT(nccl_net_socket_v1, fd, 8); AT(nccl_net_socket_v1, op, 12); AT(nccl_net_socket_v1, length, 16);
#undef COLL_V2_AT
#undef P2P_V2_AT
#undef KERNEL_AT
#undef PROXY_AT
#undef COMMON_AT
#undef AT
// clang-format on

#endif
