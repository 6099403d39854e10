// What can be said about a work.
#define _GNU_SOURCE
#include "work.h"

#include "profiler.h"
#include "reduce.h"

bool work_is_message(const struct work *work) {
    return work->spec.function == SEND || work->spec.function == RECV;
}

bool work_is_self(const struct comm *comm, const struct work *work) {
    return work_is_message(work) && work->spec.root == comm->rank;
}

bool work_same_round(const struct work *a, const struct work *b) {
    return a->round == b->round && a->order == b->order;
}

bool work_has_kernel_events(const struct work *work) {
    return profiler_wants(work->mask, NCCL_KERNEL_CH);
}

int64_t work_since_first_ns(int64_t t) {
    static int64_t first_ns;
    int64_t none = 0;
    if (__atomic_compare_exchange_n(&first_ns, &none, t, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return 0;
    return t - none;
}

double work_sent_bytes(const struct comm *comm, const struct transfer_spec *spec) {
    double bytes = (double)(spec->count * datatype_bytes(spec->type)), n = comm->ranks;
    switch (spec->function) {
        case ALL_REDUCE: return bytes * 2 * (n - 1) / n;
        case ALL_GATHER:
        case REDUCE_SCATTER: return bytes * (n - 1);
        default: return bytes;
    }
}
