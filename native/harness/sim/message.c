// Messages through two letters a pair.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fabric_parts.h"
#include "reduce.h"

struct message {
    const struct transfer_spec *spec;
    struct mailbox *box;
    char *letters;
    struct announced *own, *peers;
    uint64_t number;
    size_t moved, bytes;
    bool announced, done;
};

struct messages {
    struct fabric *fabric;
    struct message *all;
    int count;
    int64_t start_ns;
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
    if (atomic_load_explicit(&m->peers->number, memory_order_acquire) != m->number) return false;
    if (m->peers->bytes != m->bytes) return false;  // for ever, as in NCCL
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
        if (!m->done && !(*blocked & peer)) {
            // Only the next one of a pair is announced: there are so many places.
            if (!m->announced) fabric_announce(m->own, m->number, m->spec, messages->start_ns);
            moved |= !m->announced;
            m->announced = true;
            moved |= sends ? send_letters(m) : receive_letters(m);
        }
        if (!m->done) *blocked |= peer;
        done &= m->done;
    }
    if (moved) fabric_ring(messages->fabric);
    return done;
}

// A message that fits into the letters leaves without its receiver.
static int64_t message_ready_ns(const struct message *m, int64_t start_ns) {
    if (m->bytes == 0) return start_ns;
    bool leaves = m->spec->function == SEND && m->bytes <= 2 * LETTER_BYTES;
    if (leaves) return m->own->start_ns;
    return m->peers->start_ns > m->own->start_ns ? m->peers->start_ns : m->own->start_ns;
}

bool fabric_messages(struct fabric *fabric, const struct transfer_spec *specs, int count,
                     int64_t start_ns, int64_t *ready_ns) {
    struct message *all = calloc((size_t)count, sizeof *all);
    struct messages messages = {fabric, all, count, start_ns};
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
        m->own = sends ? &m->box->sends[m->number % PLACES] : &m->box->receives[m->number % PLACES];
        m->peers =
            sends ? &m->box->receives[m->number % PLACES] : &m->box->sends[m->number % PLACES];
        m->done = m->bytes == 0;
        if (sends && !m->done) fine &= make_room(fabric, peer);
    }
    fabric_ring(fabric);
    fine = fine && fabric_wait(fabric, messages_move, &messages, FOR_EVER);
    for (int i = 0; fine && i < count; i++) ready_ns[i] = message_ready_ns(&all[i], start_ns);
    free(all);
    return fine;
}
