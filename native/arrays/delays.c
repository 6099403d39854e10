// Explains waits: follows both sides of a wait back in time to where they part, and charges it to
// the events on the way that took longer than usual. analysis/waiting/delays.py explains it.
#include <stdlib.h>

#include "arrays.h"

#define LONGEST_WALK 4096
#define LEAST_EXCESS_NS 1000

struct part {
    i32 event;  // NONE: nobody's
    double excess;
};

struct walk {
    struct part part[LONGEST_WALK + 1];
    int parts;
    double positive;    // sum of the parts' excess
    double structural;  // usual lengths of the late side less those of the early one
    double unknown;     // lengths of the late side without a usual length
    double quicker;     // of the early side, by which it was quicker than usual
};

static void add_edge(struct walk *walk, int late, i32 event, double length, double usual) {
    if (usual < 0) {  // not known
        if (late) walk->unknown += length;
        return;
    }
    double excess = late ? length - usual : usual - length;
    walk->structural += late ? usual : -usual;
    if (excess <= LEAST_EXCESS_NS) return;
    walk->positive += excess;
    if (late) walk->part[walk->parts++] = (struct part){event, excess};
    else walk->quicker += excess;
}

// Walks back from both starts, always from the later one, until they meet or reach the horizon.
static void follow(const struct event_graph *graph, i64 late, i64 early, i64 horizon_ns,
                   struct walk *walk) {
    i64 at[2] = {3 * late + EVENT_START, 3 * early + EVENT_START};
    i64 lowest = graph->time_ns[at[1]] - horizon_ns;
    walk->parts = 0;
    walk->positive = walk->structural = walk->unknown = walk->quicker = 0;
    for (int steps = 0; steps < 2 * LONGEST_WALK && at[0] != at[1]; steps++) {
        int side = at[0] < 0 || (at[1] >= 0 && graph->time_ns[at[1]] > graph->time_ns[at[0]]);
        i64 event = at[side];
        if (event < 0 || walk->parts == LONGEST_WALK) break;
        i64 before = graph->before[event], time = graph->time_ns[event];
        double usual = graph->usual_ns[event];
        int blocked = event % 3 == EVENT_START ? graph->blocked[event / 3] : BLOCKED_NOT;
        // The rank that waits was ready before what held it back ended: its own course counts.
        if (side && blocked) {
            double transfer = blocked == BLOCKED_OVERLAPPED ? 0 : graph->usual_ns[before];
            usual = usual < 0 || transfer < 0 ? -1 : usual + transfer;
            before += EVENT_START - EVENT_END;
        }
        i64 from = before >= 0 ? graph->time_ns[before] : lowest;
        double whole = (double)(time - from);
        if (!side && blocked && usual > whole) usual = whole;  // its own course was not the reason
        if (from < lowest) {  // of an edge that crosses the horizon its part counts
            if (usual > 0 && whole > 0) usual *= (double)(time - lowest) / whole;
            whole = (double)(time - lowest);
            from = lowest;
        }
        add_edge(walk, !side, (i32)event, whole > 0 ? whole : 0, usual);
        at[side] = from <= lowest ? NONE : before;
    }
}

// A share of a wait in whole ns, and no more than is left of it.
static i64 share_of(double part, double scale, i64 *left) {
    i64 share = (i64)(part * scale);
    if (share > *left) share = *left;
    *left -= share;
    return share;
}

// Adds a share of a wait to its event, and to the tables by rank.
static void charge(const struct event_graph *graph, const struct waits *waits, i64 wait, i32 event,
                   i64 share, const struct charges *out) {
    out->by_event[event] += share;
    i64 origin = graph->origin[event];
    if (origin < 0) return;
    if (out->by_ranks) {  // origins x ranks is too large for each thread to have its own
        i64 *of_both = &out->by_ranks[origin * waits->ranks + waits->early_rank[wait]];
        __atomic_fetch_add(of_both, share, __ATOMIC_RELAXED);
    }
    if (origin == waits->late_rank[wait]) out->own_of_last[origin] += share;
}

// Charges each wait, in whole ns, so that its charges sum to it: to events, to structure, and to
// what is not known. Returns 0, or -1 without memory.
EXPORT int ncclscope_charge_waits(const struct event_graph *graph, const struct waits *waits,
                                  i64 horizon_ns, const struct charges *out) {
    struct walk *walk = malloc(sizeof *walk);
    if (!walk) return -1;
    for (i64 i = 0; i < waits->count; i++) {
        follow(graph, waits->late[i], waits->early[i], horizon_ns, walk);
        double structural = walk->structural > 0 ? walk->structural : 0;
        double all = walk->positive + walk->unknown + structural;
        i64 left = waits->wait_ns[i];
        double scale = all > 0 ? (double)left / all : 0;
        int largest = 0;
        for (int k = 0; k < walk->parts; k++) {
            if (walk->part[k].excess > walk->part[largest].excess) largest = k;
            i64 share = share_of(walk->part[k].excess, scale, &left);
            charge(graph, waits, i, walk->part[k].event, share, out);
        }
        out->sums[CHARGED_STRUCTURE] += share_of(structural, scale, &left);
        out->sums[CHARGED_QUICKER] += share_of(walk->quicker, scale, &left);
        out->sums[CHARGED_UNKNOWN] += share_of(walk->unknown, scale, &left);
        // What rounding leaves goes to the largest part.
        if (walk->parts) charge(graph, waits, i, walk->part[largest].event, left, out);
        else if (walk->unknown > 0) out->sums[CHARGED_UNKNOWN] += left;
        else out->sums[CHARGED_STRUCTURE] += left;
    }
    free(walk);
    return 0;
}

// The events from this one back to the first after `first_ns`. Returns how many there are.
EXPORT i64 ncclscope_path_back(const i64 *time_ns, const i32 *before, i64 event, i64 first_ns,
                               i64 room, i64 *events) {
    i64 count = 0;
    while (event >= 0 && time_ns[event] > first_ns && count < room) {
        events[count++] = event;
        event = before[event];
    }
    return count;
}
