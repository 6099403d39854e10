// The live page and the tally file: what a process is doing, in every mode, a second behind.
#ifndef NCCLSCOPE_LIVE_H
#define NCCLSCOPE_LIVE_H

#include "clock.h"

// Helper thread, once a second and at the end (ended: the process exits by itself).
void live_write(const struct clock_pair *now, bool ended);

#endif
