// Creates the arena within a budget, populates it, and hands out chunks.
#define _GNU_SOURCE
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "descriptor.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SHM_DIR "/dev/shm"
#define EXTENT_CHUNKS 128u  // 8 MB
#define MIN_CHUNKS 8u
#define MIN_SHARED_CHUNKS 32u
// NCCL's own transport needs /dev/shm too: a container's default of 64 MB is left to it.
#define MIN_SHM_BYTES (512ull << 20)

struct arena arena = {.fd = -1, .lock_fd = -1};
char arena_refused[128];
u32 arena_next[MAX_CHUNKS];

static u64 number_in_file(const char *path) {
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return UINT64_MAX;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return UINT64_MAX;
    text[length] = 0;
    char *end;
    u64 number = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : number;  // "max"
}

// What the memory controller still grants: exceeding it kills the process instead of failing a
// call.
static u64 cgroup_room(void) {
    u64 limit = number_in_file("/sys/fs/cgroup/memory.max"),
        used = number_in_file("/sys/fs/cgroup/memory.current");
    if (limit == UINT64_MAX) {
        limit = number_in_file("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        used = number_in_file("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    if (limit == UINT64_MAX || used == UINT64_MAX) return UINT64_MAX;
    return used < limit ? limit - used : 0;
}

static u64 smaller(u64 a, u64 b) { return a < b ? a : b; }

static u64 local_processes(void) {
    static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "SLURM_NTASKS_PER_NODE", NULL};
    for (const char *const *name = names; *name; name++) {
        const char *value = getenv(*name);
        if (value && atoi(value) > 0) return (u64)atoi(value);
    }
    return 8;
}

static u64 shm_budget(void) {
    struct statvfs shm;
    if (statvfs(SHM_DIR, &shm) != 0) return 0;
    u64 total = (u64)shm.f_blocks * shm.f_frsize, available = (u64)shm.f_bavail * shm.f_frsize;
    if (total < MIN_SHM_BYTES) return 0;
    if (config.arena_bytes) return available / 2;  // the user's choice, but never all that is left
    return smaller(total / 4 / local_processes(), available / 2);
}

static bool populate(char *from, size_t bytes) {
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) return false;
    // Before Linux 5.14, or forbidden by a sandbox. A file's space is allocated already, so this
    // raises no SIGBUS.
    for (size_t offset = 0; offset < bytes; offset += 4096) *(volatile char *)(from + offset) = 0;
    return true;
}

// A directory of this user's that nobody else can have prepared.
static int open_shm_dir(char *path, size_t size) {
    snprintf(path, size, SHM_DIR "/ncclscope-%u", (unsigned)getuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    bool foreign = dir < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EACCES);
    if (dir >= 0 && fstat(dir, &info) == 0) {
        foreign = info.st_uid != getuid() || (info.st_mode & 077) != 0;
        if (!foreign) return dir;
    }
    if (foreign)
        snprintf(arena_refused, sizeof arena_refused, "%s is not a directory of this user alone",
                 path);
    if (dir >= 0) close(dir);
    return -1;
}

