// Writes the live page and what has changed of the tally.
#include "live.h"

#include <string.h>

#include "arena.h"
#include "comm.h"
#include "config.h"
#include "drain.h"
#include "sink.h"
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
static void write_page(const struct clock_pair *now, bool ended) {
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
    sink_write_page(FILE_LIVE, page, (used + 1) * sizeof *page, 0);
}

struct record {
    union slot tally;
    struct times times;
};

static void write_tally(void) {
    totals_update();
    for (u32 place = 0; place < totals_places(); place++) {
        struct totals_entry *entry = totals_at(place);
        if (!entry || !entry->changed) continue;
        struct record record = {.times = entry->times};
        record.tally.head = head_word(KIND_tally, 0, 0, entry->record);
        record.tally.tally.count = entry->key.count;
        record.tally.tally.calls = entry->calls;
        record.tally.tally.count_sum = entry->count_sum;
        record.tally.words[TALLY_WORD] = entry->key.word;
        sink_write_page(FILE_TALLY, &record, sizeof record, (size_t)entry->record * sizeof record);
        entry->changed = !sink_is_open();
    }
}

void live_write(const struct clock_pair *now, bool ended) {
    write_tally();
    write_page(now, ended);
}
