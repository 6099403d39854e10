// The live page and the tally file: what a process is doing, in every mode, a second behind.
#ifndef NCCLSCOPE_LIVE_H
#define NCCLSCOPE_LIVE_H

#include <stdbool.h>

#include "clock.h"

// Helper thread, once a second and at the end (ended: the process exits by itself). False: not all
// of it was written.
bool live_write(const struct clock_pair *now, bool ended);

#endif
