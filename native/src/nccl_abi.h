// What NCCL passes to a profiler plugin, interface versions 1 to 7, declared anew from their
// layouts.
//
// Offsets hold on LP64 little-endian machines, the only ones NCCL runs on. A descriptor lives on
// NCCL's stack and is valid during the call only. Nothing here is trusted: see event.h for what may
// be dereferenced.
#ifndef NCCLSCOPE_NCCL_ABI_H
#define NCCLSCOPE_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t nccl_result;  // 0 is success; NCCL reads it from init alone
typedef void (*nccl_log_fn)(int level, unsigned long flags, const char *file, int line,
                            const char *format, ...);

enum nccl_event {
    NCCL_GROUP = 1 << 0,
    NCCL_COLL = 1 << 1,
    NCCL_P2P = 1 << 2,
    NCCL_PROXY_OP = 1 << 3,
    NCCL_PROXY_STEP = 1 << 4,
    NCCL_PROXY_CTRL = 1 << 5,
    NCCL_KERNEL_CH = 1 << 6,
    NCCL_NET_PLUGIN = 1 << 7,
    NCCL_GROUP_API = 1 << 8,
    NCCL_COLL_API = 1 << 9,
    NCCL_P2P_API = 1 << 10,
    NCCL_KERNEL_LAUNCH = 1 << 11,
    NCCL_CE_COLL = 1 << 12,
    NCCL_CE_SYNC = 1 << 13,
    NCCL_CE_BATCH = 1 << 14,
    NCCL_KERNEL_PHASE = 1 << 15,
};
enum {
    NCCL_EVENTS_V1 = 0x3F,  // also v2
    NCCL_EVENTS_V3 = 0xFF,  // also v4
    NCCL_EVENTS_V5 = 0xFFF,
    NCCL_EVENTS_V6 = 0x7FFF,
    NCCL_EVENTS_V7 = 0xFFFF,
};

enum nccl_state {
    NCCL_OP_SEND_POSTED = 0,  // 0 to 7: states of a ProxyOp up to NCCL 2.26
    NCCL_OP_RECV_DONE = 7,
    NCCL_STEP_SEND_GPU_WAIT = 8,
    NCCL_STEP_SEND_WAIT = 9,
    NCCL_STEP_RECV_WAIT = 10,
    NCCL_STEP_RECV_FLUSH_WAIT = 11,
    NCCL_STEP_RECV_GPU_WAIT = 12,
    NCCL_CTRL_IDLE = 13,
    NCCL_CTRL_APPEND_END = 18,
    NCCL_OP_IN_PROGRESS = 19,
    NCCL_STEP_SEND_PEER_WAIT = 20,
    NCCL_NET_UPDATE = 21,
    NCCL_KERNEL_CH_STOP = 22,
    NCCL_GROUP_START_DONE = 23,
    NCCL_GROUP_END_BEGINS = 24,
    NCCL_CE_COLL_START = 25,  // 25 to 30 are defined and never sent
    NCCL_CE_BATCH_COMPLETE = 30,
    NCCL_KERNEL_PHASE_STOP = 31,
};

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

// ---- v4 to v7: each version only adds members at the end of a union arm, and v5 widened `type`
// ---- Declared once in v7's form; an adapter must not read what its version lacks (marked).
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
enum { NCCL_DESCR_V4_BYTES = 104, NCCL_DESCR_V5_BYTES = 112, NCCL_DESCR_V7_BYTES = 136 };

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
union nccl_state_args {  // v4 to v7
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

// ---- Data of network-plugin events, by id = type << 16 | version ----
enum { NCCL_NET_IB_V1 = 0x10001, NCCL_NET_SOCKET_V1 = 0x20001 };
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

// ---- The objects NCCL looks up: ncclProfiler_v1 … ncclProfiler_v7 ----
typedef nccl_result (*nccl_stop_fn)(void *eHandle);
typedef nccl_result (*nccl_finalize_fn)(void *context);
typedef nccl_result (*nccl_init_v1_fn)(void **context, int *mask);  // v1 to v3
typedef nccl_result (*nccl_init_v4_fn)(void **context, int *mask, const char *commName,
                                       uint64_t commHash, int nNodes, int nRanks, int rank,
                                       nccl_log_fn log);
typedef nccl_result (*nccl_init_v5_fn)(void **context, uint64_t commId, int *mask,
                                       const char *commName, int nNodes, int nRanks, int rank,
                                       nccl_log_fn log);  // v5 to v7
#define NCCL_PROFILER(version, init_fn, descr, state_args)                                       \
    struct nccl_profiler_v##version {                                                            \
        const char *name;                                                                        \
        init_fn init;                                                                            \
        nccl_result (*startEvent)(void *context, void **eHandle, const descr *eDescr);           \
        nccl_stop_fn stopEvent;                                                                  \
        nccl_result (*recordEventState)(void *eHandle, int state, const state_args *eStateArgs); \
        nccl_finalize_fn finalize;                                                               \
    };                                                                                           \
    _Static_assert(sizeof(struct nccl_profiler_v##version) == 48, "interface object");
NCCL_PROFILER(1, nccl_init_v1_fn, struct nccl_descr_v1, union nccl_state_args_v1)
NCCL_PROFILER(2, nccl_init_v1_fn, struct nccl_descr_v2, union nccl_state_args_v1)
NCCL_PROFILER(3, nccl_init_v1_fn, struct nccl_descr_v3, union nccl_state_args_v1)
NCCL_PROFILER(4, nccl_init_v4_fn, struct nccl_descr, union nccl_state_args)
NCCL_PROFILER(5, nccl_init_v5_fn, struct nccl_descr, union nccl_state_args)
NCCL_PROFILER(6, nccl_init_v5_fn, struct nccl_descr, union nccl_state_args)
NCCL_PROFILER(7, nccl_init_v5_fn, struct nccl_descr, union nccl_state_args)

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
_Static_assert(sizeof(struct nccl_descr) == NCCL_DESCR_V7_BYTES, "v7");
_Static_assert(offsetof(struct nccl_descr, coll.parentGroup) == NCCL_DESCR_V4_BYTES, "v4 ends before parentGroup");
_Static_assert(offsetof(struct nccl_descr, coll.kernelVariant) == NCCL_DESCR_V5_BYTES, "v5 ends before kernelVariant");
_Static_assert(offsetof(struct nccl_descr, ceColl.userTag) == NCCL_DESCR_V5_BYTES, "v6 ends before userTag");
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
