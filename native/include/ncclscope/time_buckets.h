// Buckets of the time histograms: equal steps within each octave of ns.
//
// Bucket 0 holds everything below 2^TIME_FIRST_OCTAVE ns. Each octave above it has
// TIME_BUCKETS_PER_OCTAVE buckets of equal width, and the last bucket has no upper end. With 8 to
// an octave and the first octave at 2^9 = 512 ns:
//
//   bucket 0: [0, 512)   1: [512, 576)   2: [576, 640) … 8: [960, 1024)   9: [1024, 1152) …
//
// So 1100 ns is in octave 10; its next three bits below the leading one are 000: bucket
// (10 - 9) * 8 + 0 + 1 = 9. A bucket is at most 12.5 % wide. The three numbers are in format.h;
// capture/call_counts.py computes the bounds from the same three.
#ifndef NCCLSCOPE_TIME_BUCKETS_H
#define NCCLSCOPE_TIME_BUCKETS_H

#include "ncclscope/format.h"

_Static_assert((TIME_BUCKETS_PER_OCTAVE & (TIME_BUCKETS_PER_OCTAVE - 1)) == 0,
               "an octave is cut by the bits below its leading one");
#define TIME_BUCKET_BITS ((unsigned)__builtin_ctz(TIME_BUCKETS_PER_OCTAVE))
_Static_assert((1 << TIME_FIRST_OCTAVE) >= TIME_BUCKETS_PER_OCTAVE, "whole ns");

static inline unsigned time_bucket(u64 ns) {
    if (ns < 1u << TIME_FIRST_OCTAVE) return 0;
    unsigned octave = 63u - (unsigned)__builtin_clzll(ns);
    unsigned step = (unsigned)(ns >> (octave - TIME_BUCKET_BITS)) & (TIME_BUCKETS_PER_OCTAVE - 1);
    unsigned bucket = (octave - TIME_FIRST_OCTAVE) * TIME_BUCKETS_PER_OCTAVE + step + 1;
    return bucket < TIME_BUCKETS ? bucket : TIME_BUCKETS - 1;
}

#endif
