// The helper thread: moves slots from the arena to the sink, keeps spare memory ready, pairs the
// clocks, and writes a heartbeat every second.
#ifndef NCCLSCOPE_HELPER_H
#define NCCLSCOPE_HELPER_H

#include <stdbool.h>

#include "ncclscope/format.h"

// process_folder must stay valid. False: no thread could be started; the arena then fills and keeps
// what fits.
bool helper_start(const char *process_folder);
// Makes the helper look now instead of at its next pass.
void helper_wake(void);
// At exit: waits until everything recorded so far is on disk, at most that long.
void helper_finish(u64 wait_ns);

#endif
