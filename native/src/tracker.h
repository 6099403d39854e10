// Follows operations from call to kernel: their times for the tally, and what is in flight.
//
// Helper thread only. It is shown every slot of every stream, in the order of each stream, first
// when the slot is met and again when an open one has ended.
#ifndef NCCLSCOPE_TRACKER_H
#define NCCLSCOPE_TRACKER_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"
#include "slot.h"

void tracker_update(u64 handle, const union slot *slot, bool first_sight);
// All streams have been looked at once more.
void tracker_pass_done(void);
// Once a second: gives up on operations whose kernels will not be reported any more. last: nothing
// more will be seen.
void tracker_expire(const struct clock_pair *now, u64 hz, bool last);

// Calls that were seen so far, on all communicators.
u64 tracker_calls(void);

// Copies what is in flight: LiveComm slots, then LiveOp slots, oldest first.
size_t tracker_live(union slot *out, size_t room);

#endif
