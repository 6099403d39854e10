// Preloaded: a shared file system on a bad day. Below `LATE_FILES_IN` a file that another process
// made is not there in the first `LATE_FILES_MS` milliseconds in which this process looks for it,
// and each opening takes `SLOW_OPEN_MS`. `LATE_FILES_LOG` gets a byte for each file that was
// hidden, and for each slow one.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FILES = 1 << 16 };
static struct {
    char *path;
    double first_look_ms;  // in the past of all looks: this process made the file
} files[MOST_FILES];
static int file_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void note(char what) {
    const char *log = getenv("LATE_FILES_LOG");
    int fd =
        log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (fd < 0) return;
    if (write(fd, &what, 1) < 0) abort();
    close(fd);
}

static int is_below(const char *path) {
    const char *folder = getenv("LATE_FILES_IN");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

// When this process first looked for a file; `look_ms` where it did not.
static double first_look(const char *path, double look_ms) {
    pthread_mutex_lock(&lock);
    int place = 0;
    while (place < file_count && strcmp(files[place].path, path) != 0) place++;
    if (place == MOST_FILES) abort();
    if (place == file_count) {
        files[place].path = strdup(path);
        files[place].first_look_ms = look_ms;
        file_count++;
    }
    double first_ms = files[place].first_look_ms;
    pthread_mutex_unlock(&lock);
    return first_ms;
}

static int is_late(const char *path) {
    struct stat state;
    const char *ms = getenv("LATE_FILES_MS");
    if (!ms || !is_below(path)) return 0;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &state, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    if (!S_ISREG(state.st_mode)) return 0;
    double look_ms = now_ms();
    if (look_ms - first_look(path, look_ms) >= atoi(ms)) return 0;
    note('l');
    return 1;
}

static int open_it(int directory, const char *path, int flags, mode_t mode) {
    const char *ms = getenv("SLOW_OPEN_MS");
    if (ms && is_below(path)) {
        note('s');
        usleep((useconds_t)atoi(ms) * 1000);
    }
    if (!(flags & O_CREAT) && is_late(path)) {
        errno = ENOENT;
        return -1;
    }
    if (flags & O_CREAT && is_below(path)) first_look(path, -1e15);
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

#define MODE(flags)                        \
    mode_t mode = 0;                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest;                      \
        va_start(rest, flags);             \
        mode = va_arg(rest, mode_t);       \
        va_end(rest);                      \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_it(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_it(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_it(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_it(directory, path, flags | O_LARGEFILE, mode);
}

static int state_of(int directory, const char *path, void *state, int flags) {
    if (is_late(path)) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_newfstatat, directory, path, state, flags);
}

int stat(const char *path, struct stat *state) { return state_of(AT_FDCWD, path, state, 0); }
int stat64(const char *path, struct stat64 *state) { return state_of(AT_FDCWD, path, state, 0); }
int lstat(const char *path, struct stat *state) {
    return state_of(AT_FDCWD, path, state, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char *path, struct stat64 *state) {
    return state_of(AT_FDCWD, path, state, AT_SYMLINK_NOFOLLOW);
}
int fstatat(int directory, const char *path, struct stat *state, int flags) {
    return state_of(directory, path, state, flags);
}
int fstatat64(int directory, const char *path, struct stat64 *state, int flags) {
    return state_of(directory, path, state, flags);
}
