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

// The piece of a line that was asked for last: the next time is most often on it.
struct piece {
    double low;  // from here to below `high`; none at first
    double high;
    double y;
    double slope;
};
#define NO_PIECE ((struct piece){.low = 1, .high = 0})

// The piece that `x`, which lies within the knots, is on.
static inline void find_piece(const struct lines *line, double x, struct piece *piece) {
    i64 low = 0, high = line->count - 1;
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (line->x[middle] <= x) low = middle;
        else high = middle;
    }
    piece->low = line->x[low], piece->high = line->x[low + 1], piece->y = line->y[low];
    piece->slope = (line->y[low + 1] - line->y[low]) / (line->x[low + 1] - line->x[low]);
}

// The line at `x`; its first or last value outside of the knots.
static inline double line_at(const struct lines *line, double x, struct piece *piece) {
    if (!(piece->low <= x && x < piece->high)) {
        i64 last = line->count - 1;
        if (!(x > line->x[0])) return line->y[0];
        if (x >= line->x[last]) return line->y[last];
        find_piece(line, x, piece);
    }
    return piece->slope * (x - piece->low) + piece->y;
}

// What is wanted of the slots of one kind: columns, as fields.c describes them.
struct column;
struct wanted {
    i64 count;
    const struct column *columns;
};
struct reading;

// Reads columns of the slots at places `first` to below `end`. `near`: of the last call, or
// NO_PIECE.
void read_fields(const u64 *addresses, i64 first, i64 end, const struct reading *reading,
                 const struct wanted *wanted, struct piece *near);

#endif
