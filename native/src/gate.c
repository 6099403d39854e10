// Events that do not take the fast path.
#include "gate.h"

#include "chain.h"
#include "config.h"
#include "event.h"

u32 gate_fast_events;
bool gate_chained;

// Which bits of a mask make NCCL emit an event: parents come with their children. By interface
// version, as the releases that speak it have it.
static u32 wanted_by(int version, u64 type) {
    bool early = version <= 2, no_net = version <= 4;
    switch (type) {
        case NCCL_GROUP: return early ? 0x1E : 0xDF;
        case NCCL_COLL: return early ? 0x1A : 0xDA;
        case NCCL_P2P: return early ? 0x1A : no_net ? 0x5C : 0xDC;
        case NCCL_PROXY_OP: return early ? 0x18 : 0x98;
        case NCCL_PROXY_STEP: return early ? 0x10 : 0x90;
        case NCCL_GROUP_API: return version == 5 ? 0xFDF : 0x7FDF;
        case NCCL_COLL_API: return version == 5 ? 0x2DA : 0x72DA;
        case NCCL_P2P_API: return 0x4DC;
        case NCCL_CE_COLL: return 0x7000;
        default: return (u32)type;
    }
}

bool gate_wants(u32 mask, int version, u64 type) { return (mask & wanted_by(version, type)) != 0; }

nccl_result gate_start(void *context, void **handle, const void *descriptor, u64 type, int version,
                       record_fn record) {
    u64 known = NCCL_EVENTS_V7;
    if ((type & known) == 0 || (type & (type - 1)) != 0) start_unknown(handle);
    else if (gate_wants(config.events, version, type)) record(context, handle, descriptor);
    else *handle = NULL;
    if (gate_chained) chain_start(context, handle, descriptor, type, version);
    return 0;
}
