// Preloaded: a shared file system on a bad day. Below `LATE_FILES_IN` a file that another process
// made in the last `LATE_FILES_MS` milliseconds is not there, and each opening takes
// `SLOW_OPEN_MS`. `LATE_FILES_LOG` gets a byte for each file that was hidden, and for each slow
// one.
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

enum { MOST_OWN = 4096 };
static char *own[MOST_OWN];  // paths that this process created
static int own_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

static int is_own(const char *path, int add) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < own_count && !found; i++) found = strcmp(own[i], path) == 0;
    if (add && !found && own_count < MOST_OWN) own[own_count++] = strdup(path);
    pthread_mutex_unlock(&lock);
    return found;
}

static int is_late(const char *path) {
    struct statx state;
    struct timespec now;
    const char *ms = getenv("LATE_FILES_MS");
    if (!ms || !is_below(path) || is_own(path, 0)) return 0;
    unsigned wanted = STATX_TYPE | STATX_BTIME | STATX_CTIME;
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, wanted, &state) != 0) return 0;
    if (!S_ISREG(state.stx_mode)) return 0;
    // When it was made: what others write later does not hide it again.
    struct statx_timestamp *made =
        state.stx_mask & STATX_BTIME ? &state.stx_btime : &state.stx_ctime;
    clock_gettime(CLOCK_REALTIME, &now);
    double age_ms = (double)(now.tv_sec - made->tv_sec) * 1e3 +
                    ((double)now.tv_nsec - (double)made->tv_nsec) / 1e6;
    if (age_ms > atoi(ms)) return 0;
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
    if (flags & O_CREAT && is_below(path)) is_own(path, 1);
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
