// What NCCL decides about an operation: algorithm, protocol, channels, and the steps of its network
// proxies. As the recorded jobs show it for two ranks; with more, rings only.
#ifndef NCCLSCOPE_SIM_TUNING_H
#define NCCLSCOPE_SIM_TUNING_H

#include <stdbool.h>

#include "fabric.h"

struct tuning {
    const char *algo, *proto;
    int first_channel, channels, warps;
    int shown_channels;      // as NCCL reports them: up to 2.26 the most there could be
    int steps, chunk_bytes;  // of each network proxy
    bool send_first;         // of its two proxies
};

// `ranks` of the communicator, `network`: it spans hosts; `grouped` with other collectives,
// `place`: its place among them.
struct tuning tuning_of(const struct transfer_spec *spec, int ranks, bool network, bool grouped,
                        int place);
// On one host, the collectives of a group lie side by side on as many channels as they fill.
void tuning_share_channels(struct tuning *tunings, const size_t *traffic, int count);
// Bytes that the scheduler sorts a group's collectives by.
size_t tuning_traffic(const struct transfer_spec *spec, int ranks);
// In which round of its group a message travels, and on which channel.
int tuning_round(int distance, int ranks);
int tuning_message_channel(int round, bool network);

#endif
