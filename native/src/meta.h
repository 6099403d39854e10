// Metadata: communicators, strings, threads, clock pairs, counters. Never in a stream, so never
// rotated away.
//
// A ring of slots in the arena that any thread may append to; the helper moves it to the capture's
// meta file.
#ifndef NCCLSCOPE_META_H
#define NCCLSCOPE_META_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"
#include "slot.h"

// Appends a filled slot; its head is set here. False (and counted) when the ring is full.
bool meta_append(enum slot_kind kind, const union slot *body);
// Whether what can wait may be appended: at least half of the ring is free.
bool meta_has_spare_room(void);
void meta_text(enum text_owner what, unsigned owner, const char *text, size_t length);
void meta_sync(const struct clock_pair *pair, u64 slots_written, u64 bytes_written);

// Helper only: copies up to `room` committed slots in order; meta_release lets the ring reuse them.
size_t meta_peek(union slot *out, size_t room);
void meta_release(size_t slots);
// Helper only: whether all that was appended has been released.
bool meta_is_empty(void);

#endif
