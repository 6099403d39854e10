// GPU stamps of channels: against the host's clock, and gathered by work.
#include <stdlib.h>

#include "columns.h"

#define FARTHEST 9.2e18  // a damaged stamp is not farther away
enum stamp { VALID, REPAIRED, RECOVERED, REJECTED, MISSING };

// The channels of works, as model/channels.py describes them.
struct channels {
    i64 count;
    const i64 *work;
    const i64 *gpu_start;
    const i64 *gpu_stop;
    const i64 *seen_start_ns;
    const i64 *seen_end_ns;
    const i8 *stamp;
    const i8 *reason;
    const i32 *gpu;
};

struct gpu_clock {
    struct bound lower;
    struct bound minus_upper;  // no knots: nothing is known
    struct piece near_lower;
    struct piece near_upper;
};

// The bound at a host time, rounded to whole ns upwards.
static i64 bound_at(const struct bound *bound, i64 host_ns, struct piece *near) {
    const struct lines *line = &bound->line;
    double time = (double)(host_ns - bound->first_ns);
    double value = line_at(line, time, near), outside = 0;
    if (time < line->x[0]) outside = line->x[0] - time;
    else if (time > line->x[line->count - 1]) outside = time - line->x[line->count - 1];
    value -= outside * bound->drift;
    if (!(value > -FARTHEST)) return -(i64)FARTHEST + bound->base_ns;
    i64 whole = (i64)value;  // towards zero
    return whole + ((double)whole < value) + bound->base_ns;
}

// The bound at many times. It must be known.
EXPORT void ncclscope_bound_at(const struct bound *bound, const i64 *host_ns, i64 count, i64 *out) {
    struct piece near = NO_PIECE;
    for (i64 i = 0; i < count; i++) out[i] = bound_at(bound, host_ns[i], &near);
}

// The host time of a stamp: in the middle of the bounds on the offset.
static i64 to_host(struct gpu_clock *clock, i64 stamp) {
    i64 rough = stamp - clock->lower.base_ns;
    i64 low = bound_at(&clock->lower, rough, &clock->near_lower);
    if (!clock->minus_upper.line.count) return stamp - low;
    i64 high = -bound_at(&clock->minus_upper, rough, &clock->near_upper);
    return stamp - (high > low ? low + (high - low) / 2 : low);
}

static int is_timed(const struct channels *channels, i64 at) {
    return channels->gpu_stop[at] != NONE && channels->stamp[at] <= RECOVERED;
}

// Start and end of each channel on the host's clock, NONE without a believable stamp. Clocks are
// numbered as GPUs are; those without a lower bound are nobody's.
EXPORT void ncclscope_time_channels(const struct channels *channels, struct gpu_clock *clocks,
                                    i64 clock_count, i64 *start, i64 *end) {
    for (i64 gpu = 0; gpu < clock_count; gpu++)
        clocks[gpu].near_lower = clocks[gpu].near_upper = NO_PIECE;
    for (i64 i = 0; i < channels->count; i++) {
        i64 gpu = channels->gpu[i], seen = channels->seen_end_ns[i];
        start[i] = end[i] = NONE;
        if (!is_timed(channels, i) || gpu < 0 || gpu >= clock_count ||
            !clocks[gpu].lower.line.count)
            continue;
        start[i] = to_host(&clocks[gpu], channels->gpu_start[i]);
        end[i] = start[i] + channels->gpu_stop[i] - channels->gpu_start[i];
        // Not after it was seen; bounds leave single points out by fractions of a microsecond.
        if (channels->stamp[i] == VALID && seen != NONE && end[i] > seen) {
            i64 late = end[i] - seen;
            start[i] -= late;
            end[i] -= late;
        }
    }
}

// What the channels of each work tell; NONE, or zero for counts, where there is none.
struct work_times {
    i64 count;
    i64 *start_ns;
    i64 *end_ns;
    i64 *seen_start_ns;
    i64 *seen_end_ns;
    i32 *timed;     // channels with a believable stamp
    i32 *reported;  // channels that NCCL reported
    i8 *stamp;      // the worst
    i8 *reason;
    i8 *running;  // a channel started and did not stop
};

static void clear(const struct work_times *works) {
    for (i64 i = 0; i < works->count; i++) {
        works->start_ns[i] = works->end_ns[i] = NONE;
        works->seen_start_ns[i] = works->seen_end_ns[i] = NONE;
        works->timed[i] = works->reported[i] = 0;
        works->stamp[i] = NONE;
        works->reason[i] = works->running[i] = 0;
    }
}

