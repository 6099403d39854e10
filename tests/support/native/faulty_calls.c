// Preloaded: makes one of the calls fail that the plugin makes to the system. Calls of anybody else
// go through.
//
//   FAULT_CALL   which, by name; with FAULT_ERRNO, the error
//   FAULT_FIRST  the number of the first call that fails, 1 unless set
//   FAULT_TIMES  how many fail, all from the first on unless set
//   FAULT_LOG    gets a line at the end for each call that the plugin made: name, number, failures
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define MAX_CALLS 128

struct call {
    const char *name;
    void *real;
    unsigned long made, failed;
};
static struct call *calls[MAX_CALLS];
static unsigned call_count;
static const char *plugin_start, *plugin_end;
static unsigned long first = 1, times = ~0ul;
static int error;
static const char *faulty;

static int find_plugin(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "libnccl-profiler-ncclscope.so")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const char *start = (const char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)) continue;
        plugin_start = start;
        plugin_end = start + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

static bool is_plugin(const char *caller) {
    if (!plugin_end) dl_iterate_phdr(find_plugin, NULL);
    return caller >= plugin_start && caller < plugin_end;
}

// Whether this call is to fail; sets errno.
static bool fails(struct call *call, const void *caller) {
    static bool ready;
    if (!ready) {
        ready = true;
        faulty = getenv("FAULT_CALL");
        if (getenv("FAULT_ERRNO")) error = atoi(getenv("FAULT_ERRNO"));
        if (getenv("FAULT_FIRST")) first = strtoul(getenv("FAULT_FIRST"), NULL, 10);
        if (getenv("FAULT_TIMES")) times = strtoul(getenv("FAULT_TIMES"), NULL, 10);
    }
    if (!is_plugin(caller)) return false;
    unsigned long number = __atomic_add_fetch(&call->made, 1, __ATOMIC_RELAXED);
    if (number == 1) {
        unsigned place = __atomic_fetch_add(&call_count, 1, __ATOMIC_RELAXED);
        if (place < MAX_CALLS) calls[place] = call;
    }
    if (!faulty || strcmp(faulty, call->name) != 0 || number < first || number - first >= times)
        return false;
    __atomic_add_fetch(&call->failed, 1, __ATOMIC_RELAXED);
    errno = error;
    return true;
}

__attribute__((destructor)) static void write_log(void) {
    const char *path = getenv("FAULT_LOG");
    FILE *log = path ? fopen(path, "w") : NULL;
    if (!log) return;
    for (unsigned i = 0; i < call_count && i < MAX_CALLS; i++)
        if (calls[i])
            fprintf(log, "%s %lu %lu\n", calls[i]->name, calls[i]->made, calls[i]->failed);
    fclose(log);
}

