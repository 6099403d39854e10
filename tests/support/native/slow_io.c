// Preloaded: makes every write to the capture slow, as a shared file system on a bad day.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void be_slow(void) {
    const char *text = getenv("SLOW_IO_MS");
    usleep((useconds_t)(text ? atoi(text) : 100) * 1000);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    be_slow();
    return real(fd, data, bytes, offset);
}

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
    if (strncmp(path, "/dev/shm", 8) != 0) be_slow();
    return real(path, mode);
}
