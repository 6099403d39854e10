// Copies dead arenas to the captures they name, as the command line's salvage does.
#define _GNU_SOURCE
#include "salvage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arena.h"
#include "folder.h"

#define PARTIAL "arena.partial"
#define MOST_INTERRUPTS 100
#define OLDEST_SECONDS 86400  // memory that cannot be brought in is given up after a day

// The value of a key in an identity; NULL: not there.
static const char *identity_value(const char *base, const struct file_header *header,
                                  const char *key) {
    const char *at = base + header->identity_offset, *end = at + header->identity_bytes;
    while (at < end) {
        const char *value = at + strnlen(at, (size_t)(end - at)) + 1;
        if (value >= end) return NULL;
        size_t length = strnlen(value, (size_t)(end - value));
        if (strcmp(at, key) == 0) return value + length < end ? value : NULL;
        at = value + length + 1;
    }
    return NULL;
}

static bool is_arena(const struct file_header *header, u64 bytes) {
    return memcmp(header->magic, FORMAT_MAGIC, 8) == 0 && header->major == FORMAT_MAJOR &&
           header->file_kind == FILE_ARENA && header->chunk_slots == CHUNK_SLOTS &&
           (u64)header->identity_offset + header->identity_bytes <= MAX_HEADER_BYTES &&
           header->chunks_offset + header->chunk_count * CHUNK_BYTES <= bytes &&
           header->chunk_count <= MAX_CHUNKS && header->chunks_offset <= 64u << 20;
}

// The file is read, not mapped: who truncates it meanwhile must not kill this process.
static bool read_at(int in, char *to, u64 bytes, u64 offset) {
    for (int interrupts = 0; bytes > 0;) {
        ssize_t got = pread(in, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR && interrupts++ < MOST_INTERRUPTS) continue;
        if (got <= 0) return false;
        to += got;
        offset += (u64)got;
        bytes -= (u64)got;
    }
    return true;
}

static bool write_at(int out, const char *from, u64 bytes, u64 offset) {
    for (int interrupts = 0; bytes > 0;) {
        ssize_t written = pwrite(out, from, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR && interrupts++ < MOST_INTERRUPTS) continue;
        if (written <= 0) return false;
        from += written;
        offset += (u64)written;
        bytes -= (u64)written;
    }
    return true;
}

// The front, and the chunks in use; free ones stay holes.
static bool copy_arena(int in, const struct file_header *header, u64 bytes, int out) {
    static char piece[CHUNK_BYTES];
    if (ftruncate(out, (off_t)bytes) != 0) return false;
    for (u64 offset = 0; offset < header->chunks_offset; offset += sizeof piece) {
        u64 left = header->chunks_offset - offset;
        u64 size = left < sizeof piece ? left : sizeof piece;
        if (!read_at(in, piece, size, offset) || !write_at(out, piece, size, offset)) return false;
    }
    for (u64 chunk = 0; chunk < header->chunk_count; chunk++) {
        u64 offset = header->chunks_offset + chunk * CHUNK_BYTES;
        if (!read_at(in, piece, 1, offset)) return false;
        if (piece[0] != KIND_block && piece[0] != KIND_tallies) continue;
        if (!read_at(in, piece, sizeof piece, offset) ||
            !write_at(out, piece, sizeof piece, offset))
            return false;
    }
    return true;
}

// Into a file of its own, which gets its name when it is whole.
static bool write_copy(int in, const struct file_header *header, u64 bytes, const char *path) {
    int dir = folder_open(path);
    if (dir < 0) return false;
    int out = folder_create_file(dir, PARTIAL);
    bool copied = out >= 0 && copy_arena(in, header, bytes, out);
    if (out >= 0) close(out);
    copied = copied && renameat(dir, PARTIAL, dir, "arena") == 0;
    if (out >= 0 && !copied) unlinkat(dir, PARTIAL, 0);
    close(dir);
    return copied;
}

static bool copy_into_capture(int in, u64 bytes, const char *name) {
    _Alignas(8) static char base[MAX_HEADER_BYTES];
    const struct file_header *header = (const struct file_header *)base;
    if (!read_at(in, base, sizeof base, 0) || !is_arena(header, bytes)) return false;
    const char *capture = identity_value(base, header, "capture");
    const char *folder = identity_value(base, header, "folder");
    if (!capture || capture[0] != '/' || !folder || strcmp(folder, name) != 0) return false;
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", capture, folder) >= sizeof path) return false;
    // A capture that existed and does not any more was deleted: its arenas are deleted, too.
    bool deleted = header->segment && access(capture, F_OK) != 0 && errno == ENOENT;
    return deleted || write_copy(in, header, bytes, path);
}

// A recorder of this format made the file, or was killed before it wrote anything. Another release
// may read the others, or they are no arenas.
static bool may_be_given_up(int in) {
    static const char nothing[sizeof((struct file_header *)0)->magic];
    struct file_header header;
    if (!read_at(in, (char *)&header, sizeof header, 0)) return false;
    return memcmp(header.magic, nothing, sizeof nothing) == 0 ||
           (memcmp(header.magic, FORMAT_MAGIC, 8) == 0 && header.major == FORMAT_MAJOR);
}

static void salvage_arena(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    if (fd < 0) return;
    bool ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == getuid() &&
                info.st_size > MAX_HEADER_BYTES;
    // Without a link, somebody else has brought it in meanwhile.
    if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && info.st_nlink > 0) {
        bool too_old = time(NULL) - info.st_mtime > OLDEST_SECONDS;
        if (copy_into_capture(fd, (u64)info.st_size, name) || (too_old && may_be_given_up(fd)))
            unlinkat(dir, name, 0);
    }
    close(fd);
}

void salvage_dead_arenas(void) {
    if (arena.fd < 0) return;
    char path[sizeof arena.path];
    memcpy(path, arena.path, sizeof path);
    *strrchr(path, '/') = 0;
    DIR *entries = opendir(path);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (entry->d_name[0] != '.') salvage_arena(dirfd(entries), entry->d_name);
    closedir(entries);
}
