// Ranges: what the program says it is doing, in the stream of the thread that says it.
//
// Producers are NVTX (nvtx.c) and Python (attach.c). Each thread has a nest: the ranges that it has
// pushed and not popped yet. Every NVTX domain is a stack of its own, and so is Python, so a pop
// ends the innermost range of its own stack, whatever lies inside.
//
// Recording begins with the first communicator. What is open then is remembered, and written with
// its own start when the thread gets its stream. Ranges are the first to go when memory is short.
#ifndef NCCLSCOPE_RANGE_H
#define NCCLSCOPE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "range_text.h"
#include "writer.h"

#define PYTHON_STACK 0xFFFFu      // NVTX domains have lower numbers
#define RANGE_PAYLOAD_BYTES 112u  // 16 in the Range itself and three pieces of 32

struct range {
    u32 text;              // number; 0: `unplaced` has the text, or there is none
    const char *unplaced;  // a text that found no place in the table
    size_t unplaced_bytes;
    u32 category;
    u16 domain;
    u8 source;          // enum range_source
    bool is_nccl_call;  // newer interfaces report it as an event
    u8 payload_type;    // enum range_payload
    u32 schema;
    const void *payload;  // PAYLOAD_SCHEMA: payload_bytes of it, else eight
    size_t payload_bytes;
};

// Before recording, ranges are only remembered; a producer says that there will be some.
void range_expect(void);
// At the first init, once streams can be taken; `wanted`: whether ranges are to be recorded.
void range_begin(bool wanted);
// NCCL reports calls as events from this interface on, and its own ranges of calls add nothing.
void range_know_interface(unsigned version);
void range_in_fork_child(void);

// All are for any thread at any time. Depth of the range among all of the thread; -1: none.
int range_push(const struct range *range, unsigned stack);
int range_pop(unsigned stack, const struct range *payload);
void range_mark(const struct range *range);
// A range that any thread may end by the number that comes back; 0: not recorded.
u64 range_start(const struct range *range);
void range_end(u64 number, const struct range *payload);

// When a thread has got its stream: writes the ranges that it has opened before.
COLD void range_write_remembered(struct writer *writer);

#endif
