// Notices a disk that is slow: calls that wait for it, not calls that wait for a CPU, before or
// after a short sleep. Used by the helper thread alone.
#ifndef NCCLSCOPE_DISK_WAITS_H
#define NCCLSCOPE_DISK_WAITS_H

#include <stdbool.h>

#include "ncclscope/format.h"

struct disk_wait {
    u64 began_ns;
    u64 awake_ns;  // how long this thread had run or been ready to run before; 0: not known
    long blocked;  // how often this thread had gone to sleep before; negative: not known
};

// Around one call or a few that go to the disk.
struct disk_wait disk_wait_begin(void);
void disk_wait_end(struct disk_wait wait);
// What disk_wait_end makes of a call that went to sleep, and neither ran nor was ready to for
// `waited_ns`. The kernel does not count for a thread the time in which the host took its CPU, or
// in which the process was stopped or frozen. That looks like a wait for the disk, but
// seldom happens twice in a row.
void disk_waited(u64 began_ns, u64 ended_ns, u64 waited_ns);
// Whether two calls soon after each other have ever taken long, or one very long: then the arena
// must hold more.
bool disk_is_slow(void);

#endif
