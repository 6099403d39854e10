// Shared memory of processes that are gone: brought into their captures by whoever comes next.
#ifndef NCCLSCOPE_SALVAGE_H
#define NCCLSCOPE_SALVAGE_H

// Helper thread, once after the start. Arenas of living processes are locked and left alone.
void salvage_dead_arenas(void);

#endif
