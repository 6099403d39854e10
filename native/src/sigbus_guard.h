// Keeps the job alive when somebody truncates the arena's file: a SIGBUS would kill it.
#ifndef NCCLSCOPE_SIGBUS_GUARD_H
#define NCCLSCOPE_SIGBUS_GUARD_H

#include <stdbool.h>

// Faults inside the arena get fresh memory in place of what was taken away; all others go to the
// handler that was installed before.
void sigbus_guard_install(void);
// Whether any memory was taken away so far.
bool sigbus_guard_was_needed(void);

#endif
