// Communicators.
#ifndef NCCLSCOPE_SIM_COMM_H
#define NCCLSCOPE_SIM_COMM_H

#include <pthread.h>

#include "fabric.h"
#include "progress.h"

struct comm {
    struct fabric *fabric;
    int ranks, rank, device, nodes;
    uint64_t id;
    char segment[64];
    int splits;
    void *context;  // the plugin's
    bool reported;  // to the plugin

    // Handing works to proxies; also what the host counts.
    pthread_mutex_t hand_lock;
    struct progress *proxy, *poller;  // the same up to 2.30
    uint64_t sequence[ALL_REDUCE + 1];
    struct channel channels[MAX_CHANNELS];

    // Works run in the order of their launches, whatever stream they are on.
    pthread_mutex_t turn_lock;
    pthread_cond_t turn_changed;
    uint64_t launched, run;
    int64_t end_ns;  // of the last work
};

// Sets *why where it fails.
ncclResult_t comm_make(struct comm **made, int ranks, int rank, const ncclUniqueId *id,
                       const ncclConfig_t *config, const char **why);
ncclResult_t comm_split(struct comm *comm, int color, int key, struct comm **made,
                        const ncclConfig_t *config, const char **why);
void comm_wait(struct comm *comm);  // until all launched works have run
void comm_destroy(struct comm *comm, bool abort);
ncclResult_t comm_new_id(ncclUniqueId *id);

// The progress threads are made with the first work that needs them.
void comm_need_progress(struct comm *comm);
// A time of the simulated GPU as its timer shows it.
uint64_t comm_gpu_ns(const struct comm *comm, int64_t t);
int comm_global_rank(const struct comm *comm, int rank);
bool comm_over_network(const struct comm *comm, int a, int b);

#endif
