// Files of the capture: each begins with the arena's header, schema and identity, so that each
// stands for itself. Used by the helper thread alone.
#ifndef NCCLSCOPE_CAPTURE_FILE_H
#define NCCLSCOPE_CAPTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "ncclscope/format.h"

// A new file of the process's folder; nobody sees it without its header. `segment`: its number, of
// a log. `offset` becomes the length of the header. -1 with errno.
int capture_file_create(int folder, const char *name, enum file_kind kind, u32 segment,
                        u64 *offset);
// All bytes, or false with errno. EBADF: the job closed the file.
bool capture_file_write(int fd, const void *data, size_t bytes, u64 offset);

#endif
