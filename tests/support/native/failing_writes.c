// Preloaded into a reader: one of its calls that write to the file system fails. FAIL_AT: which
// one, counted from 1; FAIL_WITH: the error's number. FAIL_COUNT names a file that gets how many
// there were so far. Only files below FAIL_BELOW count.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long calls;

// Not by this file's own open and write.
static void count(long number) {
    const char *name = getenv("FAIL_COUNT");
    int fd = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT, 0600) : -1;
    if (fd < 0) return;
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", number);
    syscall(SYS_pwrite64, fd, text, length, 0);
    close(fd);
}

static int fails(const char *path) {
    const char *below = getenv("FAIL_BELOW"), *at = getenv("FAIL_AT"), *with = getenv("FAIL_WITH");
    if (!below || !path || strncmp(path, below, strlen(below)) != 0) return 0;
    long number = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    count(number);
    if (!at || number != atol(at)) return 0;
    errno = with ? atoi(with) : ENOSPC;
    return 1;
}

static int fails_fd(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    return fails_fd(fd) ? -1 : NEXT(write)(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return fails_fd(fd) ? -1 : NEXT(pwrite64)(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return fails_fd(fd) ? -1 : NEXT(pwrite)(fd, data, size, offset);
}

int rename(const char *from, const char *to) { return fails(from) ? -1 : NEXT(rename)(from, to); }

int mkdir(const char *path, mode_t mode) { return fails(path) ? -1 : NEXT(mkdir)(path, mode); }

int ftruncate64(int fd, off64_t size) { return fails_fd(fd) ? -1 : NEXT(ftruncate64)(fd, size); }

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
        if (fails(path)) return -1;
    }
    return NEXT(open64)(path, flags, mode);
}