// The lock says that this process lives; the kernel drops it however the process dies. It needs an
// open file of its own: the mapped one lives on in forked children as long as they are mapped.
// Whoever looks for arenas of dead processes may hold the lock for a moment.
static int open_locked(int dir, const char *file_name) {
    int fd = openat(dir, file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    for (int attempt = 0; fd >= 0 && attempt < 50; attempt++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (fd >= 0) close(fd);
    return -1;
}

static bool map_shared(const char *file_name, u64 bytes) {
    char dir_path[64];
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        return false;  // growing past it raises SIGXFSZ
    int dir = open_shm_dir(dir_path, sizeof dir_path);
    if (dir < 0) return false;
    int fd = openat(dir, file_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    fd = descriptor_keep(fd);
    int lock_fd = fd < 0 ? -1 : descriptor_keep(open_locked(dir, file_name));
    void *base = MAP_FAILED;
    if (lock_fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) {
        arena.base = base;
        arena.fd = fd;
        arena.lock_fd = lock_fd;
        snprintf(arena.path, sizeof arena.path, "%s/%s", dir_path, file_name);
    } else {
        if (fd >= 0) unlinkat(dir, file_name, 0);
        descriptor_close(&fd);
        descriptor_close(&lock_fd);
    }
    close(dir);
    return base != MAP_FAILED;
}

void arena_look_after_files(void) {
    if (arena.fd < 0) return;
    descriptor_reopen(&arena.fd, arena.path, O_RDWR);
    if (!descriptor_is_ours(arena.lock_fd) &&
        descriptor_reopen(&arena.lock_fd, arena.path, O_RDONLY))
        flock(arena.lock_fd, LOCK_EX | LOCK_NB);
}

static bool ready(size_t offset, size_t bytes) {
    arena_look_after_files();
    // A hole in a full tmpfs would be a SIGBUS in NCCL's thread, so space is allocated before it is
    // touched.
    if (arena.fd >= 0 && !descriptor_is_ours(arena.fd)) return false;
    if (arena.fd >= 0 && fallocate(arena.fd, 0, (off_t)offset, (off_t)bytes) != 0) return false;
    return populate(arena.base + offset, bytes);
}

bool arena_grow(void) {
    u32 first = arena.chunks_ready, last = first + EXTENT_CHUNKS;
    if (last > arena.chunk_limit) last = arena.chunk_limit;
    if (arena.growth_failed || first == last) return false;
    if (!ready(ARENA_CHUNKS + (size_t)first * CHUNK_BYTES, (size_t)(last - first) * CHUNK_BYTES)) {
        arena.growth_failed = true;
        return false;
    }
    arena.chunks_ready = last;
    __atomic_store_n(&arena.low_priority_reserve, last / 8, __ATOMIC_RELAXED);
    for (u32 chunk = last; chunk-- > first;) arena_give_chunk(chunk);
    struct file_header *header = (struct file_header *)arena.base;
    __atomic_store_n(&header->chunk_count, last, __ATOMIC_RELEASE);
    return true;
}

static bool map_memory(const char *file_name, bool shared, u64 bytes) {
    if (shared) return map_shared(file_name, bytes);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    arena.base = base;
    return true;
}

static bool try_create(const char *file_name, bool shared, u64 chunks) {
    u64 bytes = ARENA_CHUNKS + chunks * CHUNK_BYTES;
    if (!map_memory(file_name, shared, bytes)) return false;
    arena.chunk_limit = (u32)chunks;
    bool front = ready(0, ARENA_CHUNKS);
    if (front) {
        struct file_header *header = (struct file_header *)arena.base;
        header->counters_offset = ARENA_COUNTERS;
        header->meta_offset = ARENA_META;
        header->meta_slots = META_SLOTS;
        header->tally_offset = ARENA_TALLY;
        header->tally_slots = TALLY_SLOTS;
        header->chunks_offset = ARENA_CHUNKS;
        header->chunk_slots = CHUNK_SLOTS;
        arena_grow();
    }
    if (front && arena.chunks_ready >= smaller(chunks, MIN_CHUNKS)) return true;
    munmap(arena.base, bytes);
    arena_unlink();
    arena = (struct arena){.fd = -1, .lock_fd = -1};
    return false;
}

static u64 default_bytes(void) {
    if (config.ring_bytes) return config.ring_bytes + config.ring_bytes / 2;  // room to write into
    return config.mode == MODE_PROFILE ? 16ull << 20 : 256ull << 20;
}

bool arena_create(const char *file_name) {
    u64 wanted = config.arena_bytes ? config.arena_bytes : default_bytes();
    wanted = smaller(smaller(wanted, cgroup_room() / 4), (u64)MAX_CHUNKS * CHUNK_BYTES);
    // A tiny arena that survives the process is worth less than one that loses nothing.
    u64 least = smaller(wanted / CHUNK_BYTES, MIN_SHARED_CHUNKS);
    u64 chunks = smaller(wanted, shm_budget()) / CHUNK_BYTES;
    for (; chunks >= least && chunks >= MIN_CHUNKS; chunks /= 2)
        if (try_create(file_name, true, chunks)) return true;
    for (chunks = wanted / CHUNK_BYTES; chunks >= MIN_CHUNKS; chunks /= 2)
        if (try_create(file_name, false, chunks)) return true;
    return try_create(file_name, false, 0);  // counts alone
}

static void close_files(void) {
    descriptor_close(&arena.fd);
    descriptor_close(&arena.lock_fd);
}

void arena_unlink(void) {
    if (arena.fd < 0) return;
    unlink(arena.path);
    close_files();
}

void arena_forget(void) {
    close_files();
    arena.is_foreign = true;
}

void arena_shrink(void) {
    arena_look_after_files();
    if (arena.fd < 0 || !descriptor_is_ours(arena.fd)) return;
    for (u32 chunk; (chunk = arena_take_chunk(false)) != NO_CHUNK;)
        fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(ARENA_CHUNKS + (size_t)chunk * CHUNK_BYTES), CHUNK_BYTES);
}

u32 arena_take_chunk(bool low_priority) {
    if (low_priority && __atomic_load_n(&arena.free_count, __ATOMIC_RELAXED) <=
                            __atomic_load_n(&arena.low_priority_reserve, __ATOMIC_RELAXED))
        return NO_CHUNK;
    u32 chunk = free_list_pop(&arena.free_chunks, arena_next);
    if (chunk != NO_CHUNK) __atomic_fetch_sub(&arena.free_count, 1, __ATOMIC_RELAXED);
    return chunk;
}

// The chunk's heads must all be zero: an old head over a new, torn body would pass for a record.
void arena_give_chunk(u32 chunk) {
    free_list_push(&arena.free_chunks, arena_next, chunk);
    __atomic_fetch_add(&arena.free_count, 1, __ATOMIC_RELAXED);
}
