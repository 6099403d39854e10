// Writes the capture's files. Errors are values here: a full disk costs slots, which are counted,
// and nothing else.
#define _GNU_SOURCE
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"
#include "capture_file.h"
#include "clock.h"
#include "config.h"
#include "descriptor.h"
#include "disk_waits.h"
#include "folder.h"
#include "log.h"

#define STAGED_SLOTS 16384u  // 1 MB a write
#define MOST_NOTES 16u       // about files that were deleted, cut or replaced

static char folder[PATH_MAX];
static const char *folder_name;  // its last part
static int folder_fd = -1, meta_fd = -1, log_fd = -1;
static u64 meta_offset, log_offset;
// Small files that are rewritten in place.
static struct page {
    const char *name;
    int fd;
    u64 start;  // behind the file header
    u64 end;    // of what was written
} live_page = {"live", -1, 0, 0}, tally_page = {"tally", -1, 0, 0};
static struct sink_totals totals;
static bool complained;
static u32 folders;

// Metadata that a capture cannot be read without, in case its directory vanishes.
static union slot *kept_meta;
static size_t kept_count, kept_room;

static union slot staged[STAGED_SLOTS];
static u32 staged_count, block_at;
static struct {
    enum slot_kind kind;
    const struct stream *stream;
    u64 next;
    bool open;
} block;

// Segments on disk: [oldest_segment, segment]; slots in each, for the count of what rotation takes
// away, and bytes of each that is full.
static u32 segment, oldest_segment;
static u64 segment_slots[SINK_SEGMENTS], segment_bytes[SINK_SEGMENTS];

static void complain(const char *what) {
    if (!complained) log_note("%s %.300s: %s", what, folder, folder_problem(errno));
    complained = true;
}

static void segment_name(u32 number, char *out, size_t size) {
    snprintf(out, size, "log.%06u", number);
}