EXPORT void ncclscope_times_of_works(const struct channels *channels, const i64 *start,
                                     const i64 *end, const struct work_times *works) {
    clear(works);
    for (i64 i = 0; i < channels->count; i++) {
        i64 work = channels->work[i];
        if (work < 0 || work >= works->count) continue;
        if (is_timed(channels, i)) {
            int first = works->timed[work]++ == 0;
            if (first || start[i] < works->start_ns[work]) works->start_ns[work] = start[i];
            if (first || end[i] > works->end_ns[work]) works->end_ns[work] = end[i];
        }
        if (channels->stamp[i] > works->stamp[work]) works->stamp[work] = channels->stamp[i];
        if (channels->reason[i] > works->reason[work]) works->reason[work] = channels->reason[i];
        works->reported[work] += channels->stamp[i] != RECOVERED;
        i64 seen = channels->seen_start_ns[i];
        if (seen == NONE) continue;
        if (works->seen_start_ns[work] == NONE || seen < works->seen_start_ns[work])
            works->seen_start_ns[work] = seen;
        if (channels->seen_end_ns[i] == NONE) works->running[work] = 1;
        else if (channels->seen_end_ns[i] > works->seen_end_ns[work])
            works->seen_end_ns[work] = channels->seen_end_ns[i];
    }
    for (i64 i = 0; i < works->count; i++)
        if (works->running[i]) works->seen_end_ns[i] = NONE;
}

// What is known of a channel so far.
struct strand {
    i64 last_start;
    i64 last_stop;
    i64 last_group;
    struct piece near;
};

static int fits(const struct channels *channels, i64 at, struct strand *strand,
                const struct bound *lower, const i64 *not_before_ns, const i64 *group, i64 works) {
    i64 start = channels->gpu_start[at], stop = channels->gpu_stop[at], work = channels->work[at];
    if (work < 0 || work >= works || stop < start || start < strand->last_start) return 0;
    if (start - bound_at(lower, channels->seen_end_ns[at], &strand->near) < not_before_ns[work])
        return 0;
    if (strand->last_stop > start && group[work] != strand->last_group) return 0;
    strand->last_start = start, strand->last_stop = stop, strand->last_group = group[work];
    return 1;
}

// Which channels have stamps that all fit as they are: each work after its launch, and after the
// work before it unless both are of one group. `strand_of`: the channel of each event, NONE for
// those without stamps; `not_before_ns` and `group` are the works'. Returns 0, or -1 without
// memory.
EXPORT int ncclscope_fitting(const struct channels *channels, const i32 *strand_of, i64 strands,
                             const struct gpu_clock *clocks, i64 clock_count,
                             const i64 *not_before_ns, const i64 *group, i64 works, i8 *fitting) {
    struct strand *found = malloc((size_t)(strands + 1) * sizeof *found);
    if (!found) return -1;
    for (i64 i = 0; i < strands; i++) {
        found[i] = (struct strand){INT64_MIN, INT64_MIN, NONE, NO_PIECE};
        fitting[i] = 1;
    }
    for (i64 i = 0; i < channels->count; i++) {
        i64 strand = strand_of[i], gpu = channels->gpu[i];
        if (strand < 0 || strand >= strands || !fitting[strand]) continue;
        fitting[strand] =
            gpu >= 0 && gpu < clock_count && clocks[gpu].lower.line.count &&
            fits(channels, i, &found[strand], &clocks[gpu].lower, not_before_ns, group, works);
    }
    free(found);
    return 0;
}

// Points that bound an offset: at `time` it is at least value - minus. `chosen`: which of them
// count, NULL for all.
struct points {
    i64 count;
    const i64 *time;
    const i64 *value;
    const i64 *minus;
    const i8 *chosen;
};

// The first of the highest points of each run of points in one bin. Bins begin at the first time.
// Returns how many there are, the first time, and the highest point.
EXPORT i64 ncclscope_best_of_bins(const struct points *points, i64 bin_ns, i64 *best, i64 *first_ns,
                                  i64 *highest) {
    i64 found = 0, low = 0, high = 0;  // of the bin
    i64 height = 0;                    // of the best point
    *first_ns = INT64_MAX, *highest = INT64_MIN;
    for (i64 i = 0; i < points->count; i++)
        if ((!points->chosen || points->chosen[i]) && points->time[i] < *first_ns)
            *first_ns = points->time[i];
    for (i64 i = 0; i < points->count; i++) {
        if (points->chosen && !points->chosen[i]) continue;
        i64 at = points->time[i] - *first_ns, value = points->value[i] - points->minus[i];
        if (value > *highest) *highest = value;
        if (!found || at < low || at >= high) {
            low = at - at % bin_ns, high = low + bin_ns;
            best[found++] = i, height = value;
        } else if (value > height) {
            best[found - 1] = i, height = value;
        }
    }
    return found;
}

// The lowest concave line over points in the order of time: its knots. Returns how many there are.
EXPORT i64 ncclscope_hull(const double *time, const double *value, i64 count, double *t,
                          double *v) {
    i64 kept = 0;
    for (i64 i = 0; i < count; i++) {
        while (kept && t[kept - 1] == time[i] && v[kept - 1] <= value[i]) kept--;
        if (kept && t[kept - 1] == time[i]) continue;
        while (kept > 1) {
            double dt = t[kept - 1] - t[kept - 2], dv = v[kept - 1] - v[kept - 2];
            if (dv * (time[i] - t[kept - 2]) > (value[i] - v[kept - 2]) * dt) break;
            kept--;
        }
        t[kept] = time[i], v[kept++] = value[i];
    }
    return kept;
}
