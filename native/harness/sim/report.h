// What NCCL reports about calls, launches and works, in the order of the simulated release.
#ifndef NCCLSCOPE_SIM_REPORT_H
#define NCCLSCOPE_SIM_REPORT_H

#include "profiler.h"
#include "work.h"

// The API level, from 2.28 on; NULL where nothing is reported.
void *report_group_start(struct comm *comm, int mask, bool captured, int depth);
void report_group_ends(void *group_api);
void report_group_stop(void *group_api);
void *report_call(struct comm *comm, const struct work *work, void *group_api, void *stream,
                  bool captured);

void *report_launch_start(const struct plan *plan);
void report_launch_stop(void *launch);
// Group, Coll and P2p; between start and stop the proxies get their work.
void report_works(struct plan *plan);

#endif
