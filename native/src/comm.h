// Communicators as the recorder sees them: numbers. A context is the nonce, CONTEXT_STREAM and the
// number in one word.
#ifndef NCCLSCOPE_COMM_H
#define NCCLSCOPE_COMM_H

#include "arena.h"
#include "nccl_abi.h"
#include "slot.h"
#include "stream.h"

struct comm_description {
    unsigned version;  // of the interface
    bool known;        // interfaces v1 to v3 say nothing about the communicator
    u64 id;
    const char *name;  // the user's pointer, read here only
    i32 nodes, ranks, rank;
    u32 mask;
};

// By number.
extern HIDDEN i32 comm_ranks[NO_COMM];
extern u8 comm_versions[NO_COMM];  // of the interface
extern u64 comm_ids[NO_COMM];      // equal on all ranks
bool comm_is_open(u32 number);
bool comm_reports_kernels(u32 number);
extern u32 comm_count;

// A new communicator's context.
void *comm_open(const struct comm_description *description);
void comm_close(void *context);
u32 comm_open_count(void);

static inline bool comm_owns_context(const void *context) {
    return (u64)(uintptr_t)context >> INDEX_BITS ==
           (callback_state.nonce << STREAM_BITS | CONTEXT_STREAM);
}
// The number in any process's context, NO_COMM in anything else.
static inline u32 comm_number_in(const void *context) {
    u64 bits = (u64)(uintptr_t)context;
    if (!(bits >> 63) || ((bits >> INDEX_BITS) & CONTEXT_STREAM) != CONTEXT_STREAM) return NO_COMM;
    u64 number = bits & INDEX_MASK;
    return number < NO_COMM ? (u32)number : NO_COMM;
}
// NO_COMM; counted where the context is not this process's.
COLD u32 comm_of_other_context(const void *context, unsigned event_bit);
static inline u32 comm_of_context(const void *context, unsigned event_bit) {
    u64 number = (u64)(uintptr_t)context - callback_state.first_context;
    return LIKELY(number < NO_COMM) ? (u32)number : comm_of_other_context(context, event_bit);
}

#endif
