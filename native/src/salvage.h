// Shared memory of dead processes: the next process of the same user copies it into their captures.
#ifndef NCCLSCOPE_SALVAGE_H
#define NCCLSCOPE_SALVAGE_H

// Helper thread, once after the start. Arenas of living processes are locked and left alone.
void salvage_dead_arenas(void);

#endif
