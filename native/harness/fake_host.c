// Poses as another host towards a process, by LD_PRELOAD: name, boot id and CLOCK_MONOTONIC.
//
// NCCLSCOPE_POSED_HOST is "name offset_ns drift_ppm origin_ns": the posed clock shows
// t + offset + drift x (t - origin). Waits for a posed time are turned back into the machine's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static struct {
    bool poses;
    char name[64];
    long long offset_ns, origin_ns;
    double drift_ppm;
} host;

__attribute__((constructor)) static void read_variable(void) {
    const char *text = getenv("NCCLSCOPE_POSED_HOST");
    host.poses = text && sscanf(text, "%63s %lld %lf %lld", host.name, &host.offset_ns,
                                &host.drift_ppm, &host.origin_ns) == 4;
}

// ---- the clock ----
static int64_t to_ns(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

static struct timespec to_timespec(int64_t ns) {
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static int64_t posed(int64_t ns) {
    return ns + host.offset_ns + (int64_t)((double)(ns - host.origin_ns) * host.drift_ppm * 1e-6);
}

static int64_t machine(int64_t posed_ns) {
    int64_t ns = posed_ns - host.offset_ns;
    return ns - (int64_t)((double)(ns - host.origin_ns) * host.drift_ppm * 1e-6);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (host.poses && clock == CLOCK_MONOTONIC) *now = to_timespec(posed(to_ns(*now)));
    return 0;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *left) {
    struct timespec until = *time;
    if (host.poses && clock == CLOCK_MONOTONIC && flags & TIMER_ABSTIME)
        until = to_timespec(machine(to_ns(*time)));
    return syscall(SYS_clock_nanosleep, clock, flags, &until, left) == 0 ? 0 : errno;
}

// A time far from the posed clock is one of CLOCK_REALTIME.
static struct timespec deadline_of(const struct timespec *given) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ahead_s = given->tv_sec - now.tv_sec;
    bool is_posed = host.poses && ahead_s > -1000000 && ahead_s < 1000000;
    return is_posed ? to_timespec(machine(to_ns(*given))) : *given;
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *time) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec deadline = deadline_of(time);
    return real(condition, lock, &deadline);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock,
                                  const struct timespec *time) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    struct timespec deadline = clock == CLOCK_MONOTONIC ? deadline_of(time) : *time;
    return real(condition, lock, clock, &deadline);
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *time) {
    static int (*real)(sem_t *, clockid_t, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sem_clockwait");
    struct timespec deadline = clock == CLOCK_MONOTONIC ? deadline_of(time) : *time;
    return real(semaphore, clock, &deadline);
}

// ---- name and boot id ----
EXPORT int gethostname(char *name, size_t size) {
    struct utsname kernel;
    if (uname(&kernel) != 0) return -1;
    snprintf(name, size, "%s", kernel.nodename);
    return 0;
}

EXPORT int uname(struct utsname *kernel) {
    if (syscall(SYS_uname, kernel) != 0) return -1;
    if (host.poses) snprintf(kernel->nodename, sizeof kernel->nodename, "%s", host.name);
    return 0;
}

static int posed_boot_id(void) {
    char text[64];
    uint64_t hash = 0xCBF29CE484222325ull ^ (uint64_t)host.origin_ns;
    for (const char *at = host.name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001B3ull;
    int length = snprintf(text, sizeof text, "00000000-5157-4000-8000-%012llx\n",
                          (unsigned long long)(hash & 0xFFFFFFFFFFFFull));
    int fd = (int)syscall(SYS_memfd_create, "boot_id", 1u);  // closed on exec
    if (fd < 0 || write(fd, text, (size_t)length) != length) return -1;
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int open_posed(const char *path, int flags, mode_t mode) {
    if (host.poses && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) return posed_boot_id();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define DEFINE_OPEN(name)                                                              \
    EXPORT int name(const char *path, int flags, ...) {                                \
        va_list arguments;                                                             \
        va_start(arguments, flags);                                                    \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments);                                                             \
        return open_posed(path, flags, mode);                                          \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
