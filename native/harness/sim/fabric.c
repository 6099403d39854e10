// The shared segment: finding each other, waiting, small numbers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fabric_parts.h"
#include "reduce.h"
#include "stream.h"

// ---- finding each other ----
static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static bool all_attached(void *argument) {
    struct fabric *fabric = argument;
    return fabric->shared->attached == fabric->ranks;
}

static bool map_segment(struct fabric *fabric, const char *path) {
    size_t ranks = (size_t)fabric->ranks;
    size_t mailboxes_at = pages(sizeof(struct shared) + ranks * sizeof(struct shared_member));
    size_t chunks_at = mailboxes_at + pages(ranks * ranks * sizeof(struct mailbox));
    fabric->letters_offset = chunks_at + ranks * 2 * CHUNK_BYTES;
    fabric->bytes = fabric->letters_offset + ranks * ranks * 2 * LETTER_BYTES;
    fabric->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fabric->fd < 0 || ftruncate(fabric->fd, (off_t)fabric->bytes) != 0) return false;
    // Memory that is not there kills when it is written to: ask for it now.
    if ((errno = posix_fallocate(fabric->fd, 0, (off_t)fabric->letters_offset)) != 0) return false;
    char *base = mmap(NULL, fabric->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fabric->fd, 0);
    if (base == MAP_FAILED) return false;
    fabric->shared = (struct shared *)base;
    fabric->mailboxes = (struct mailbox *)(base + mailboxes_at);
    fabric->chunks = base + chunks_at;
    fabric->letters = base + fabric->letters_offset;
    return true;
}

struct fabric *fabric_join(const char *name, int ranks, int rank, uint64_t host, int global_rank,
                           int64_t origin_ns, const char **why) {
    char path[128];
    struct fabric *fabric = calloc(1, sizeof *fabric);
    fabric->ranks = ranks;
    fabric->rank = rank;
    fabric->dead_peer = -1;
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    if (!map_segment(fabric, path)) {
        *why = strerror(errno);
        unlink(path);
        fabric_leave(fabric);
        return NULL;
    }
    me(fabric)->who = (struct member){(int)getpid(), global_rank, host};
    if (rank == 0) fabric->shared->origin_ns = origin_ns;
    atomic_fetch_add_explicit(&fabric->shared->attached, 1, memory_order_acq_rel);
    fabric_ring(fabric);
    fabric_wait(fabric, all_attached, fabric, FOR_EVER);
    if (rank == 0) unlink(path);
    return fabric;
}

void fabric_leave(struct fabric *fabric) {
    if (fabric->shared) munmap(fabric->shared, fabric->bytes);
    if (fabric->fd >= 0) close(fabric->fd);
    free(fabric);
}

const struct member *fabric_member(const struct fabric *fabric, int rank) {
    return &fabric->shared->members[rank].who;
}
int64_t fabric_origin_ns(const struct fabric *fabric) { return fabric->shared->origin_ns; }
int fabric_dead_peer(const struct fabric *fabric) { return fabric->dead_peer; }

// ---- waiting ----
void fabric_ring(struct fabric *fabric) {
    struct shared *shared = fabric->shared;
    atomic_fetch_add(&shared->bell, 1);
    if (atomic_load(&shared->sleepers))
        syscall(SYS_futex, &shared->bell, FUTEX_WAKE, INT_MAX, NULL);
}

// Also one that nobody has waited for yet.
static bool is_dead(int pid) {
    char path[32], text[512] = "";
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    const char *name_end = length ? strrchr(text, ')') : NULL;
    return name_end && name_end[1] && name_end[2] == 'Z';
}

static void look_for_dead_peers(struct fabric *fabric) {
    for (int rank = 0; rank < fabric->ranks && fabric->dead_peer < 0; rank++) {
        int pid = fabric_member(fabric, rank)->pid;
        if (pid && is_dead(pid)) fabric->dead_peer = rank;
    }
}

uint32_t fabric_bell(const struct fabric *fabric) { return atomic_load(&fabric->shared->bell); }

void fabric_wait_bell(struct fabric *fabric, uint32_t heard, int64_t until_ns) {
    struct shared *shared = fabric->shared;
    int64_t left = until_ns == FOR_EVER ? LOOK_AROUND_NS : until_ns - sim_now_ns();
    if (left <= 0) return;
    bool long_wait = left >= LOOK_AROUND_NS;
    if (long_wait) left = LOOK_AROUND_NS;
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    atomic_fetch_add(&shared->sleepers, 1);
    long slept = syscall(SYS_futex, &shared->bell, FUTEX_WAIT, heard, &timeout);
    bool timed_out = slept != 0 && errno == ETIMEDOUT;
    atomic_fetch_sub(&shared->sleepers, 1);
    if (timed_out && long_wait) look_for_dead_peers(fabric);
}

bool fabric_wait(struct fabric *fabric, bool (*ready)(void *), void *argument, int64_t until_ns) {
    while (!fabric->aborted) {
        uint32_t heard = fabric_bell(fabric);
        if (ready(argument)) return true;
        if (until_ns != FOR_EVER && sim_now_ns() >= until_ns) return false;
        fabric_wait_bell(fabric, heard, until_ns);
    }
    return false;
}

void fabric_abort(struct fabric *fabric) {
    fabric->aborted = true;
    fabric_ring(fabric);
}
bool fabric_aborted(const struct fabric *fabric) { return fabric->aborted; }

void fabric_announce(struct announced *place, uint64_t number, const struct transfer_spec *spec,
                     int64_t start_ns) {
    place->bytes = spec->count * datatype_bytes(spec->type);
    place->start_ns = start_ns;
    place->function = (int)spec->function;
    place->root = spec->root;
    atomic_store_explicit(&place->number, number, memory_order_release);
}

// ---- small numbers ----
struct exchange_wait {
    struct fabric *fabric;
    uint64_t round;
};

static bool all_exchanged(void *argument) {
    struct exchange_wait *wait = argument;
    for (int rank = 0; rank < wait->fabric->ranks; rank++)
        if (wait->fabric->shared->members[rank].exchanged < wait->round) return false;
    return true;
}

// Two places take turns: who writes the next but one knows that all have read this one.
bool fabric_exchange(struct fabric *fabric, const int64_t own[2], int64_t (*all)[2]) {
    uint64_t round = me(fabric)->exchanged + 1;
    memcpy(me(fabric)->exchange[round % 2], own, sizeof(int64_t[2]));
    me(fabric)->exchanged = round;
    fabric_ring(fabric);
    struct exchange_wait wait = {fabric, round};
    if (!fabric_wait(fabric, all_exchanged, &wait, FOR_EVER)) return false;
    for (int rank = 0; rank < fabric->ranks; rank++)
        memcpy(all[rank], fabric->shared->members[rank].exchange[round % 2], sizeof(int64_t[2]));
    return true;
}

// ---- proxies ----
void fabric_add_step(struct fabric *fabric, int to, int channel) {
    atomic_fetch_add(&mailbox(fabric, fabric->rank, to)->steps[channel], 1);
    fabric_ring(fabric);
}

uint64_t fabric_steps(const struct fabric *fabric, int from, int to, int channel) {
    return atomic_load(&mailbox(fabric, from, to)->steps[channel]);
}
