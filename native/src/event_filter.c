// Events that do not take the fast path.
#define _GNU_SOURCE
#include "event_filter.h"

#include <dlfcn.h>

#include "chain.h"
#include "config.h"
#include "event.h"

// ---- what NCCL shall report ----
#define MAX_LIBRARIES 4  // of NCCL in one process

static struct library {
    int *mask;
    int version;
    u32 chained;
} libraries[MAX_LIBRARIES];
static u32 libraries_used;

void event_filter_remember_mask(int *mask, int version, u32 chained) {
    u32 used = __atomic_load_n(&libraries_used, __ATOMIC_ACQUIRE);
    for (u32 i = 0; i < used; i++)
        if (libraries[i].mask == mask) {
            __atomic_fetch_or(&libraries[i].chained, chained, __ATOMIC_RELAXED);
            return;
        }
    Dl_info info;
    if (used == MAX_LIBRARIES || !dladdr(mask, &info) || !info.dli_fname) return;
    if (!dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) return;  // never closed: the word stays
    libraries[used] = (struct library){mask, version, chained};
    __atomic_store_n(&libraries_used, used + 1, __ATOMIC_RELEASE);
}

void event_filter_set_events(u32 events) {
    u32 used = __atomic_load_n(&libraries_used, __ATOMIC_ACQUIRE), fast = 0;
    __atomic_store_n(&config.events, events, __ATOMIC_RELAXED);
    for (u32 i = 0; i < used; i++) {
        struct library *library = &libraries[i];
        u32 chained = __atomic_load_n(&library->chained, __ATOMIC_RELAXED);
        u32 mask = (events | chained) & nccl_events_of(library->version);
        for (u32 type = 1; type & NCCL_EVENTS_NEWEST; type <<= 1)
            if (nccl_emits(events, library->version, type)) fast |= type;
        __atomic_store_n(library->mask, (int)mask, __ATOMIC_RELAXED);
    }
    if (!callback_state.chained && used)
        __atomic_store_n(&callback_state.fast_events, fast, __ATOMIC_RELAXED);
}

nccl_result event_filter_start(void *context, void **handle, const void *descriptor, u64 type,
                               int version, record_fn record) {
    if ((type & NCCL_EVENTS_NEWEST) == 0 || (type & (type - 1)) != 0) event_start_unknown(handle);
    else if (nccl_emits(__atomic_load_n(&config.events, __ATOMIC_RELAXED), version, type))
        record(context, handle, descriptor);
    else *handle = NULL;
    if (callback_state.chained) chain_start(context, handle, descriptor, type, version);
    return 0;
}
