// Which launches are timed by CUDA events.
//
// Decided by calls: of each key (communicator, function, datatype, count) the first SAMPLE_FIRST,
// then one in each block of SAMPLE_BLOCK. A launch is timed if one of its calls is chosen. All
// ranks of a communicator must choose the same calls, or waiting cannot be told from moving data.
// So only what is equal on all of them enters: how often this key was called before (by this
// thread), and a hash of the communicator's id, the count and the block's number. The hash moves
// the choice from block to block, so that a job with a period of 64 calls is not always timed in
// the same place.
//
// Sparse: profile mode leaves out all but one of SPARSE_BLOCKS blocks of small messages. A timed
// launch takes the host about 10 µs, as long as a whole call of 64 bytes, and profile mode is
// always on. What is chosen then is chosen in the other modes, too, so ranks in different modes
// still share calls. All calls of a key have the same size, so no time weighs more than another;
// only those of a window of another mode do.
//
// Example: of 200 calls of 16 MiB, 1 to 8 are timed, one of 9 to 72, one of 73 to 136, and one of
// 137 to 200. Of 264 calls of 64 bytes in profile mode, 1 to 8 are timed and one of 9 to 264.
#ifndef NCCLSCOPE_SAMPLING_H
#define NCCLSCOPE_SAMPLING_H

#include "callback_state.h"
#include "slot.h"
#include "tally.h"

#define SAMPLE_FIRST 8u
#define SAMPLE_BLOCK 64u
#define SPARSE_BLOCKS 4u
#define SMALL_BYTES (1u << 20)  // takes 10 to 15 µs on one host

#define GROUPS_CHOSEN 16u  // a power of two
// GroupApis whose launches are to be timed, or looked at because they are captured, by hash of
// their handles. A later one takes the place of an earlier one.
extern HIDDEN u64 sampling_groups[GROUPS_CHOSEN];

// Of these, the ones of which NCCL has reported a launch.
extern HIDDEN u64 sampling_launched[GROUPS_CHOSEN];

static inline unsigned sampling_place(u64 group) { return (group ^ group >> 7) % GROUPS_CHOSEN; }

// Whether a message is small; `datatype` as NCCL names it.
bool sampling_is_small(u64 count, const char *datatype);
// The number of the first call after `calls` calls that is timed.
u64 sampling_next(u64 comm_id, u64 count, u64 calls, bool sparse);

// In the callback of every call: whether it may be chosen. The entry keeps the number of the next
// call that is, for profile mode and for the others; the one that is not in use falls behind.
static inline bool sampling_may_choose(const union slot *entry) {
    bool sparse = callback_state_drops_works();
    return entry->tally.calls >=
           (sparse ? entry->tally.next_sampled_sparse : entry->tally.next_sampled);
}
// Whether it is chosen. `group`: the GroupApi that is its parent.
COLD bool sampling_choose_call(union slot *entry, u64 group, bool is_small);

// In the callback of every launch.
static inline bool sampling_chose_group(const void *group_api) {
    u64 group = (u64)(uintptr_t)group_api;
    return group &&
           __atomic_load_n(&sampling_groups[sampling_place(group)], __ATOMIC_RELAXED) == group;
}

// ---- keys whose launches NCCL does not report ----
// NCCL 2.28 to 2.30 reports calls of symmetric kernels and of copy engines, and no launch: there
// the group is timed instead. Nothing says so beforehand, so a key is taken for such a one when the
// group of its last chosen call has ended without a launch, until one of its groups has one.
//
// In the callback of a chosen call of a collective: whether its key is such a one.
COLD bool sampling_is_silent(union slot *entry, u64 group);
// In the callback of a launch of a chosen group.
COLD void sampling_note_launch(u64 group, bool of_this_thread);

#endif
