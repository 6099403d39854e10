// Plays the part of a program that uses NVTX.
#ifndef NCCLSCOPE_RANGES_H
#define NCCLSCOPE_RANGES_H

#include <stdint.h>

struct ranges_options {
    const char *plugin;
    int version, threads;
    uint64_t calls, seed;
};

// All functions of NVTX from several threads, well used and not, between NCCL's callbacks.
int ranges_fuzz(const struct ranges_options *options);
// ns of a push with its pop, and of reading the clock, a line each.
int ranges_cost(const struct ranges_options *options);

#endif
