// Helper: joins the times of sampled launches with the operations that they carried, and counts the
// calls of captured graphs.
//
// The slots of a launch come in one stream, in this order: its calls (CollApi, P2pApi), which have
// the GroupApi as their parent, as the KernelLaunch has; then the KernelLaunch; then its operations
// (Coll, P2p). Its LaunchTime comes later, maybe in another stream.
//
// Example: a group of two Sends of one key and one Recv of another. The launch's time is added to
// both keys: two operations and one, all three of them `grouped`.
#ifndef NCCLSCOPE_SAMPLED_LAUNCHES_H
#define NCCLSCOPE_SAMPLED_LAUNCHES_H

#include "tally.h"
#include "totals.h"

void sampled_launches_note_group(u64 handle, const struct slot_group_api *group);
void sampled_launches_note_call(const struct slot_coll_api *call);
void sampled_launches_note_launch(u64 handle, const struct slot_kernel_launch *launch);
// chan is 1 where the parent is a GroupApi, because NCCL reports no launch.
void sampled_launches_note_time(const struct slot_launch_time *time);
// An operation of the newest launch of its stream and communicator.
void sampled_launches_note_operation(u64 handle, u16 comm, struct totals_entry *entry);
// Once a second, when calls are added up: how many works of a key sampling did not choose, and how
// many were made while it was switched off.
void sampled_launches_count_not_sampled(struct totals_entry *entry);
// Sampling has been switched off, or is about to go on.
void sampled_launches_note_switch(bool off);
// Once a second, after a pass: adds up the times of launches that are complete.
void sampled_launches_settle(bool last);
// Writes GraphCall of what has changed, of everything where the metadata was begun anew.
void sampled_launches_write_graph_calls(void);

#endif
