// A checksum that finds damage, as quickly as memory is read. It keeps nobody from forging one.
#include <string.h>

#include "arrays.h"

#define FACTOR 0x9E3779B97F4A7C15ull
enum { LANES = 8 };

// Takes `count` words more into the state. Each step can be undone, so a changed word changes it.
EXPORT void ncclscope_checksum(u64 *state, const u64 *words, i64 count) {
    u64 lane[LANES];
    memcpy(lane, state, sizeof lane);
    i64 whole = count - count % LANES;
    for (i64 i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++) {
            u64 mixed = (lane[l] ^ words[i + l]) * FACTOR;
            lane[l] = mixed ^ mixed >> 29;
        }
    for (i64 i = whole; i < count; i++) {
        u64 mixed = (lane[i % LANES] ^ words[i]) * FACTOR;
        lane[i % LANES] = mixed ^ mixed >> 29;
    }
    memcpy(state, lane, sizeof lane);
}
