// GPU stamps of channels: against the host's clock, and gathered by work.
#include <stdlib.h>
#include <string.h>

#include "arrays.h"

#define FARTHEST \
    9.2e18  // The bound at a time, relative to its first, that the piece asked for last does not
            // reach.
static double far_bound_at(const struct bound *bound, double time, struct line_piece *near) {
    const struct lines *line = &bound->line;
    double value = line_at(line, time, near), outside = 0;
    if (time < line->x[0]) outside = line->x[0] - time;
    else if (time > line->x[line->count - 1]) outside = time - line->x[line->count - 1];
    return value - outside * bound->drift;
}

// The bound at a host time, rounded to whole ns upwards.
static inline i64 bound_at(const struct bound *bound, i64 host_ns, struct line_piece *near) {
    double time = (double)(host_ns - bound->first_ns), value;
    if (near->low <= time && time < near->high) value = near->slope * (time - near->low) + near->y;
    else value = far_bound_at(bound, time, near);
    if (!(value > -FARTHEST)) return -(i64)FARTHEST + bound->base_ns;
    i64 whole = (i64)value;  // towards zero
    return whole + ((double)whole < value) + bound->base_ns;
}

// The bound at many times. It must be known.
EXPORT void ncclscope_bound_at(const struct bound *bound, const i64 *host_ns, i64 count, i64 *out) {
    struct line_piece near = NO_PIECE;
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

static void begin(const struct gpu_clocks *clocks) {
    for (i64 gpu = 0; gpu < clocks->count; gpu++)
        clocks->clock[gpu].near_lower = clocks->clock[gpu].near_upper = NO_PIECE;
}

struct span {
    i64 start;
    i64 end;
};

// A channel on the host's clock, NONE without a believable stamp.
static inline struct span span_of(const struct channels *channels, const struct gpu_clocks *clocks,
                                  i64 at) {
    i64 gpu = channels->gpu[at], seen = channels->seen_end_ns[at];
    if (!is_timed(channels, at) || gpu < 0 || gpu >= clocks->count ||
        !clocks->clock[gpu].lower.line.count)
        return (struct span){NONE, NONE};
    i64 start = to_host(&clocks->clock[gpu], channels->gpu_start[at]);
    i64 end = start + channels->gpu_stop[at] - channels->gpu_start[at];
    // Not after it was seen; bounds leave single points out by fractions of a microsecond.
    i64 late = channels->stamp[at] == VALID && seen != NONE && end > seen ? end - seen : 0;
    return (struct span){start - late, end - late};
}

// Start and end of each channel.
EXPORT void ncclscope_time_channels(const struct channels *channels,
                                    const struct gpu_clocks *clocks, i64 *start, i64 *end) {
    begin(clocks);
    for (i64 i = 0; i < channels->count; i++) {
        struct span span = span_of(channels, clocks, i);
        start[i] = span.start, end[i] = span.end;
    }
}

// The same of one work.
struct own_times {
    i64 start_ns;
    i64 end_ns;
    i64 seen_start_ns;
    i64 seen_end_ns;
    i32 timed;
    i32 reported;
    i8 stamp;
    i8 reason;
    i8 running;
};

static inline struct own_times load(const struct work_times *works, i64 at) {
    return (struct own_times){works->start_ns[at],    works->end_ns[at], works->seen_start_ns[at],
                              works->seen_end_ns[at], works->timed[at],  works->reported[at],
                              works->stamp[at],       works->reason[at], works->running[at]};
}

static inline void store(const struct work_times *works, i64 at, const struct own_times *times) {
    works->start_ns[at] = times->start_ns, works->end_ns[at] = times->end_ns;
    works->seen_start_ns[at] = times->seen_start_ns, works->seen_end_ns[at] = times->seen_end_ns;
    works->timed[at] = times->timed, works->reported[at] = times->reported;
    works->stamp[at] = times->stamp, works->reason[at] = times->reason;
    works->running[at] = times->running;
}

static void clear(const struct work_times *works) {
    size_t count = (size_t)works->count;
    i64 *times[] = {works->start_ns, works->end_ns, works->seen_start_ns, works->seen_end_ns};
    for (int i = 0; i < 4; i++) memset(times[i], NONE, count * sizeof *times[i]);
    memset(works->timed, 0, count * sizeof *works->timed);
    memset(works->reported, 0, count * sizeof *works->reported);
    memset(works->stamp, NONE, count);
    memset(works->reason, 0, count);
    memset(works->running, 0, count);
}

static inline void add_channel(struct own_times *times, const struct channels *channels, i64 at,
                               struct span span) {
    if (is_timed(channels, at)) {
        // Which channel was first is a matter of chance: no branch can foresee it.
        int first = times->timed++ == 0, earlier = span.start < times->start_ns;
        int later = span.end > times->end_ns;
        times->start_ns = first | earlier ? span.start : times->start_ns;
        times->end_ns = first | later ? span.end : times->end_ns;
    }
    if (channels->stamp[at] > times->stamp) times->stamp = channels->stamp[at];
    if (channels->reason[at] > times->reason) times->reason = channels->reason[at];
    times->reported += channels->stamp[at] != RECOVERED;
    i64 seen_start = channels->seen_start_ns[at], seen_end = channels->seen_end_ns[at];
    if (seen_start == NONE) return;
    int first = times->seen_start_ns == NONE, earlier = seen_start < times->seen_start_ns;
    times->seen_start_ns = first | earlier ? seen_start : times->seen_start_ns;
    times->running |= seen_end == NONE;
    times->seen_end_ns = seen_end > times->seen_end_ns ? seen_end : times->seen_end_ns;
}

EXPORT void ncclscope_times_of_works(const struct channels *given, const struct gpu_clocks *clocks,
                                     const struct work_times *found) {
    const struct channels channels = *given;  // no store can change these
    const struct work_times works = *found;
    begin(clocks);
    clear(&works);
    i64 work = NONE;  // whose times are at hand: a work's channels most often follow each other
    struct own_times times = {0};
    for (i64 i = 0; i < channels.count; i++) {
        i64 next = channels.work[i];
        if (next < 0 || next >= works.count) continue;
        if (next != work) {
            if (work != NONE) store(&works, work, &times);
            work = next, times = load(&works, work);
        }
        add_channel(&times, &channels, i, span_of(&channels, clocks, i));
    }
    if (work != NONE) store(&works, work, &times);
    for (i64 i = 0; i < works.count; i++)
        if (works.running[i]) works.seen_end_ns[i] = NONE;
}

// When the launch of each channel's work began; `sure`: which of these bound the clock of a GPU
// from above, as those of its own stamps do. Returns how many that are.
EXPORT i64 ncclscope_launches_of_channels(const struct channels *given, i64 gpu,
                                          const i64 *launch_ns, i64 works, i64 *launched,
                                          i8 *sure) {
    const struct channels channels = *given;
    i64 found = 0;
    for (i64 i = 0; i < channels.count; i++) {
        i64 work = channels.work[i];
        launched[i] = work >= 0 && work < works ? launch_ns[work] : NONE;
        sure[i] = channels.gpu[i] == gpu && channels.stamp[i] <= REPAIRED &&
                  channels.gpu_start[i] != NONE && launched[i] != NONE;
        found += sure[i];
    }
    return found;
}

enum { MOST_COMMS = 1 << 16, MOST_CHANNELS = 1 << 8 };

// Numbers the channels of communicators in the order of first occurrence: the number of each
// event's with stamps, NONE for others. Returns how many there are, or -1 without memory.
EXPORT i64 ncclscope_strands(const struct channels *given, i32 *strand_of) {
    const struct channels channels = *given;
    i32 *numbers = calloc(MOST_COMMS * MOST_CHANNELS, sizeof *numbers);  // from 1 on, 0: not seen
    i32 found = 0;
    if (!numbers) return -1;
    for (i64 i = 0; i < channels.count; i++) {
        i32 place = channels.comm[i] << 8 | channels.channel[i];
        strand_of[i] = NONE;
        if (channels.gpu_stop[i] == NONE || place < 0 || place >= MOST_COMMS * MOST_CHANNELS)
            continue;
        if (!numbers[place]) numbers[place] = ++found;
        strand_of[i] = numbers[place] - 1;
    }
    free(numbers);
    return found;
}

// What is known of a channel so far.
struct strand {
    i64 last_start;
    i64 last_stop;
    i64 last_group;
    struct line_piece near;
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
                             const struct gpu_clocks *clocks, const i64 *not_before_ns,
                             const i64 *group, i64 works, i8 *fitting) {
    struct strand *found = malloc((size_t)(strands + 1) * sizeof *found);
    if (!found) return -1;
    for (i64 i = 0; i < strands; i++) {
        found[i] = (struct strand){INT64_MIN, INT64_MIN, NONE, NO_PIECE};
        fitting[i] = 1;
    }
    for (i64 i = 0; i < channels->count; i++) {
        i64 strand = strand_of[i], gpu = channels->gpu[i];
        if (strand < 0 || strand >= strands || !fitting[strand]) continue;
        fitting[strand] = gpu >= 0 && gpu < clocks->count && clocks->clock[gpu].lower.line.count &&
                          fits(channels, i, &found[strand], &clocks->clock[gpu].lower,
                               not_before_ns, group, works);
    }
    free(found);
    return 0;
}

// The first of the highest points of each run of points in one bin. Bins begin at the first time.
// Returns how many there are, the first time, and the highest point.
EXPORT i64 ncclscope_best_of_bins(const struct points *points, i64 bin_ns, i64 *best, i64 *first_ns,
                                  i64 *highest) {
    i64 found = 0, low = 0, high = 0;  // of the bin
    i64 height = 0;                    // of the best point
    i64 first = INT64_MAX, top = INT64_MIN;
    for (i64 i = 0; i < points->count; i++)
        if ((!points->chosen || points->chosen[i]) && points->time[i] < first)
            first = points->time[i];
    for (i64 i = 0; i < points->count; i++) {
        if (points->chosen && !points->chosen[i]) continue;
        i64 at = points->time[i] - first, value = points->value[i] - points->minus[i];
        if (value > top) top = value;
        if (!found || at < low || at >= high) {
            low = at - at % bin_ns, high = low + bin_ns;
            best[found++] = i, height = value;
        } else if (value > height) {
            best[found - 1] = i, height = value;
        }
    }
    *first_ns = first, *highest = top;
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
