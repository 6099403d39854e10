// Opening and closing communicators.
#define _GNU_SOURCE
#include "comm.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "identity.h"
#include "meta.h"

#define MAX_NAME_BYTES 1024  // longer names are cut

i32 comm_ranks[NO_COMM];
u8 comm_versions[NO_COMM];
u64 comm_ids[NO_COMM];
static u8 reports_kernels[NO_COMM];
u32 comm_count;
static u8 is_open[NO_COMM];
static u32 open_count;

void *comm_open(const struct comm_description *description) {
    u32 number = __atomic_fetch_add(&comm_count, 1, __ATOMIC_RELAXED);
    union slot slot = {0};
    struct gpu gpu;
    slot.comm.comm = (u16)(number < NO_COMM ? number : NO_COMM);
    slot.comm.id = description->id;
    slot.comm.t0 = clock_ticks();
    slot.comm.version = (u8)description->version;
    slot.comm.rank = description->known ? description->rank : -1;
    slot.comm.ranks = description->ranks;
    slot.comm.nodes = description->nodes;
    slot.comm.tid = (u32)syscall(SYS_gettid);
    slot.comm.mask = description->mask;
    if (identity_current_gpu(&gpu)) {
        slot.comm.has_gpu = 1;
        memcpy(slot.comm.gpu_uuid, gpu.uuid, sizeof gpu.uuid);
        meta_text(TEXT_GPU_BUS_ID, slot.comm.comm, gpu.bus_id,
                  strnlen(gpu.bus_id, sizeof gpu.bus_id));
    }
    if (number < NO_COMM) {
        comm_ranks[number] = description->known ? description->rank : 0;
        comm_versions[number] = (u8)description->version;
        comm_ids[number] = description->id;
        reports_kernels[number] = (description->mask & NCCL_KERNEL_CH) != 0;
        __atomic_store_n(&is_open[number], 1, __ATOMIC_RELEASE);
        __atomic_fetch_add(&open_count, 1, __ATOMIC_RELAXED);
    }
    if (description->name)
        meta_text(TEXT_COMM_NAME, slot.comm.comm, description->name,
                  strnlen(description->name, MAX_NAME_BYTES));
    meta_append(KIND_comm, &slot);
    return (void *)(uintptr_t)(callback_state.first_context + number);
}

void comm_close(void *context) {
    u32 number = comm_number_in(context);
    if (!comm_owns_context(context)) {
        arena_count(COUNTER_context_foreign, 0);
        return;
    }
    if (number == NO_COMM || !__atomic_exchange_n(&is_open[number], 0, __ATOMIC_RELAXED))
        return;  // not a second time
    union slot slot = {0};
    slot.comm_end.t0 = clock_ticks();
    slot.comm_end.comm = (u16)number;
    meta_append(KIND_comm_end, &slot);
    __atomic_fetch_sub(&open_count, 1, __ATOMIC_RELAXED);
}

u32 comm_of_other_context(const void *context, unsigned event_bit) {
    if (!comm_owns_context(context)) arena_count(COUNTER_context_foreign, event_bit);
    return NO_COMM;
}

bool comm_is_open(u32 number) { return __atomic_load_n(&is_open[number], __ATOMIC_ACQUIRE); }
bool comm_reports_kernels(u32 number) { return reports_kernels[number]; }

u32 comm_open_count(void) { return __atomic_load_n(&open_count, __ATOMIC_RELAXED); }
