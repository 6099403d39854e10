// The disk sink: capture directory, meta file and log segments of this process. Used by the helper
// thread alone.
#ifndef NCCLSCOPE_SINK_H
#define NCCLSCOPE_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "stream.h"

#define SINK_SEGMENTS 16u  // kept at a time, whatever the limit: readers map them all

// What a segment may hold: small enough for rotation to take little at once, and large enough for
// all of them to reach the limit. Readers number the slots of a file in 32 bits.
static inline u64 sink_segment_bytes(u64 disk_limit) {
    u64 bytes = disk_limit / 8;
    if (bytes > 256ull << 20) bytes = 256ull << 20;
    if (bytes < disk_limit / SINK_SEGMENTS) bytes = disk_limit / SINK_SEGMENTS;
    if (bytes > 128ull << 30) bytes = 128ull << 30;
    return bytes < 1ull << 20 ? 1ull << 20 : bytes;
}

// Creates directory and files; false when that is not possible now.
bool sink_open(const char *process_folder);
bool sink_is_open(void);
// Puts bytes of a plain text file into the process's folder, at that offset. False: not written.
bool sink_write_text(const char *name, const char *data, size_t bytes, u64 offset);
// Counts up with every folder that is begun: what was written before is in another one.
u32 sink_folders(void);
// Once a second: finds files that somebody deleted, cut or replaced. What was in them counts as
// lost, and they are begun anew: meta by sink_open, the others when they are written next.
void sink_look_after_files(void);

// Log: slots of one stream, as a run of neighbours (KIND_block, from index `first`) or as newer
// versions of slots written before (KIND_updates, all at or after `first`).
void sink_begin(enum slot_kind kind, const struct stream *stream, u64 first);
// Continues a run of neighbours, or begins one where `index` is not the next.
void sink_continue(const struct stream *stream, u64 index);
void sink_slot(const union slot *slot, u64 head);
void sink_end(void);
// Writes what was gathered. What the disk refuses is counted, not kept.
void sink_flush(void);

// Appends metadata; false: not written, try again.
bool sink_meta(const union slot *slots, size_t count);

// Small files that are rewritten in place: live page and tally. sink_open_page begins one where
// there is none; `is_new`: all of it must be written. False: not possible now, try again.
bool sink_open_page(enum file_kind kind, bool *is_new);
bool sink_write_page(enum file_kind kind, const void *data, size_t bytes, size_t offset);

struct sink_totals {
    u64 slots, bytes;  // of the log, written so far
};
struct sink_totals sink_totals(void);

#endif
