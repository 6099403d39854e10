// Numbers that are the same in every run: xorshift64, Marsaglia 2003. The state must not be 0.
#ifndef NCCLSCOPE_RANDOM_H
#define NCCLSCOPE_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

#endif
