// Which slots go to disk while the mode changes: those of a group follow the mode that it began in,
// so that a call is never on record without its launch, nor a launch without its call. Helper
// thread only.
#ifndef NCCLSCOPE_GROUP_WRITING_H
#define NCCLSCOPE_GROUP_WRITING_H

#include "stream.h"

// Whether a slot goes to disk; to be asked once for each slot of a stream, in order. `by_mode`:
// whether slots do in the present mode.
bool group_writing_decide(struct stream *stream, const union slot *slot, u64 head, u64 handle,
                          bool by_mode);
// Whether a group decided about the slot that was asked for last, of this kind, and not the mode.
bool group_writing_follows_group(const struct stream *stream, unsigned kind);
// When a thread has taken the stream.
void group_writing_forget(struct stream *stream);

#endif
