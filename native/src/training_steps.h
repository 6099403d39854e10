// Steps of the training loop, counted from ranges as they are drained: what the live page says
// about them in every mode. Helper thread only.
#ifndef NCCLSCOPE_TRAINING_STEPS_H
#define NCCLSCOPE_TRAINING_STEPS_H

#include <stddef.h>

#include "slot.h"

// A Range slot, at first sight and again when it has ended.
void training_steps_see(u64 handle, const union slot *range);
// Ticks a second, as far as they are known.
void training_steps_use_rate(u64 hz);
// The text that ends steps; 0: none was seen.
u32 training_steps_text(void);
// A LiveStep slot where there is something to say; how many slots that is.
size_t training_steps_live(union slot *out);

#endif
