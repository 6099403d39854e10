// Unions of intervals.
#include "arrays.h"

// Adds up, by group, how long at least one of its intervals lasts. A group whose starts do not come
// in order is marked instead. `unions` has a place for each group: INT64_MIN twice, then zeros.
EXPORT void ncclscope_union_lengths(const i32 *group, const i64 *start, const i64 *end, i64 count,
                                    struct interval_union *unions, i64 groups) {
    for (i64 i = 0; i < count; i++) {
        if (group[i] < 0 || group[i] >= groups) continue;
        struct interval_union *own = &unions[group[i]];
        if (own->disordered) continue;
        if (start[i] < own->last_start) {
            own->disordered = 1;
            continue;
        }
        own->last_start = start[i];
        i64 from = start[i] > own->until ? start[i] : own->until;
        if (end[i] > from) {
            own->length += end[i] - from;
            own->until = end[i];
        }
    }
}
