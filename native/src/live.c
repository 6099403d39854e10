// Writes the live page and what has changed of the tally.
#include "live.h"

#include <string.h>

#include "arena.h"
#include "comm.h"
#include "config.h"
#include "drain.h"
#include "sampled_launches.h"
#include "sink.h"
#include "timing_policy.h"
#include "totals.h"
#include "tracker.h"
#include "training_steps.h"

#define PAGE_SLOTS 1024u  // 64 KB at most

static u64 dropped_so_far(void) {
    u64 sum = 0;
    for (unsigned counter = COUNTER_dropped_arena_full; counter <= COUNTER_dropped_unknown_type;
         counter++)
        for (unsigned event = 0; event < COUNTER_EVENTS; event++)
            sum += __atomic_load_n(arena_counter(counter, event), __ATOMIC_RELAXED);
    return sum;
}

// The page begins and ends with the same serial number: a reader sees whether it is half written.
static bool write_page(const struct clock_pair *now, bool ended) {
    static union slot page[PAGE_SLOTS];
    static u64 serial;
    size_t used = 1;
    used += tracker_live(page + used, PAGE_SLOTS / 2);
    used += training_steps_live(page + used);
    used += drain_open_slots(page + used, PAGE_SLOTS - 1 - used);
    struct slot_live *live = &page[0].live;
    memset(live, 0, sizeof *live);
    live->serial = ++serial;
    live->monotonic_ns = now->monotonic_ns;
    live->realtime_ns = now->realtime_ns;
    live->ticks = now->ticks_before;
    live->dropped = dropped_so_far();
    live->slots = (u32)used + 1;
    live->comms_open = comm_open_count();
    live->mode = (u8)config.mode;
    live->phase = ended;
    page[used] = page[0];
    page[0].head = head_word(KIND_live, 0, 0, serial);
    page[used].head = head_word(KIND_live_end, 0, 0, serial);
    bool is_new;
    return sink_open_page(FILE_LIVE, &is_new) &&
           sink_write_page(FILE_LIVE, page, (used + 1) * sizeof *page, 0);
}

struct record {
    union slot tally;
    struct times times;
};

static bool write_entry(const struct totals_entry *entry) {
    struct record record = {.times = entry->times};
    record.tally.head = head_word(KIND_tally, 0, 0, entry->record);
    record.tally.tally.count = entry->key.count;
    record.tally.tally.calls = entry->calls;
    record.tally.tally.count_sum = entry->count_sum;
    record.tally.words[TALLY_WORD] = entry->key.word;
    size_t offset = (size_t)entry->record * sizeof record;
    return sink_write_page(FILE_TALLY, &record, sizeof record, offset);
}

// What could not be written stays changed, and is written with the next heartbeat.
static bool write_tally(void) {
    bool is_new, complete = totals_update();
    if (!sink_open_page(FILE_TALLY, &is_new)) return false;
    for (u32 place = 0; place < totals_places(); place++) {
        struct totals_entry *entry = totals_at(place);
        if (entry && timing_policy.by_events) sampled_launches_count_not_sampled(entry);
        if (!entry || !(entry->changed || is_new)) continue;
        entry->changed = !write_entry(entry);
        complete &= !entry->changed;
    }
    return complete;
}

bool live_write(const struct clock_pair *now, bool ended) {
    bool counts = write_tally();
    return write_page(now, ended) && counts;
}
