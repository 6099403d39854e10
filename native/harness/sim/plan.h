// A plan: made of the calls of a group, launched, and run when its turn has come.
#ifndef NCCLSCOPE_SIM_PLAN_H
#define NCCLSCOPE_SIM_PLAN_H

#include "work.h"

// Whether anything of a captured plan is reported at each replay.
bool plan_reports_replays(const struct plan *plan);

// `works` in the order of the calls.
struct plan *plan_make(struct comm *comm, struct stream *stream, const struct work *works,
                       int count, void *group_api);
// Launches it, or adds it to a graph, with everything that NCCL reports while it does so. False:
// the stream's capture has been invalidated, and nothing is launched.
bool plan_launch(struct plan *plan);

#endif
