// Counting calls and following operations goes on in every mode, so totals stay exact. What changes
// is which events NCCL reports, and whether slots go to disk. A Zoom slot in the metadata says from
// when on.
#include "recording_mode.h"

#include "clock.h"
#include "config.h"
#include "event_filter.h"
#include "log.h"
#include "meta.h"
#include "sampled_launches.h"
#include "timing_policy.h"
#include "tracker.h"

#define SECOND_NS 1000000000ull

static enum mode first_mode;
static u64 until_ns, until_calls;  // 0: no end

// Groups that start from here on are of the new mode; what is written of a group follows its start.
// The slot's time is the one after which, or before which, every group is written.
static void change(enum mode mode, u32 events) {
    union slot slot = {0};
    u64 before = clock_ticks();
    config.mode = mode;
    event_filter_set_events(events);
    timing_policy_settle_groups();
    slot.zoom.events = events;
    slot.zoom.mode = (u8)mode;
    slot.zoom.gpu_timing = (u8)timing_policy.in_force;
    slot.zoom.writes = mode != MODE_PROFILE || config.ring_bytes != 0;
    slot.zoom.t0 = slot.zoom.writes ? clock_ticks() : before;
    meta_append(KIND_zoom, &slot);
}

// Calls are counted as made without sampling from after it stopped until before it goes on.
static bool switch_sampling(enum gpu_timing timing) {
    if (timing == GPU_TIMING_SAMPLED) sampled_launches_note_switch(false);
    bool done = timing_policy_switch(timing);
    if (done && timing_policy.by_events && timing == GPU_TIMING_OFF)
        sampled_launches_note_switch(true);
    return done;
}

static void reset(void) {
    until_ns = until_calls = 0;
    bool paused = timing_policy.by_events && timing_policy.in_force == GPU_TIMING_OFF;
    if (paused) switch_sampling(GPU_TIMING_SAMPLED);
    if (first_mode || paused) change(first_mode ? first_mode : config.mode, config.first_events);
}

static void switch_gpu_timing(enum gpu_timing timing) {
    u32 events = __atomic_load_n(&config.events, __ATOMIC_RELAXED);
    if (switch_sampling(timing)) change(config.mode, events);
    else
        log_note("GPU timing stays %s while the job runs",
                 config_timing_name(timing_policy.in_force));
}

void recording_mode_apply(const struct control_request *request) {
    if (request->reset) reset();
    if (request->gpu_timing) switch_gpu_timing(request->gpu_timing);
    if (!request->mode) return;
    if (!first_mode) first_mode = config.mode;
    u32 events = timing_policy_events_of_mode(request->mode);
    if (request->events) {  // of those that may change
        u32 fixed = timing_policy_events_of_mode(MODE_PROFILE);
        events = fixed | (request->events & timing_policy_events_of_mode(MODE_FULL));
    }
    until_ns = request->seconds ? clock_monotonic_ns() + request->seconds * SECOND_NS : 0;
    until_calls = request->calls ? tracker_calls() + request->calls : 0;
    change(request->mode, events);
}

void recording_mode_check_deadline(void) {
    bool late = until_ns && clock_monotonic_ns() >= until_ns;
    if (late || (until_calls && tracker_calls() >= until_calls)) reset();
}
