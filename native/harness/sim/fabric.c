// The shared segment and everything that is done in it.
#define _GNU_SOURCE
#include "fabric.h"

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

#include "reduce.h"
#include "stream.h"

enum {
    CHUNK_BYTES = 512 << 10,
    LETTER_BYTES = 64 << 10,
    PLACES = 64,  // of announced operations: more than anybody can be ahead
    LOOK_AROUND_NS = 100000000,
    PAGE = 4096,
};

// What a rank has announced: it arrived at its operation `number` - 1 at `start_ns`.
struct announced {
    _Atomic uint64_t number;
    uint64_t bytes;
    int64_t start_ns;
    int function, root;
};

struct shared_member {
    struct member who;
    _Atomic uint64_t exchanged;
    int64_t exchange[2][2];
    _Atomic uint64_t published, consumed;  // chunks of collectives
    struct announced collectives[PLACES];
};

// From one rank to another.
struct mailbox {
    _Atomic uint64_t posted, taken;  // letters
    struct announced sends[PLACES], receives[PLACES];
    _Atomic uint64_t steps[MAX_CHANNELS];
};

struct shared {
    _Atomic int attached;
    _Atomic uint32_t bell, sleepers;
    _Atomic int64_t origin_ns;
    struct shared_member members[];
};

struct fabric {
    struct shared *shared;
    struct mailbox *mailboxes;
    char *chunks, *letters;
    size_t bytes, letters_offset;
    int ranks, rank, fd;
    _Atomic bool aborted;
    _Atomic int dead_peer;
    uint64_t chunk, collective;                     // done so far
    uint64_t sent[MAX_RANKS], received[MAX_RANKS];  // messages
    bool has_room[MAX_RANKS];                       // letters to that rank have memory
};

// ---- finding each other ----
static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static struct mailbox *mailbox(const struct fabric *fabric, int from, int to) {
    return &fabric->mailboxes[from * fabric->ranks + to];
}

static struct shared_member *me(const struct fabric *fabric) {
    return &fabric->shared->members[fabric->rank];
}

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

