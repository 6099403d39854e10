// Shared memory of processes that are gone: brought into their captures by whoever comes next.
#ifndef NCCLSCOPE_REAP_H
#define NCCLSCOPE_REAP_H

// Helper thread, once after the start. Arenas of living processes are locked and left alone.
void reap_dead_arenas(void);

#endif
