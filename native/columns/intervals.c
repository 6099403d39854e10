// Unions of intervals.
#include <stdlib.h>

#include "columns.h"

// Adds up, by group, how long at least one of its intervals lasts. A group whose starts do not come
// in order is marked instead. Returns 0, or -1 without memory.
EXPORT int ncclscope_unions(const i32 *group, const i64 *start, const i64 *end, i64 count,
                            i64 groups, i64 *length, i8 *disordered) {
    struct open {
        i64 last_start;
        i64 until;
    } *open = malloc((size_t)(groups + 1) * sizeof *open);
    if (!open) return -1;
    for (i64 g = 0; g < groups; g++) {
        open[g] = (struct open){INT64_MIN, INT64_MIN};
        length[g] = disordered[g] = 0;
    }
    for (i64 i = 0; i < count; i++) {
        i64 g = group[i];
        if (g < 0 || g >= groups || disordered[g]) continue;
        struct open *mine = &open[g];
        if (start[i] < mine->last_start) {
            disordered[g] = 1;
            continue;
        }
        mine->last_start = start[i];
        i64 from = start[i] > mine->until ? start[i] : mine->until;
        if (end[i] > from) {
            length[g] += end[i] - from;
            mine->until = end[i];
        }
    }
    free(open);
    return 0;
}
