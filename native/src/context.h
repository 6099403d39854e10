// Lines about the process that Python hands over, for context.jsonl in its folder.
#ifndef NCCLSCOPE_CONTEXT_H
#define NCCLSCOPE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

// Appends a line; a line break is added. False: there is no more room, or nothing is recorded.
bool context_append(const char *line, size_t bytes);
// Helper thread, with the folder open: writes what is not in it yet.
void context_write(void);

#endif
