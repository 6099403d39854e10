// Descriptors that stay ours. A job may have closed its standard streams, and print into whatever
// gets their numbers. Or it closes descriptors that it did not open, as daemons do, and gets their
// numbers for files of its own: those must neither be written to nor closed. Used by the thread
// that creates the arena, and then by the helper thread alone.
#ifndef NCCLSCOPE_DESCRIPTOR_H
#define NCCLSCOPE_DESCRIPTOR_H

#include <stdbool.h>

// The same file under a number above the standard streams', remembered; -1 with errno. -1 stays -1.
int descriptor_keep(int fd);
// Whether it still is what was kept; true of what was not.
bool descriptor_is_ours(int fd);
// Opens what was kept again, by its path, if it is not ours any more. False: it is not there.
bool descriptor_reopen(int *fd, const char *path, int flags);
// Closes it if it is ours, and forgets it; the descriptor becomes -1.
void descriptor_close(int *fd);

#endif
