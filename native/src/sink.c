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
#include "clock.h"
#include "config.h"
#include "log.h"

#define STAGED_SLOTS 16384u  // 1 MB a write
#define SLOW_WRITE_NS 50000000u

static char folder[PATH_MAX];
static int meta_fd = -1, log_fd = -1, live_fd = -1, tally_fd = -1;
static u64 live_offset, tally_offset;  // behind the file header
static u64 meta_offset, log_offset;
static struct sink_totals totals;
static bool complained, slow;
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
// away.
static u32 segment, oldest_segment;
static u64 segment_slots[SINK_SEGMENTS], segment_bytes[SINK_SEGMENTS];

static void complain(const char *what) {
    if (!complained) log_note("%s %.300s: %s", what, folder, strerror(errno));
    complained = true;
}

static bool write_at(int fd, const void *data, size_t bytes, u64 offset) {
    const char *from = data;
    while (bytes > 0) {
        u64 before = clock_monotonic_ns();
        ssize_t written = pwrite(fd, from, bytes, (off_t)offset);
        if (clock_monotonic_ns() - before > SLOW_WRITE_NS) slow = true;
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        from += written;
        offset += (u64)written;
        bytes -= (size_t)written;
    }
    return true;
}

// A file with the arena's header, schema and identity, so that each stands for itself. Returns its
// length.
static u64 write_header(int fd, enum file_kind kind) {
    char text[MAX_HEADER_BYTES];
    const struct file_header *ours = (const struct file_header *)arena.base;
    struct file_header header = *ours;
    header.file_kind = (u16)kind;
    header.segment = kind == FILE_LOG ? segment : 0;
    header.counters_offset = header.meta_offset = header.meta_slots = header.meta_drained = 0;
    header.tally_offset = header.tally_slots = 0;
    header.chunks_offset = header.chunk_slots = header.chunk_count = header.heartbeat_ns = 0;
    size_t bytes = header.identity_offset + header.identity_bytes;
    header.header_bytes = (u32)((bytes + SLOT_BYTES - 1) / SLOT_BYTES * SLOT_BYTES);
    memset(text, 0, header.header_bytes);
    memcpy(text, arena.base, bytes);
    memcpy(text, &header, sizeof header);
    return write_at(fd, text, header.header_bytes, 0) ? header.header_bytes : 0;
}

static int create_file(const char *name, enum file_kind kind, u64 *offset) {
    char path[PATH_MAX + 32], unfinished[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(unfinished, sizeof unfinished, "%s/new.%s", folder, name);
    unlink(unfinished);
    int fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    *offset = write_header(fd, kind);
    if (*offset && rename(unfinished, path) == 0)
        return fd;  // nobody sees a file without its header
    close(fd);
    unlink(unfinished);
    return -1;
}

static bool make_directories(void) {
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(folder, 0700) != 0 && errno != EEXIST;
        *slash = '/';
        if (failed) return false;
    }
    return mkdir(folder, 0700) == 0 || errno == EEXIST;
}

static void segment_name(u32 number, char *out, size_t size) {
    snprintf(out, size, "log.%06u", number);
}

bool sink_open(const char *process_folder) {
    if ((size_t)snprintf(folder, sizeof folder, "%s/%s", config.capture_dir, process_folder) >=
        sizeof folder) {
        errno = ENAMETOOLONG;
        complain("cannot create");
        return false;
    }
    if (!make_directories()) {
        complain("cannot create");
        return false;
    }
    meta_fd = create_file("meta", FILE_META, &meta_offset);
    if (meta_fd < 0) {
        complain("cannot write to");
        return false;
    }
    folders++;
    ((struct file_header *)arena.base)->segment = 1;  // tells salvage that the capture existed
    if (kept_count && write_at(meta_fd, kept_meta, kept_count * SLOT_BYTES, meta_offset))
        meta_offset += kept_count * SLOT_BYTES;
    return true;
}

bool sink_is_open(void) { return meta_fd >= 0; }

u32 sink_folders(void) { return folders; }

bool sink_write_text(const char *name, const char *data, size_t bytes, u64 offset) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool written = write_at(fd, data, bytes, offset);
    close(fd);
    return written;
}

static void remove_oldest_segment(void) {
    char name[32], path[PATH_MAX + 32];
    segment_name(oldest_segment, name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    arena_count_many(COUNTER_rotated_out, 0, segment_slots[oldest_segment % SINK_SEGMENTS]);
    oldest_segment++;
}

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
    log_fd = create_file(name, FILE_LOG, &log_offset);
    segment_slots[segment % SINK_SEGMENTS] = 0;
    if (log_fd < 0) complain("cannot write to");
    return log_fd >= 0;
}

static void rotate(void) {
    close(log_fd);
    log_fd = -1;
    segment_bytes[segment % SINK_SEGMENTS] = log_offset;
    log_offset = 0;
    segment++;
    while (oldest_segment < segment &&
           (segment - oldest_segment >= SINK_SEGMENTS ||
            bytes_on_disk() + segment_limit() > config.disk_limit_bytes))
        remove_oldest_segment();
    segment_slots[segment % SINK_SEGMENTS] = 0;
}

void sink_flush(void) {
    if (staged_count == 0) return;
    size_t bytes = (size_t)staged_count * SLOT_BYTES;
    if ((log_fd >= 0 || open_segment()) && write_at(log_fd, staged, bytes, log_offset)) {
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
        if (kind != KIND_comm && kind != KIND_comm_end && kind != KIND_text) continue;
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
    if (!write_at(meta_fd, slots, count * SLOT_BYTES, meta_offset)) {
        complain("cannot write to");
        return false;
    }
    meta_offset += count * SLOT_BYTES;
    keep_meta(slots, count);
    return true;
}

static void close_file(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void sink_look_after_files(void) {
    struct stat info;
    if (meta_fd < 0 || fstat(meta_fd, &info) != 0 || info.st_nlink > 0) return;
    log_note("%.300s was deleted; what was written before is gone", folder);
    // What was lost before, or rotated away, has been counted.
    for (u32 number = oldest_segment; number <= segment; number++)
        arena_count_many(COUNTER_write_failed, 0, segment_slots[number % SINK_SEGMENTS]);
    close_file(&meta_fd);
    close_file(&log_fd);
    close_file(&live_fd);
    close_file(&tally_fd);
    log_offset = 0;
    oldest_segment = ++segment;
    segment_slots[segment % SINK_SEGMENTS] = 0;
}

void sink_write_page(enum file_kind kind, const void *data, size_t bytes, size_t offset) {
    if (!sink_is_open()) return;
    bool live = kind == FILE_LIVE;
    int *fd = live ? &live_fd : &tally_fd;
    u64 *start = live ? &live_offset : &tally_offset;
    if (*fd < 0) *fd = create_file(live ? "live" : "tally", kind, start);
    if (*fd >= 0) write_at(*fd, data, bytes, *start + offset);
}

bool sink_is_slow(void) { return slow; }

struct sink_totals sink_totals(void) { return totals; }
