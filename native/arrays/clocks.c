// Times of one node on another's clock.
#include <math.h>

#include "arrays.h"

// The line that was asked for last, from above `low` to `high`.
struct stretch {
    double low;
    double high;
    double from;
    double length;
    double value;
    double change;
};

static void find_stretch(const struct lines *line, double x, struct stretch *found) {
    i64 low = 0, high = line->count - 1;  // the first knot that is not less than x is up to `high`
    while (low < high) {
        i64 middle = low + (high - low) / 2;
        if (line->x[middle] < x) low = middle + 1;
        else high = middle;
    }
    i64 last = line->count - 2, at = low - 1 < 0 ? 0 : low - 1;
    if (line->x[line->count - 1] < x || at > last) at = last;
    found->low = at ? line->x[at] : -INFINITY;
    found->high = at < last ? line->x[at + 1] : INFINITY;
    found->from = line->x[at], found->length = line->x[at + 1] - line->x[at];
    found->value = line->y[at], found->change = line->y[at + 1] - line->y[at];
}

static double to_nearest(double value) {
    const double whole = 4503599627370496.0 * 1.5;  // adding it leaves no room for fractions
    return fabs(value) < 2251799813685248.0 ? (value + whole) - whole : rint(value);
}

EXPORT void ncclscope_to_reference(const struct node_clock *clock, const i64 *local_ns, i64 count,
                                   i64 *out) {
    struct stretch near = {.low = 1, .high = 0};
    for (i64 i = 0; i < count; i++) {
        double x = (double)(local_ns[i] - clock->first_ns), add = 0;
        if (clock->line.count > 1) {
            if (!(near.low < x && x <= near.high)) find_stretch(&clock->line, x, &near);
            add = to_nearest(near.value + (x - near.from) / near.length * near.change);
        }
        out[i] = local_ns[i] + clock->offset_ns + (i64)add;
    }
}
