// Whole writes, and a header that was kept when it was whole.
#define _GNU_SOURCE
#include "capture_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "descriptor.h"
#include "disk_waits.h"
#include "folder.h"

#define MOST_INTERRUPTS 100  // of one write; this thread blocks signals, so none is expected

bool capture_file_write(int fd, const void *data, size_t bytes, u64 offset) {
    const char *from = data;
    for (int interrupts = 0; bytes > 0;) {
        if (!descriptor_is_ours(fd)) {
            errno = EBADF;
            return false;
        }
        struct disk_wait wait = disk_wait_begin();
        ssize_t written = pwrite(fd, from, bytes, (off_t)offset);
        disk_wait_end(wait);
        if (written < 0 && errno == EINTR && interrupts++ < MOST_INTERRUPTS) continue;
        if (written == 0) errno = EIO;
        if (written <= 0) return false;
        from += written;
        offset += (u64)written;
        bytes -= (size_t)written;
    }
    return true;
}

// The arena's header, schema and identity, as they were at first: somebody may truncate the arena.
static const char *first_header(void) {
    _Alignas(8) static char first[MAX_HEADER_BYTES];
    struct file_header *header = (struct file_header *)first;
    if (!header->header_bytes) memcpy(first, arena.base, sizeof first);
    u64 hz = ((const struct file_header *)arena.base)->clock_hz;
    if (hz) header->clock_hz = hz;
    return first;
}

// A file with the arena's header, schema and identity, so that each stands for itself. Returns its
// length.
static u64 write_header(int fd, enum file_kind kind, u32 segment) {
    char text[MAX_HEADER_BYTES];
    const char *ours = first_header();
    struct file_header header = *(const struct file_header *)ours;
    header.file_kind = (u16)kind;
    header.segment = segment;
    header.counters_offset = header.meta_offset = header.meta_slots = header.meta_drained = 0;
    header.tally_offset = header.tally_slots = 0;
    header.chunks_offset = header.chunk_slots = header.chunk_count = header.heartbeat_ns = 0;
    size_t bytes = header.identity_offset + header.identity_bytes;
    header.header_bytes = (u32)((bytes + SLOT_BYTES - 1) / SLOT_BYTES * SLOT_BYTES);
    memset(text, 0, header.header_bytes);
    memcpy(text, ours, bytes);
    memcpy(text, &header, sizeof header);
    return capture_file_write(fd, text, header.header_bytes, 0) ? header.header_bytes : 0;
}

int capture_file_create(int folder, const char *name, enum file_kind kind, u32 segment,
                        u64 *offset) {
    char unfinished[40];
    snprintf(unfinished, sizeof unfinished, "new.%s", name);
    struct disk_wait wait = disk_wait_begin();
    int fd = descriptor_keep(folder_create_file(folder, unfinished));
    if (fd < 0) return -1;
    *offset = write_header(fd, kind, segment);
    bool named = *offset && renameat(folder, unfinished, folder, name) == 0;
    disk_wait_end(wait);
    if (named) return fd;  // nobody sees a file without its header
    int error = errno;
    descriptor_close(&fd);
    unlinkat(folder, unfinished, 0);
    errno = error;
    return -1;
}
