// A guard for the arena: whoever truncates its file must not kill the job with SIGBUS.
#ifndef NCCLSCOPE_SIGBUS_GUARD_H
#define NCCLSCOPE_SIGBUS_GUARD_H

#include <stdbool.h>

// Faults inside the arena get fresh memory in place of what was taken away; all others go to
// whoever handled SIGBUS before.
void sigbus_guard_install(void);
// Whether anything was taken away so far.
bool sigbus_guard_was_needed(void);

#endif
