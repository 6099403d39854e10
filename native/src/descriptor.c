// A table of what the kernel calls each file that was kept.
#define _GNU_SOURCE
#include "descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 8u  // arena, its lock, folder, metadata, log, two pages

static struct kept {
    int fd;  // 0: free
    dev_t device;
    ino_t inode;  // 0: not known
} table[MOST];

static struct kept *find(int fd) {
    for (unsigned i = 0; i < MOST; i++)
        if (table[i].fd == fd) return &table[i];
    return NULL;
}

static struct kept described(int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0) return (struct kept){.fd = fd};
    return (struct kept){fd, info.st_dev, info.st_ino};
}

static int above_streams(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return moved;
}

int descriptor_keep(int fd) {
    fd = above_streams(fd);
    if (fd < 0) return -1;
    struct kept *place = find(fd);  // the job closed the one that had this number
    if (!place) place = find(0);
    int error = errno;
    if (place) *place = described(fd);
    errno = error;
    return fd;
}

bool descriptor_is_ours(int fd) {
    const struct kept *kept = fd > 0 ? find(fd) : NULL;
    struct stat info;
    if (!kept || !kept->inode) return true;
    if (fstat(fd, &info) != 0) return errno != EBADF;  // it cannot be said now
    return info.st_ino == kept->inode && info.st_dev == kept->device;
}

bool descriptor_reopen(int *fd, const char *path, int flags) {
    if (descriptor_is_ours(*fd)) return true;
    struct kept *kept = find(*fd);
    int again = above_streams(open(path, flags | O_NOFOLLOW | O_CLOEXEC));
    if (again < 0) return false;
    struct kept found = described(again);
    if (found.inode != kept->inode || found.device != kept->device) {
        close(again);
        return false;
    }
    *kept = found;
    *fd = again;
    return true;
}

void descriptor_close(int *fd) {
    if (*fd < 0) return;
    struct kept *kept = find(*fd);
    if (descriptor_is_ours(*fd)) close(*fd);
    if (kept) kept->fd = 0;
    *fd = -1;
}
