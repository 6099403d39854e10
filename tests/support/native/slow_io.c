// Preloaded: makes every write to the capture slow, as a shared file system on a bad day, and notes
// the name of each thread that waited: `SLOW_IO_LOG` gets a line per wait. Whoever makes the file
// `SLOW_IO_STOP` has the process stopped once within a write, until it is sent SIGCONT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

static void be_slow(void) {
    const char *ms = getenv("SLOW_IO_MS"), *log = getenv("SLOW_IO_LOG");
    const char *stop = getenv("SLOW_IO_STOP");
    char thread[17] = "";
    prctl(PR_GET_NAME, thread);
    FILE *file = log ? fopen(log, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", thread);
        fclose(file);
    }
    usleep((useconds_t)(ms ? atoi(ms) : 100) * 1000);
    if (stop && unlink(stop) == 0) kill(getpid(), SIGSTOP);
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
