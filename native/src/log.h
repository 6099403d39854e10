// Words to the user, through NCCL's own logger: shown with NCCL_DEBUG=INFO
// NCCL_DEBUG_SUBSYS=PROFILE.
#ifndef NCCLSCOPE_LOG_H
#define NCCLSCOPE_LOG_H

#include "nccl_abi.h"

// Init and finalize only: the logger takes a lock. Interfaces v1 to v3 have none.
void log_use(nccl_log_fn log);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
// From any thread: kept in the metadata, and logged at the next init or finalize.
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_pending(void);
// In the metadata alone: what log_line has said already.
void log_keep(const char *what, const char *text);

#endif
