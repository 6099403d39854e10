// Chooses calls.
#include "sampling.h"

#include <stdlib.h>

#include "comm.h"
#include "timing_policy.h"

_Alignas(64) u64 sampling_groups[GROUPS_CHOSEN];
u64 sampling_launched[GROUPS_CHOSEN];

static u64 mixed(u64 value) {  // splitmix64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

// ncclFloat32, ncclBfloat16, ncclFloat8e4m3: the first number is the width in bits. It decides how
// often a call is timed and nothing else, so what has less than 8 bits or no number counts as one.
static u64 bytes_of(const char *datatype) {
    while (datatype && *datatype && (*datatype < '0' || *datatype > '9')) datatype++;
    u64 bits = datatype ? strtoul(datatype, NULL, 10) : 0;
    return bits >= 8 ? bits / 8 : 1;
}

bool sampling_is_small(u64 count, const char *datatype) {
    return count <= SMALL_BYTES / bytes_of(datatype);
}

static u64 hash_of(u64 comm_id, u64 count, u64 number) {
    return mixed(mixed(comm_id + 0x9E3779B97F4A7C15u * number) ^ count);
}

// Of the SPARSE_BLOCKS blocks around it one is used.
static bool is_used(u64 comm_id, u64 count, u64 block) {
    return hash_of(~comm_id, count, block / SPARSE_BLOCKS) % SPARSE_BLOCKS == block % SPARSE_BLOCKS;
}

u64 sampling_next(u64 comm_id, u64 count, u64 calls, bool sparse) {
    if (calls < SAMPLE_FIRST) return calls + 1;
    for (u64 block = (calls - SAMPLE_FIRST) / SAMPLE_BLOCK;; block++) {
        if (sparse && !is_used(comm_id, count, block)) continue;
        u64 offset = hash_of(comm_id, count, block) % SAMPLE_BLOCK;
        u64 next = SAMPLE_FIRST + block * SAMPLE_BLOCK + offset + 1;
        if (next > calls) return next;
    }
}

bool sampling_choose_call(union slot *entry, u64 group, bool is_small) {
    u64 calls = entry->tally.calls, count = entry->tally.count;
    // Of captured calls all are looked at: their launches say which graph they are in.
    bool captured = entry->tally.bits & TALLY_CAPTURED;
    bool in_profile_mode = callback_state_drops_works();
    bool sparse = in_profile_mode && is_small;
    u16 comm = entry->tally.comm;
    u64 id = comm < NO_COMM ? comm_ids[comm] : 0;
    bool chosen = captured || sampling_next(id, count, calls - 1, sparse) == calls;
    u64 next = captured ? calls + 1 : sampling_next(id, count, calls, sparse);
    if (in_profile_mode) SLOT_STORE(entry->tally.next_sampled_sparse, next);
    else SLOT_STORE(entry->tally.next_sampled, next);
    if (chosen && timing_by_events() && group)
        __atomic_store_n(&sampling_groups[sampling_place(group)], group, __ATOMIC_RELAXED);
    return chosen;
}

// ---- keys whose launches NCCL does not report ----
// In an entry's chosen_group: the top bit, which every handle has, is 0 where the key is silent.
#define HANDLE_TOP (1ull << 63)

// A communicator that does not block launches from another thread, after its group has ended: what
// is timed around a group would be nothing.
static bool launches_elsewhere;

void sampling_note_launch(u64 group, bool of_this_thread) {
    __atomic_store_n(&sampling_launched[sampling_place(group)], group, __ATOMIC_RELAXED);
    if (!of_this_thread) __atomic_store_n(&launches_elsewhere, true, __ATOMIC_RELAXED);
}

bool sampling_is_silent(union slot *entry, u64 group) {
    u64 last = __atomic_load_n(&entry->tally.chosen_group, __ATOMIC_RELAXED);
    bool silent = last && !(last & HANDLE_TOP);
    u64 before = last | HANDLE_TOP;
    unsigned place = sampling_place(before);
    bool is_kept = __atomic_load_n(&sampling_groups[place], __ATOMIC_RELAXED) == before;
    if (last && before != group && is_kept)
        silent = __atomic_load_n(&sampling_launched[place], __ATOMIC_RELAXED) != before;
    // A call without data has no launch and takes no time.
    if (entry->tally.count == 0 || __atomic_load_n(&launches_elsewhere, __ATOMIC_RELAXED))
        silent = false;
    SLOT_STORE(entry->tally.chosen_group, silent ? group & ~HANDLE_TOP : group);
    return silent;
}
