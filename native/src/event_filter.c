// Events that do not take the fast path.
#define _GNU_SOURCE
#include "event_filter.h"

#include <dlfcn.h>

#include "chain.h"
#include "config.h"
#include "event.h"

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

bool event_filter_wants(u32 mask, int version, u64 type) {
    return (mask & wanted_by(version, type)) != 0;
}

// ---- what NCCL shall report ----
#define MAX_LIBRARIES 4  // of NCCL in one process

static struct library {
    int *mask;
    int version;
    u32 known, chained;
} libraries[MAX_LIBRARIES];
static u32 libraries_used;

void event_filter_remember_mask(int *mask, int version, u32 interface_events, u32 chained) {
    u32 used = __atomic_load_n(&libraries_used, __ATOMIC_ACQUIRE);
    for (u32 i = 0; i < used; i++)
        if (libraries[i].mask == mask) {
            __atomic_fetch_or(&libraries[i].chained, chained, __ATOMIC_RELAXED);
            return;
        }
    Dl_info info;
    if (used == MAX_LIBRARIES || !dladdr(mask, &info) || !info.dli_fname) return;
    if (!dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) return;  // never closed: the word stays
    libraries[used] = (struct library){mask, version, interface_events, chained};
    __atomic_store_n(&libraries_used, used + 1, __ATOMIC_RELEASE);
}

void event_filter_set_events(u32 events) {
    u32 used = __atomic_load_n(&libraries_used, __ATOMIC_ACQUIRE), fast = 0;
    __atomic_store_n(&config.events, events, __ATOMIC_RELAXED);
    for (u32 i = 0; i < used; i++) {
        struct library *library = &libraries[i];
        u32 chained = __atomic_load_n(&library->chained, __ATOMIC_RELAXED);
        u32 mask = (events | chained) & library->known;
        for (u64 type = 1; type <= NCCL_KERNEL_PHASE; type <<= 1)
            if (event_filter_wants(events, library->version, type)) fast |= (u32)type;
        __atomic_store_n(library->mask, (int)mask, __ATOMIC_RELAXED);
    }
    if (!callback_state.chained && used)
        __atomic_store_n(&callback_state.fast_events, fast, __ATOMIC_RELAXED);
}

nccl_result event_filter_start(void *context, void **handle, const void *descriptor, u64 type,
                               int version, record_fn record) {
    u64 known = NCCL_EVENTS_V7;
    if ((type & known) == 0 || (type & (type - 1)) != 0) event_start_unknown(handle);
    else if (event_filter_wants(__atomic_load_n(&config.events, __ATOMIC_RELAXED), version, type))
        record(context, handle, descriptor);
    else *handle = NULL;
    if (callback_state.chained) chain_start(context, handle, descriptor, type, version);
    return 0;
}