static void look_for_dead_peers(struct fabric *fabric) {
    for (int rank = 0; rank < fabric->ranks && fabric->dead_peer < 0; rank++) {
        int pid = fabric_member(fabric, rank)->pid;
        if (pid && kill(pid, 0) != 0 && errno == ESRCH) fabric->dead_peer = rank;
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

static bool never(void *argument) {
    (void)argument;
    return false;
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
bool fabric_exchange(struct fabric *fabric, const int64_t mine[2], int64_t (*all)[2]) {
    uint64_t round = me(fabric)->exchanged + 1;
    memcpy(me(fabric)->exchange[round % 2], mine, sizeof(int64_t[2]));
    me(fabric)->exchanged = round;
    fabric_ring(fabric);
    struct exchange_wait wait = {fabric, round};
    if (!fabric_wait(fabric, all_exchanged, &wait, FOR_EVER)) return false;
    for (int rank = 0; rank < fabric->ranks; rank++)
        memcpy(all[rank], fabric->shared->members[rank].exchange[round % 2], sizeof(int64_t[2]));
    return true;
}

// ---- collectives ----
static void announce(struct announced *place, uint64_t number, const struct transfer_spec *spec,
                     int64_t start_ns) {
    place->bytes = spec->count * datatype_bytes(spec->type);
    place->start_ns = start_ns;
    place->function = (int)spec->function;
    place->root = spec->root;
    atomic_store_explicit(&place->number, number, memory_order_release);
}

struct collective {
    struct fabric *fabric;
    const struct transfer_spec *spec;
    uint64_t number, chunk;
    bool needs[MAX_RANKS];
    int64_t ready_ns;
    bool differs;
};

static bool same_request(const struct announced *a, const struct announced *b) {
    return a->function == b->function && a->bytes == b->bytes && a->root == b->root;
}

// Whether those have arrived that this rank depends on; from then on `ready_ns` is known.
static bool needed_arrived(void *argument) {
    struct collective *c = argument;
    const struct announced *mine = &me(c->fabric)->collectives[c->number % PLACES];
    c->ready_ns = mine->start_ns;
    c->differs = false;
    bool all = true;
    for (int rank = 0; rank < c->fabric->ranks; rank++) {
        if (!c->needs[rank]) continue;
        const struct announced *other =
            &c->fabric->shared->members[rank].collectives[c->number % PLACES];
        if (atomic_load_explicit(&other->number, memory_order_acquire) != c->number) {
            all = false;
            continue;
        }
        if (!same_request(mine, other)) c->differs = true;
        if (other->start_ns > c->ready_ns) c->ready_ns = other->start_ns;
    }
    return all || c->differs;
}

static bool chunk_free(void *argument) {
    struct collective *c = argument;
    for (int rank = 0; rank < c->fabric->ranks; rank++)
        if (c->fabric->shared->members[rank].consumed + 1 < c->chunk) return false;
    return true;
}

static bool needed_published(void *argument) {
    struct collective *c = argument;
    for (int rank = 0; rank < c->fabric->ranks; rank++)
        if (c->needs[rank] && c->fabric->shared->members[rank].published <= c->chunk) return false;
    return true;
}

static char *chunk_of(const struct fabric *fabric, int rank, uint64_t chunk) {
    return fabric->chunks + ((size_t)rank * 2 + chunk % 2) * CHUNK_BYTES;
}

// Elements [first, first + count) of each block: what this rank gives away.
static void put_chunk(const struct collective *c, size_t first, size_t count) {
    const struct transfer_spec *spec = c->spec;
    size_t width = datatype_bytes(spec->type);
    char *chunk = chunk_of(c->fabric, c->fabric->rank, c->chunk);
    const char *from = (const char *)spec->send + first * width;
    if (spec->function == BROADCAST && c->fabric->rank != spec->root) return;
    int blocks = spec->function == REDUCE_SCATTER ? c->fabric->ranks : 1;
    for (int block = 0; block < blocks; block++)
        memcpy(chunk + (size_t)block * count * width, from + (size_t)block * spec->count * width,
               count * width);
}

static void take_chunk(const struct collective *c, size_t first, size_t count) {
    const struct transfer_spec *spec = c->spec;
    const struct fabric *fabric = c->fabric;
    size_t width = datatype_bytes(spec->type);
    const void *inputs[MAX_RANKS];
    char *to = (char *)spec->recv + first * width;
    size_t skip = spec->function == REDUCE_SCATTER ? (size_t)fabric->rank * count * width : 0;
    for (int rank = 0; rank < fabric->ranks; rank++)
        inputs[rank] = chunk_of(fabric, rank, c->chunk) + skip;
    switch (spec->function) {
        case BROADCAST: memcpy(to, inputs[spec->root], count * width); break;
        case ALL_GATHER:
            for (int rank = 0; rank < fabric->ranks; rank++)
                memcpy(to + (size_t)rank * spec->count * width, inputs[rank], count * width);
            break;
        case REDUCE:
            if (fabric->rank != spec->root) break;
            reduce(to, inputs, fabric->ranks, count, spec->type, spec->op);
            break;
        default: reduce(to, inputs, fabric->ranks, count, spec->type, spec->op); break;
    }
}

static size_t elements_per_chunk(const struct fabric *fabric, const struct transfer_spec *spec) {
    size_t blocks = spec->function == REDUCE_SCATTER ? (size_t)fabric->ranks : 1;
    return CHUNK_BYTES / datatype_bytes(spec->type) / blocks;
}

int64_t fabric_collective(struct fabric *fabric, const struct transfer_spec *spec,
                          int64_t start_ns) {
    struct collective c = {.fabric = fabric, .spec = spec, .number = ++fabric->collective};
    size_t most = elements_per_chunk(fabric, spec), chunks = (spec->count + most - 1) / most;
    bool to_root = spec->function == REDUCE && fabric->rank != spec->root;
    bool from_root = spec->function == BROADCAST;
    for (int rank = 0; rank < fabric->ranks; rank++) {
        c.needs[rank] = from_root ? rank == spec->root : !to_root;
        // More than fits into the chunks does not leave before everybody takes it.
        if (chunks > 2) c.needs[rank] = true;
    }
    announce(&me(fabric)->collectives[c.number % PLACES], c.number, spec, start_ns);
    fabric_ring(fabric);
    if (!fabric_wait(fabric, needed_arrived, &c, FOR_EVER)) return -1;
    if (c.differs) return fabric_wait(fabric, never, NULL, FOR_EVER), -1;
    for (size_t first = 0; first < spec->count; first += most) {
        size_t count = spec->count - first < most ? spec->count - first : most;
        c.chunk = fabric->chunk++;
        if (!fabric_wait(fabric, chunk_free, &c, FOR_EVER)) return -1;
        put_chunk(&c, first, count);
        me(fabric)->published = c.chunk + 1;
        fabric_ring(fabric);
        if (!to_root) {
            if (!fabric_wait(fabric, needed_published, &c, FOR_EVER)) return -1;
            take_chunk(&c, first, count);
        }
        me(fabric)->consumed = c.chunk + 1;
        fabric_ring(fabric);
    }
    return c.ready_ns;
}

// ---- messages ----
struct message {
    const struct transfer_spec *spec;
    struct mailbox *box;
    char *letters;
    struct announced *mine, *theirs;
    uint64_t number;
    size_t moved, bytes;
    bool done;
};

struct messages {
    struct fabric *fabric;
    struct message *all;
    int count;
};

static char *letters_of(const struct fabric *fabric, int from, int to) {
    return fabric->letters + ((size_t)from * (size_t)fabric->ranks + (size_t)to) * 2 * LETTER_BYTES;
}

// Memory for letters to `to` comes when it is first needed: there are many pairs.
static bool make_room(struct fabric *fabric, int to) {
    if (fabric->has_room[to]) return true;
    off_t offset = (off_t)(letters_of(fabric, fabric->rank, to) - (char *)fabric->shared);
    fabric->has_room[to] = posix_fallocate(fabric->fd, offset, 2 * LETTER_BYTES) == 0;
    return fabric->has_room[to];
}

static bool send_letters(struct message *m) {
    bool moved = false;
    while (m->moved < m->bytes && m->box->posted - m->box->taken < 2) {
        size_t left = m->bytes - m->moved, now = left < LETTER_BYTES ? left : LETTER_BYTES;
        memcpy(m->letters + m->box->posted % 2 * LETTER_BYTES,
               (const char *)m->spec->send + m->moved, now);
        m->moved += now;
        m->box->posted++;
        moved = true;
    }
    m->done = m->moved == m->bytes;
    return moved;
}

static bool receive_letters(struct message *m) {
    bool moved = false;
    if (atomic_load_explicit(&m->theirs->number, memory_order_acquire) != m->number) return false;
    if (m->theirs->bytes != m->bytes) return false;  // for ever, as in NCCL
    while (m->moved < m->bytes && m->box->posted > m->box->taken) {
        size_t left = m->bytes - m->moved, now = left < LETTER_BYTES ? left : LETTER_BYTES;
        memcpy((char *)m->spec->recv + m->moved, m->letters + m->box->taken % 2 * LETTER_BYTES,
               now);
        m->moved += now;
        m->box->taken++;
        moved = true;
    }
    m->done = m->moved == m->bytes;
    return moved;
}

static bool messages_move(void *argument) {
    struct messages *messages = argument;
    bool moved = false, done = true;
    uint64_t blocked_to = 0, blocked_from = 0;  // later messages of a pair wait for earlier ones
    for (int i = 0; i < messages->count; i++) {
        struct message *m = &messages->all[i];
        uint64_t peer = 1ull << m->spec->root;
        bool sends = m->spec->function == SEND;
        uint64_t *blocked = sends ? &blocked_to : &blocked_from;
        if (!m->done && !(*blocked & peer)) moved |= sends ? send_letters(m) : receive_letters(m);
        if (!m->done) *blocked |= peer;
        done &= m->done;
    }
    if (moved) fabric_ring(messages->fabric);
    return done;
}

// A message that fits into the letters leaves without its receiver.
static int64_t message_ready_ns(const struct message *m) {
    bool leaves = m->spec->function == SEND && m->bytes <= 2 * LETTER_BYTES;
    if (leaves || m->bytes == 0) return m->mine->start_ns;
    return m->theirs->start_ns > m->mine->start_ns ? m->theirs->start_ns : m->mine->start_ns;
}

bool fabric_messages(struct fabric *fabric, const struct transfer_spec *specs, int count,
                     int64_t start_ns, int64_t *ready_ns) {
    struct message *all = calloc((size_t)count, sizeof *all);
    struct messages messages = {fabric, all, count};
    bool fine = true;
    for (int i = 0; i < count; i++) {
        struct message *m = &all[i];
        int peer = specs[i].root;
        bool sends = specs[i].function == SEND;
        int from = sends ? fabric->rank : peer, to = sends ? peer : fabric->rank;
        m->spec = &specs[i];
        m->box = mailbox(fabric, from, to);
        m->letters = letters_of(fabric, from, to);
        m->number = sends ? ++fabric->sent[peer] : ++fabric->received[peer];
        m->bytes = specs[i].count * datatype_bytes(specs[i].type);
        m->mine =
            sends ? &m->box->sends[m->number % PLACES] : &m->box->receives[m->number % PLACES];
        m->theirs =
            sends ? &m->box->receives[m->number % PLACES] : &m->box->sends[m->number % PLACES];
        m->done = m->bytes == 0;
        if (sends && !m->done) fine &= make_room(fabric, peer);
        announce(m->mine, m->number, &specs[i], start_ns);
    }
    fabric_ring(fabric);
    fine = fine && fabric_wait(fabric, messages_move, &messages, FOR_EVER);
    for (int i = 0; fine && i < count; i++) ready_ns[i] = message_ready_ns(&all[i]);
    free(all);
    return fine;
}

// ---- proxies ----
void fabric_add_step(struct fabric *fabric, int to, int channel) {
    atomic_fetch_add(&mailbox(fabric, fabric->rank, to)->steps[channel], 1);
    fabric_ring(fabric);
}

uint64_t fabric_steps(const struct fabric *fabric, int from, int to, int channel) {
    return atomic_load(&mailbox(fabric, from, to)->steps[channel]);
}
