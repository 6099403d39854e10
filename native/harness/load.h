// Synthetic load: callbacks of a given shape and rate, for any interface version.
#ifndef NCCLSCOPE_LOAD_H
#define NCCLSCOPE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct load_options {
    const char *plugin;
    int version;
    int threads;           // at a time
    uint64_t collectives;  // per thread
    int channels, steps;   // proxy ops are 2 x channels, each with this many steps
    double rate;           // callbacks a second and thread; 0: as fast as possible
    int comms;             // created first, used in turn, destroyed at the end
    int generations;       // how often threads are replaced by new ones
    long pause_ms;         // before each new generation
    uint64_t die_at;       // SIGKILL right after this many callbacks
    int end;               // enum play_end
    bool stalls;           // time every callback
    // Self-checking events instead of NCCL-like ones; progress is written to this file.
    const char *oracle;
};

int load(const struct load_options *options);

// Random and hostile handles and contexts, from two threads.
struct fuzz_options {
    const char *plugin;
    int version;
    uint64_t calls, seed;
};
int fuzz(const struct fuzz_options *options);

#endif