static bool open_folder(const char *process_folder) {
    if (folder_fd >= 0) return true;
    if ((size_t)snprintf(folder, sizeof folder, "%s/%s", config.capture_dir, process_folder) >=
        sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    folder_fd = descriptor_keep(folder_open(folder));
    return folder_fd >= 0;
}

// A capture cannot be read without what is kept, so a file without it is none.
static bool begin_meta(void) {
    meta_fd = capture_file_create(folder_fd, "meta", FILE_META, 0, &meta_offset);
    if (meta_fd < 0) return false;
    if (kept_count &&
        !capture_file_write(meta_fd, kept_meta, kept_count * SLOT_BYTES, meta_offset)) {
        descriptor_close(&meta_fd);
        return false;
    }
    meta_offset += kept_count * SLOT_BYTES;
    return true;
}

bool sink_open(const char *process_folder) {
    folder_name = process_folder;
    if (!open_folder(process_folder)) {
        complain("cannot create");
        return false;
    }
    if (!begin_meta()) {
        complain("cannot write to");
        descriptor_close(&folder_fd);  // another one may be there next time
        return false;
    }
    folders++;
    ((struct file_header *)arena.base)->segment = 1;  // tells salvage that the capture existed
    return true;
}

bool sink_is_open(void) { return meta_fd >= 0; }

u32 sink_folders(void) { return folders; }

bool sink_write_text(const char *name, const char *data, size_t bytes, u64 offset) {
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool written = capture_file_write(fd, data, bytes, offset);
    close(fd);
    return written;
}

static void remove_oldest_segment(void) {
    char name[32];
    segment_name(oldest_segment, name, sizeof name);
    struct disk_wait wait = disk_wait_begin();
    unlinkat(folder_fd, name, 0);
    disk_wait_end(wait);
    arena_count_many(COUNTER_rotated_out, 0, segment_slots[oldest_segment % SINK_SEGMENTS]);
    oldest_segment++;
}

static void look_after_segment(u32 number);
static bool handles_are_ours(void);
static void open_again(void);

static u64 segment_limit(void) { return sink_segment_bytes(config.disk_limit_bytes); }

static u64 bytes_on_disk(void) {
    u64 sum = log_offset;
    for (u32 number = oldest_segment; number < segment; number++)
        sum += segment_bytes[number % SINK_SEGMENTS];
    return sum;
}

static bool open_segment(void) {
    char name[32];
    segment_name(segment, name, sizeof name);
    log_fd = capture_file_create(folder_fd, name, FILE_LOG, segment, &log_offset);
    segment_slots[segment % SINK_SEGMENTS] = 0;
    if (log_fd < 0) complain("cannot write to");
    return log_fd >= 0;
}

static void rotate(void) {
    descriptor_close(&log_fd);
    segment_bytes[segment % SINK_SEGMENTS] = log_offset;
    log_offset = 0;
    segment++;
    while (oldest_segment < segment &&
           (segment - oldest_segment >= SINK_SEGMENTS ||
            bytes_on_disk() + segment_limit() > config.disk_limit_bytes))
        remove_oldest_segment();
    segment_slots[segment % SINK_SEGMENTS] = 0;
}

// Whether somebody cut a file that we append to. Writing on would leave a hole in it, and no trace.
static bool was_cut(int fd, u64 bytes) {
    struct stat info;
    return fd >= 0 && fstat(fd, &info) == 0 && (u64)info.st_size < bytes;
}

void sink_flush(void) {
    if (staged_count == 0) return;
    if (!handles_are_ours()) open_again();
    if (was_cut(log_fd, log_offset)) look_after_segment(segment);
    size_t bytes = (size_t)staged_count * SLOT_BYTES;
    if ((log_fd >= 0 || open_segment()) && capture_file_write(log_fd, staged, bytes, log_offset)) {
        log_offset += bytes;
        totals.slots += staged_count;
        totals.bytes += bytes;
        segment_slots[segment % SINK_SEGMENTS] += staged_count;
        if (log_offset >= segment_limit()) rotate();
    } else {
        if (log_fd >= 0) complain("cannot write to");
        arena_count_many(COUNTER_write_failed, 0, staged_count);
    }
    staged_count = 0;
}

static void open_block(void) {
    block_at = staged_count++;
    union slot *slot = &staged[block_at];
    memset(slot, 0, sizeof *slot);
    slot->block.first = block.next;
    slot->block.stream = (u32)(block.stream - streams);
    slot->block.written = clock_ticks();
    slot->block.tid = block.stream->tid;
    memcpy(slot->block.thread_name, block.stream->thread_name, sizeof slot->block.thread_name);
    slot->head = head_word(block.kind, 0, 0, block.next);
    block.open = true;
}

static void close_block(void) {
    if (!block.open) return;
    block.open = false;
    staged[block_at].block.count = staged_count - block_at - 1;
    if (staged[block_at].block.count == 0) staged_count = block_at;
}

void sink_begin(enum slot_kind kind, const struct stream *stream, u64 first) {
    block.kind = kind;
    block.stream = stream;
    block.next = first;
}

void sink_continue(const struct stream *stream, u64 index) {
    if (block.open && block.kind == KIND_block && block.stream == stream && block.next == index)
        return;
    close_block();
    sink_begin(KIND_block, stream, index);
}

void sink_slot(const union slot *slot, u64 head) {
    if (staged_count + 2 > STAGED_SLOTS) {
        close_block();
        sink_flush();
    }
    if (!block.open) open_block();
    slot_copy(&staged[staged_count++], slot, head);
    if (block.kind == KIND_block) block.next++;
}

void sink_end(void) { close_block(); }

static void keep_meta(const union slot *slots, size_t count) {
    for (size_t i = 0; i < count; i++) {
        u8 kind = head_kind(slots[i].head);
        if (kind != KIND_comm && kind != KIND_comm_end && kind != KIND_text && kind != KIND_zoom &&
            kind != KIND_event_clock)
            continue;
        if (kept_count == kept_room) {
            size_t room = kept_room ? kept_room * 2 : 256;
            void *grown = realloc(kept_meta, room * sizeof *kept_meta);
            if (!grown) return;
            kept_meta = grown;
            kept_room = room;
        }
        kept_meta[kept_count++] = slots[i];
    }
}

bool sink_meta(const union slot *slots, size_t count) {
    if (count == 0) return true;
    if (!handles_are_ours() || was_cut(meta_fd, meta_offset)) {
        sink_look_after_files();
        return false;
    }
    if (!capture_file_write(meta_fd, slots, count * SLOT_BYTES, meta_offset)) {
        complain("cannot write to");
        return false;
    }
    meta_offset += count * SLOT_BYTES;
    keep_meta(slots, count);
    return true;
}

// ---- files that somebody else deletes, cuts or replaces ----
static void note_harm(const char *name) {
    static u32 notes;
    if (notes++ >= MOST_NOTES) return;
    if (name) log_note("%.300s/%s was deleted, cut or replaced", folder, name);
    else log_note("%.300s was deleted; what was written before is gone", folder);
}

// Bytes that are left of one of our files; 0: it is not there any more. `fd`: -1 if it is closed.
static u64 bytes_left(const char *name, int fd, u64 bytes) {
    struct stat there, own;
    if (fstatat(folder_fd, name, &there, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : bytes;  // it cannot be said now
    if (!S_ISREG(there.st_mode)) return 0;
    if (fd >= 0 && fstat(fd, &own) == 0 &&
        (own.st_ino != there.st_ino || own.st_dev != there.st_dev))
        return 0;
    return (u64)there.st_size < bytes ? (u64)there.st_size : bytes;
}

static bool is_harmed(const char *name, int fd, u64 bytes) {
    if (fd < 0 || bytes_left(name, fd, bytes) == bytes) return false;
    note_harm(name);
    return true;
}

// What is gone of a log segment counts as lost.
static void look_after_segment(u32 number) {
    char name[32];
    bool current = number == segment;
    u64 *slots = &segment_slots[number % SINK_SEGMENTS];
    u64 bytes = current ? log_offset : segment_bytes[number % SINK_SEGMENTS];
    if (*slots == 0) return;
    segment_name(number, name, sizeof name);
    u64 left = bytes_left(name, current ? log_fd : -1, bytes);
    if (left == bytes) return;
    u64 slots_left = left > bytes - *slots * SLOT_BYTES
                         ? (left - (bytes - *slots * SLOT_BYTES)) / SLOT_BYTES
                         : 0;
    note_harm(name);
    arena_count_many(COUNTER_write_failed, 0, *slots - slots_left);
    *slots = slots_left;
    if (current) rotate();
    segment_bytes[number % SINK_SEGMENTS] = left;
}

static void close_all(void) {
    descriptor_close(&meta_fd);
    descriptor_close(&log_fd);
    descriptor_close(&live_page.fd);
    descriptor_close(&tally_page.fd);
    descriptor_close(&folder_fd);
}

static void lose_folder(void) {
    note_harm(NULL);
    // What was lost before, or rotated away, has been counted.
    for (u32 number = oldest_segment; number <= segment; number++)
        arena_count_many(COUNTER_write_failed, 0, segment_slots[number % SINK_SEGMENTS]);
    close_all();
    log_offset = 0;
    oldest_segment = ++segment;
    segment_slots[segment % SINK_SEGMENTS] = 0;
}

// A folder that was moved keeps its files, and is written to where it is. Not every file system
// says of a deleted folder that it has no links.
static bool folder_is_gone(void) {
    struct stat info;
    if (fstat(folder_fd, &info) != 0) return false;
    if (info.st_nlink == 0) return true;
    return bytes_left("meta", meta_fd, meta_offset) == 0 && stat(folder, &info) != 0 &&
           (errno == ENOENT || errno == ENOTDIR);
}

// A server forgot its handles.
static bool handles_are_stale(void) {
    struct stat info;
    return fstat(folder_fd, &info) != 0 && errno == ESTALE;
}

static bool handles_are_ours(void) {
    return descriptor_is_ours(folder_fd) && descriptor_is_ours(meta_fd) &&
           descriptor_is_ours(log_fd) && descriptor_is_ours(live_page.fd) &&
           descriptor_is_ours(tally_page.fd);
}

// Files may be there all the same: they are looked for by name. The log goes on in a new one.
static void open_again(void) {
    static bool noted;
    if (!noted && !handles_are_ours()) {
        log_note("the job closed descriptors of the recorder, which opens its files again");
        noted = true;
    }
    close_all();
    sink_open(folder_name);  // else the helper thread tries again
    rotate();
}

void sink_look_after_files(void) {
    if (meta_fd < 0) return;
    if (!handles_are_ours() || handles_are_stale()) {
        open_again();
        return;
    }
    if (folder_is_gone()) {
        lose_folder();
        return;
    }
    for (u32 number = oldest_segment, last = segment; number <= last; number++)
        look_after_segment(number);
    if (is_harmed(live_page.name, live_page.fd, live_page.end)) descriptor_close(&live_page.fd);
    if (is_harmed(tally_page.name, tally_page.fd, tally_page.end)) descriptor_close(&tally_page.fd);
    if (is_harmed("meta", meta_fd, meta_offset)) descriptor_close(&meta_fd);
}

// ---- small files that are rewritten in place ----
static struct page *page_of(enum file_kind kind) {
    return kind == FILE_LIVE ? &live_page : &tally_page;
}

bool sink_open_page(enum file_kind kind, bool *is_new) {
    struct page *page = page_of(kind);
    *is_new = page->fd < 0;
    if (!sink_is_open()) return false;
    if (page->fd >= 0) return true;
    page->fd = capture_file_create(folder_fd, page->name, kind, 0, &page->start);
    page->end = page->start;
    if (page->fd < 0) complain("cannot write to");
    return page->fd >= 0;
}

bool sink_write_page(enum file_kind kind, const void *data, size_t bytes, size_t offset) {
    struct page *page = page_of(kind);
    if (page->fd < 0) return false;
    if (!capture_file_write(page->fd, data, bytes, page->start + offset)) {
        complain("cannot write to");
        return false;
    }
    u64 end = page->start + offset + bytes;
    if (end > page->end) page->end = end;
    return true;
}

struct sink_totals sink_totals(void) { return totals; }
