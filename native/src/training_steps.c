// What ends a step: a mark of ncclscope.torch, else the end of a step of the first optimizer.
#include "training_steps.h"

#include <stdbool.h>
#include <string.h>

#include "range_text.h"

#define MAX_TOKENS (1ull << 48)  // of a step: a larger number is a mistake

static struct {
    u64 steps, last, before_last;  // ends, in ticks
    u64 data;                      // ticks in data loading
    u64 tokens;
    u8 source;
    u32 text;
} seen;
static struct {
    u64 handle, t0;
    enum live_phase phase;
} newest;  // the range of a phase that began last; no handle: it has ended
static u64 ticks_per_second;

static enum live_phase phase_of(const struct slot_range *range, u8 source) {
    if (source == RANGE_ENGINE) return PHASE_BACKWARD;
    switch (range_text_class(range->text)) {
        case CLASS_DATA: return PHASE_DATA;
        case CLASS_FORWARD: return PHASE_FORWARD;
        case CLASS_BACKWARD: return PHASE_BACKWARD;
        case CLASS_OPTIMIZER: return PHASE_OPTIMIZER;
        default: return PHASE_UNKNOWN;
    }
}

static void end_step(u64 ticks) {
    if (seen.steps && ticks < seen.last) return;  // another thread's, visited later
    seen.steps++;
    seen.before_last = seen.last;
    seen.last = ticks;
}

static void count_from(u8 source, u32 text) {
    memset(&seen, 0, offsetof(__typeof__(seen), data));
    seen.source = source;
    seen.text = text;
}

static void see_step(const struct slot_range *range, u8 source, bool is_mark) {
    enum text_class class = range_text_class(range->text);
    if (source == RANGE_API && class == CLASS_STEP && is_mark) {
        if (seen.source != RANGE_API) count_from(RANGE_API, range->text);
        end_step(range->t0);
    } else if (class == CLASS_OPTIMIZER && !is_mark) {
        if (!seen.text) count_from(source, range->text);
        if (seen.source != RANGE_API && seen.text == range->text) end_step(range->t1);
    }
}

void training_steps_see(u64 handle, const union slot *slot) {
    const struct slot_range *range = &slot->range;
    u8 source = head_chan(slot->head);
    bool ended = head_states(slot->head) & STATE_STOPPED;
    bool is_mark = head_states(slot->head) & STATE_FIRST;
    enum live_phase phase = is_mark ? PHASE_UNKNOWN : phase_of(range, source);
    if (ended) see_step(range, source, is_mark);
    if (is_mark && source == RANGE_API && range_text_class(range->text) == CLASS_TOKENS)
        seen.tokens += range->payload < MAX_TOKENS ? range->payload : 0;
    if (phase == PHASE_UNKNOWN) return;
    if (ended && phase == PHASE_DATA) seen.data += range->t1 - range->t0;
    if (ended && newest.handle == handle) newest.handle = 0;
    if (range->t0 < newest.t0) return;
    newest.t0 = range->t0;
    newest.handle = ended ? 0 : handle;
    newest.phase = phase;
}

void training_steps_use_rate(u64 hz) { ticks_per_second = hz; }

u32 training_steps_text(void) { return seen.text; }

static u64 to_ns(u64 ticks) {
    return ticks_per_second ? (u64)((double)ticks * 1e9 / (double)ticks_per_second) : 0;
}

size_t training_steps_live(union slot *out) {
    if (!seen.steps && !newest.t0) return 0;
    memset(out, 0, sizeof *out);
    out->live_step.steps = seen.steps;
    out->live_step.t_last = seen.last;
    out->live_step.last_ns = seen.steps > 1 ? to_ns(seen.last - seen.before_last) : 0;
    out->live_step.tokens = seen.tokens;
    out->live_step.data_ns = to_ns(seen.data);
    out->live_step.t_phase = newest.handle ? newest.t0 : 0;
    out->live_step.phase = newest.handle ? (u8)newest.phase : (u8)PHASE_UNKNOWN;
    out->live_step.source = seen.source;
    out->live_step.text = seen.text;
    out->head = head_word(KIND_live_step, 0, 0, 0);
    return 1;
}
