// Loops over a capture's slots and over the model's columns: what numpy takes many passes for is
// done here in one. Python says which fields become which columns, and gives all meaning.
//
// Arrays belong to the caller, who states their lengths. Numbers that come from a capture are
// checked against those before they are used as places. Differences of damaged numbers wrap around,
// as they do in numpy (-fwrapv).
#ifndef NCCLSCOPE_COLUMNS_H
#define NCCLSCOPE_COLUMNS_H

#include <stddef.h>

#include "ncclscope/format.h"

#define EXPORT __attribute__((visibility("default")))
#define NONE (-1)

typedef int8_t i8;
typedef int16_t i16;

// Any slot.
#define AS_MEMBER(number, suffix, name, fields) struct slot_##suffix suffix;
union slot {
    struct {
        HEAD_FIELDS(DECLARE_FIELD, DECLARE_ARRAY)
    };
    SLOT_KINDS(AS_MEMBER)
};
#undef AS_MEMBER

// Straight lines between knots; what lies before the first and behind the last is the caller's.
struct lines {
    i64 count;
    const double *x;
    const double *y;
};

// A lower bound on an offset: model/gpu_clock.py explains it.
struct bound {
    i64 first_ns;
    i64 base_ns;
    double drift;
    struct lines line;  // no knots: nothing is known
};

// The knot at or before `x`, which lies within the knots; `near` is where the last one was found.
static inline i64 knot_before(const struct lines *line, double x, i64 near) {
    if (near + 1 < line->count && line->x[near] <= x && x < line->x[near + 1]) return near;
    if (near + 2 < line->count && line->x[near + 1] <= x && x < line->x[near + 2]) return near + 1;
    i64 low = 0, high = line->count;
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (line->x[middle] <= x) low = middle;
        else high = middle;
    }
    return low;
}

// The line at `x`; its first or last value outside of the knots.
static inline double line_at(const struct lines *line, double x, i64 *near) {
    i64 last = line->count - 1;
    if (!(x > line->x[0])) return line->y[0];
    if (x >= line->x[last]) return line->y[last];
    i64 at = *near = knot_before(line, x, *near);
    if (line->x[at] == x) return line->y[at];
    double slope = (line->y[at + 1] - line->y[at]) / (line->x[at + 1] - line->x[at]);
    return slope * (x - line->x[at]) + line->y[at];
}

#endif
