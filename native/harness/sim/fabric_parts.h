// What the ranks of a communicator share, and what each keeps of it: fabric.c makes it,
// collective.c and message.c move bytes through it.
#ifndef NCCLSCOPE_SIM_FABRIC_PARTS_H
#define NCCLSCOPE_SIM_FABRIC_PARTS_H

#include <stdatomic.h>

#include "fabric.h"

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

static inline struct mailbox *mailbox(const struct fabric *fabric, int from, int to) {
    return &fabric->mailboxes[from * fabric->ranks + to];
}

static inline struct shared_member *me(const struct fabric *fabric) {
    return &fabric->shared->members[fabric->rank];
}

// Says that this rank has arrived at its operation `number`.
void fabric_announce(struct announced *place, uint64_t number, const struct transfer_spec *spec,
                     int64_t start_ns);

#endif
