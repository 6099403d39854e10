// Collectives through two chunks a rank.
#define _GNU_SOURCE
#include <string.h>

#include "fabric_parts.h"
#include "reduce.h"

static bool never(void *argument) {
    (void)argument;
    return false;
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
    const struct announced *own = &me(c->fabric)->collectives[c->number % PLACES];
    c->ready_ns = own->start_ns;
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
        if (!same_request(own, other)) c->differs = true;
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
    fabric_announce(&me(fabric)->collectives[c.number % PLACES], c.number, spec, start_ns);
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
