// Follows operations from call to kernel: their times for the totals, and what is in flight.
//
// Helper thread only. It gets every slot of every stream, in the order of each stream: first when
// the slot is visited, and again when an open one has ended.
#ifndef NCCLSCOPE_TRACKER_H
#define NCCLSCOPE_TRACKER_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"
#include "slot.h"

void tracker_update(u64 handle, const union slot *slot, bool first_sight);
// A pass over all streams has ended.
void tracker_pass_done(void);
// Once a second: gives up on operations whose kernels will not be reported any more. last: no more
// slots will come.
void tracker_expire(const struct clock_pair *now, u64 hz, bool last);

// Calls so far, on all communicators.
u64 tracker_calls(void);

// Copies what is in flight: LiveComm slots, then LiveOp slots, oldest first.
size_t tracker_live(union slot *out, size_t room);

#endif
