// Network transfers: posted, sent or received, over, step by step.
#define _GNU_SOURCE
#include <unistd.h>

#include "progress_parts.h"
#include "settings.h"
#include "stream.h"

void transfer_start(struct progress *progress, struct item *item) {
    const struct proxy_op *op = &item->op;
    if (!profiler_wants(op->mask, NCCL_PROXY_OP)) return;
    item->handle = report_start(progress, (struct host_event){.type = NCCL_PROXY_OP,
                                                              .parent = op->parent,
                                                              .rank = progress->rank,
                                                              .pid = (int)getpid(),
                                                              .channel = op->channel,
                                                              .peer = op->peer,
                                                              .steps = op->steps,
                                                              .chunk_size = op->chunk_bytes,
                                                              .is_send = op->is_send});
}

// States of the whole transfer, up to 2.26.
static void op_state(struct item *item, int which, int steps) {
    if (settings()->version < 22700 && item->handle)
        host_state(&profiler, item->handle, which + (item->op.is_send ? 0 : 4), true,
                   item->size_bytes, steps);
}

static void step_state(struct item *item, int step, int which) {
    report_state(item->steps[step % MAX_DEPTH].handle, which, item->size_bytes);
}

static void count_bytes(struct item *item) {
    if (settings()->version < 22700) item->size_bytes += item->op.step_bytes;
    else item->size_bytes = item->op.step_bytes;
}

static bool post_step(struct progress *progress, struct item *item) {
    int step = item->posted;
    if (step == item->op.steps || step - item->done == item->op.depth) return false;
    if (!item->in_progress) {
        if (settings()->version < 22700) transfer_start(progress, item);
        else report_state(item->handle, NCCL_OP_IN_PROGRESS, 0);
        item->in_progress = true;
    }
    void *handle = NULL;
    if (profiler_wants(item->op.mask, NCCL_PROXY_STEP))
        handle = report_start(progress, (struct host_event){.type = NCCL_PROXY_STEP,
                                                            .parent = item->handle,
                                                            .rank = progress->rank,
                                                            .step = step});
    item->steps[step % MAX_DEPTH] = (struct step){handle, 0};
    item->posted++;
    op_state(item, 0, item->posted);
    step_state(item, step, item->op.is_send ? NCCL_STEP_SEND_GPU_WAIT : NCCL_STEP_RECV_WAIT);
    return true;
}

static bool may_send(const struct item *item) {
    uint64_t received = __atomic_load_n(&item->run->received[item->op.channel], __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(&item->run->start_ns, __ATOMIC_ACQUIRE)) return false;
    switch (item->op.after) {
        case AFTER_TURN_BEFORE:
            return received + (uint64_t)item->op.steps_per_turn > (uint64_t)item->moved;
        case AFTER_SAME_STEP: return received > (uint64_t)item->moved;
        default: return true;
    }
}

static void earlier(int64_t *next_ns, int64_t t) {
    if (*next_ns == FOR_EVER || t < *next_ns) *next_ns = t;
}

static bool progress_send(struct progress *progress, struct item *item, int64_t *next_ns) {
    bool moved = false;
    if (item->moved < item->posted && may_send(item)) {
        int step = item->moved++;
        op_state(item, 1, item->moved);
        if (settings()->version >= 22700) step_state(item, step, NCCL_STEP_SEND_PEER_WAIT);
        count_bytes(item);
        op_state(item, 2, item->moved);
        step_state(item, step, NCCL_STEP_SEND_WAIT);
        item->steps[step % MAX_DEPTH].done_ns = sim_now_ns() + item->op.step_ns;
        moved = true;
    }
    if (item->done < item->moved && !(item->run->holds & NCCLSCOPE_HOLD_SENDS)) {
        struct step *step = &item->steps[item->done % MAX_DEPTH];
        if (sim_now_ns() < step->done_ns) {
            earlier(next_ns, step->done_ns);
            return moved;
        }
        report_stop(step->handle);
        item->done++;
        op_state(item, 3, item->done);
        fabric_add_step(progress->fabric, item->op.peer, item->op.channel);
        moved = true;
    }
    return moved;
}

static bool progress_receive(struct progress *progress, struct item *item) {
    bool moved = false;
    bool is_last = item->moved + 1 == item->op.steps;
    bool is_held = is_last && item->run->holds & NCCLSCOPE_HOLD_LAST_RECEIVE;
    uint64_t come = fabric_steps(progress->fabric, item->op.peer, progress->rank, item->op.channel);
    if (item->moved < item->posted && !is_held && come > item->base + (uint64_t)item->moved) {
        int step = item->moved++;
        count_bytes(item);
        op_state(item, 1, item->moved);
        step_state(item, step, NCCL_STEP_RECV_FLUSH_WAIT);
        moved = true;
    } else if (item->passed < item->moved) {
        int step = item->passed++;
        op_state(item, 2, item->passed);
        step_state(item, step, NCCL_STEP_RECV_GPU_WAIT);
        moved = true;
    } else if (item->done < item->passed &&
               __atomic_load_n(&item->run->start_ns, __ATOMIC_ACQUIRE)) {  // the kernel takes it
        report_stop(item->steps[item->done % MAX_DEPTH].handle);
        item->done++;
        op_state(item, 3, item->done);
        __atomic_add_fetch(&item->run->received[item->op.channel], 1, __ATOMIC_RELEASE);
        moved = true;
    }
    return moved;
}

bool transfer_progress(struct progress *progress, struct item *item, int64_t *next_ns) {
    bool moved = post_step(progress, item);
    moved |= item->op.is_send ? progress_send(progress, item, next_ns)
                              : progress_receive(progress, item);
    if (item->done == item->op.steps) {
        report_stop(item->handle);
        run_release(item->run);
        item->finished = true;
    }
    return moved;
}
