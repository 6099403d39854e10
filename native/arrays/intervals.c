// Unions of intervals.
#include "arrays.h"

// What is known of a group so far.
struct open {
    i64 last_start;
    i64 until;
    i64 length;  // of the union
    i64 disordered;
};

// Adds up, by group, how long at least one of its intervals lasts. A group whose starts do not come
// in order is marked instead. `open` has a place for each group: INT64_MIN twice, then zeros.
EXPORT void ncclscope_unions(const i32 *group, const i64 *start, const i64 *end, i64 count,
                             struct open *open, i64 groups) {
    for (i64 i = 0; i < count; i++) {
        if (group[i] < 0 || group[i] >= groups) continue;
        struct open *mine = &open[group[i]];
        if (mine->disordered) continue;
        if (start[i] < mine->last_start) {
            mine->disordered = 1;
            continue;
        }
        mine->last_start = start[i];
        i64 from = start[i] > mine->until ? start[i] : mine->until;
        if (end[i] > from) {
            mine->length += end[i] - from;
            mine->until = end[i];
        }
    }
}
