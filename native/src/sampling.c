// Chooses calls.
#include "sampling.h"

#include <stdlib.h>

#include "comm.h"
#include "timing_policy.h"

_Alignas(64) u64 sampling_groups[GROUPS_CHOSEN];

static u64 mixed(u64 value) {  // splitmix64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

// ncclFloat32, ncclBfloat16, ncclFloat8e4m3: the first number is the width in bits.
static u64 bytes_of(const char *datatype) {
    while (datatype && *datatype && (*datatype < '0' || *datatype > '9')) datatype++;
    u64 bits = datatype ? strtoul(datatype, NULL, 10) : 0;
    return bits >= 8 ? bits / 8 : 1;
}

u64 sampling_block(u64 count, const char *datatype) {
    return count <= SMALL_BYTES / bytes_of(datatype) ? SAMPLE_BLOCK_SMALL : SAMPLE_BLOCK;
}

u64 sampling_next(u64 comm_id, u64 count, u64 calls, u64 block_calls) {
    if (calls < SAMPLE_FIRST) return calls + 1;
    // Blocks begin behind the first calls; the block of the last call is over.
    u64 block = calls == SAMPLE_FIRST ? 0 : (calls - SAMPLE_FIRST - 1) / block_calls + 1;
    u64 offset = mixed(mixed(comm_id + 0x9E3779B97F4A7C15u * block) ^ count) % block_calls;
    return SAMPLE_FIRST + block * block_calls + offset + 1;
}

void sampling_note_call(union slot *entry, u64 group, u64 block_calls) {
    u64 calls = entry->tally.calls;
    // Of captured calls all are looked at: their launches say which graph they are in.
    bool captured = entry->tally.bits & TALLY_CAPTURED;
    u16 comm = entry->tally.comm;
    u64 id = comm < NO_COMM ? comm_ids[comm] : 0;
    u64 next = captured ? calls + 1 : sampling_next(id, entry->tally.count, calls, block_calls);
    SLOT_STORE(entry->tally.next_sampled, next);
    if (timing_by_events() && group)
        __atomic_store_n(sampling_place(group), group, __ATOMIC_RELAXED);
}