// clang-format off
#define BEGIN(result, name_, parameters) \
    static struct call call = {.name = #name_}; \
    result(*real) parameters = __atomic_load_n(&call.real, __ATOMIC_RELAXED); \
    if (!real) __atomic_store_n(&call.real, real = dlsym(RTLD_NEXT, #name_), __ATOMIC_RELAXED);

// C(result, name, parameters, arguments, what comes back of a call that fails)
#define DEFINE(result, name, parameters, arguments, failure)         \
    result name parameters {                                         \
        BEGIN(result, name, parameters)                               \
        if (fails(&call, __builtin_return_address(0))) return failure; \
        return real arguments;                                       \
    }
#define ERROR(C, name, parameters, arguments) C(int, name, parameters, arguments, -1)
#define NUMBER(C, name, parameters, arguments) C(int, name, parameters, arguments, error)

#define CALLS(C)                                                                                  \
    ERROR(C, access, (const char *path, int mode), (path, mode))                                  \
    ERROR(C, clock_gettime, (clockid_t id, struct timespec *now), (id, now))                      \
    ERROR(C, close, (int fd), (fd))                                                               \
    ERROR(C, closedir, (DIR *dir), (dir))                                                         \
    ERROR(C, dirfd, (DIR *dir), (dir))                                                            \
    ERROR(C, fallocate, (int fd, int mode, off_t from, off_t bytes), (fd, mode, from, bytes))     \
    ERROR(C, flock, (int fd, int operation), (fd, operation))                                     \
    ERROR(C, fstat, (int fd, struct stat *info), (fd, info))                                      \
    ERROR(C, fstatat, (int dir, const char *path, struct stat *info, int flags),                  \
          (dir, path, info, flags))                                                               \
    ERROR(C, ftruncate, (int fd, off_t bytes), (fd, bytes))                                       \
    C(char *, getcwd, (char *path, size_t bytes), (path, bytes), NULL)                            \
    ERROR(C, gethostname, (char *name_, size_t bytes), (name_, bytes))                            \
    ERROR(C, getrlimit, (__rlimit_resource_t which, struct rlimit *limit), (which, limit))        \
    ERROR(C, getrusage, (__rusage_who_t who, struct rusage *usage), (who, usage))                 \
    C(struct tm *, localtime_r, (const time_t *at, struct tm *out), (at, out), NULL)              \
    ERROR(C, lstat, (const char *path, struct stat *info), (path, info))                          \
    ERROR(C, madvise, (void *from, size_t bytes, int advice), (from, bytes, advice))              \
    ERROR(C, mkdir, (const char *path, mode_t mode), (path, mode))                                \
    C(void *, mmap, (void *at, size_t bytes, int prot, int flags, int fd, off_t from),            \
      (at, bytes, prot, flags, fd, from), MAP_FAILED)                                             \
    ERROR(C, munmap, (void *at, size_t bytes), (at, bytes))                                       \
    ERROR(C, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))       \
    ERROR(C, nice, (int less), (less))                                                            \
    C(DIR *, opendir, (const char *path), (path), NULL)                                           \
    NUMBER(C, pthread_cond_init, (pthread_cond_t *cond, const pthread_condattr_t *attributes),    \
           (cond, attributes))                                                                    \
    NUMBER(C, pthread_cond_timedwait,                                                             \
           (pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until),          \
           (cond, mutex, until))                                                                  \
    NUMBER(C, pthread_condattr_init, (pthread_condattr_t *attributes), (attributes))              \
    NUMBER(C, pthread_condattr_setclock, (pthread_condattr_t *attributes, clockid_t id),          \
           (attributes, id))                                                                      \
    NUMBER(C, pthread_create,                                                                     \
           (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),\
           (thread, attributes, run, arg))                                                        \
    NUMBER(C, pthread_detach, (pthread_t thread), (thread))                                       \
    NUMBER(C, pthread_key_create, (pthread_key_t *key, void (*end)(void *)), (key, end))          \
    NUMBER(C, pthread_setname_np, (pthread_t thread, const char *name_), (thread, name_))         \
    NUMBER(C, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))          \
    NUMBER(C, pthread_sigmask, (int how, const sigset_t *set, sigset_t *before),                  \
           (how, set, before))                                                                    \
    C(ssize_t, pread, (int fd, void *data, size_t bytes, off_t offset),                           \
      (fd, data, bytes, offset), error ? -1 : 0)                                                  \
    C(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t offset),                    \
      (fd, data, bytes, offset), error ? -1 : 0)                                                  \
    C(ssize_t, read, (int fd, void *data, size_t bytes), (fd, data, bytes), error ? -1 : 0)       \
    C(struct dirent *, readdir, (DIR *dir), (dir), NULL)                                          \
    C(char *, realpath, (const char *path, char *out), (path, out), NULL)                         \
    ERROR(C, renameat, (int dir, const char *from, int there, const char *to),                    \
          (dir, from, there, to))                                                                 \
    ERROR(C, sched_setaffinity, (pid_t pid, size_t bytes, const cpu_set_t *set),                  \
          (pid, bytes, set))                                                                      \
    ERROR(C, sigaction, (int number, const struct sigaction *action, struct sigaction *before),   \
          (number, action, before))                                                               \
    ERROR(C, stat, (const char *path, struct stat *info), (path, info))                           \
    ERROR(C, statvfs, (const char *path, struct statvfs *info), (path, info))                     \
    C(long, sysconf, (int which), (which), -1)                                                    \
    C(time_t, time, (time_t *out), (out), -1)                                                     \
    ERROR(C, uname, (struct utsname *out), (out))                                                 \
    ERROR(C, unlink, (const char *path), (path))                                                  \
    ERROR(C, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))                \
    NUMBER(C, __register_atfork,                                                                  \
           (void (*before)(void), void (*parent)(void), void (*child)(void), void *owner),        \
           (before, parent, child, owner))                                                        \
    NUMBER(C, __cxa_atexit, (void (*end)(void *), void *argument, void *owner),                   \
           (end, argument, owner))
CALLS(DEFINE)

// ---- memory: glibc's own names, because dlsym allocates ----
#define MEMORY(C)                                                                  \
    C(malloc, (size_t bytes), (bytes))                                             \
    C(calloc, (size_t count, size_t bytes), (count, bytes))                        \
    C(realloc, (void *before, size_t bytes), (before, bytes))
#define DEFINE_MEMORY(name_, parameters, arguments)                                \
    void *__libc_##name_ parameters;                                               \
    void *name_ parameters {                                                       \
        static struct call call = {.name = #name_};                                \
        if (fails(&call, __builtin_return_address(0))) return NULL;                \
        return __libc_##name_ arguments;                                           \
    }
MEMORY(DEFINE_MEMORY)
// clang-format on

// ---- those with any number of arguments ----
int open(const char *path, int flags, ...) {
    BEGIN(int, open, (const char *, int, ...))
    if (fails(&call, __builtin_return_address(0))) return -1;
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    BEGIN(int, openat, (int, const char *, int, ...))
    if (fails(&call, __builtin_return_address(0))) return -1;
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return real(dir, path, flags, mode);
}

int fcntl(int fd, int command, ...) {
    BEGIN(int, fcntl, (int, int, ...))
    if (fails(&call, __builtin_return_address(0))) return -1;
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return real(fd, command, argument);
}

int prctl(int option, ...) {
    BEGIN(int, prctl, (int, ...))
    if (fails(&call, __builtin_return_address(0))) return -1;
    va_list more;
    va_start(more, option);
    unsigned long a = va_arg(more, unsigned long), b = va_arg(more, unsigned long),
                  c = va_arg(more, unsigned long), d = va_arg(more, unsigned long);
    va_end(more);
    return real(option, a, b, c, d);
}

long syscall(long number, ...) {
    BEGIN(long, syscall, (long, ...))
    if (fails(&call, __builtin_return_address(0))) return -1;
    va_list more;
    va_start(more, number);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long),
         d = va_arg(more, long), e = va_arg(more, long), f = va_arg(more, long);
    va_end(more);
    return real(number, a, b, c, d, e, f);
}
