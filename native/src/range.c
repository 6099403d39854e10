// Nests of ranges, and their slots.
#include "range.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "event.h"

#define DEPTH 64u
#define FORGOTTEN 16u  // of the outermost, when a nest is full: pushes that nobody pops pile up

// An open range of a thread.
struct entry {
    u64 handle;  // of its slot; where it has none, of the range around it
    u16 stack;
    bool recorded;
    bool remembered;  // its slot is in `remembered` of the nest
    bool is_nccl_call;
};

struct range_nest {
    u32 depth;
    struct entry entries[DEPTH];
    union slot *remembered;  // as many as entries; NULL: none is
};

static pthread_once_t once = PTHREAD_ONCE_INIT, clock_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_exit;
static bool has_key;
static bool calls_are_events;
static bool begun;

static void forget_nest(void *nest) {
    if (writer_self.nest == nest) writer_self.nest = NULL;
    free(((struct range_nest *)nest)->remembered);
    free(nest);
}

static void make_key(void) { has_key = pthread_key_create(&thread_exit, forget_nest) == 0; }

static struct writer *own_writer(void) {
    return LIKELY(callback_state.fast_path) ? writer_in_static_tls() : &writer_self;
}

static u8 use_of_ranges(void) { return __atomic_load_n(&callback_state.ranges, __ATOMIC_ACQUIRE); }

static COLD void count_dropped(void) {
    if (use_of_ranges() == RANGES_RECORDED) arena_count(COUNTER_dropped_ranges, 0);
}

// ---- nests ----
static void remove_entries(struct range_nest *nest, u32 at, u32 count) {
    u32 behind = nest->depth - at - count;
    memmove(&nest->entries[at], &nest->entries[at + count], behind * sizeof *nest->entries);
    if (nest->remembered)
        memmove(&nest->remembered[at], &nest->remembered[at + count],
                behind * sizeof *nest->remembered);
    nest->depth -= count;
}

// The thread's nest with room for one more; NULL: there is no memory.
static COLD struct range_nest *nest_with_room(struct writer *writer) {
    struct range_nest *nest = writer->nest;
    if (nest) {
        remove_entries(nest, 0, FORGOTTEN);
        return nest;
    }
    pthread_once(&once, make_key);
    nest = has_key ? calloc(1, sizeof *nest) : NULL;
    if (nest && pthread_setspecific(thread_exit, nest) != 0) {
        free(nest);
        nest = NULL;
    }
    writer->nest = nest;
    return nest;
}

// ---- slots ----
static void fill_payload(struct slot_range *slot, const struct range *range) {
    u64 words[2] = {0, 0};
    size_t bytes = range->payload_bytes;
    if (range->payload_type)
        memcpy(words, range->payload, bytes < sizeof words ? bytes : sizeof words);
    slot->payload = words[0];
    slot->payload2 = words[1];
    slot->payload_type = range->payload_type;
    slot->payload_bytes = (u8)bytes;
    slot->schema = range->schema;
}

static inline void fill(struct slot_range *slot, const struct range *range, u64 around) {
    slot->parent = around;
    slot->text = range->text;
    slot->category = range->category;
    slot->domain = range->domain;
    slot->payload = slot->payload2 = 0;
    slot->payload_type = slot->payload_bytes = 0;
    slot->schema = 0;
    if (UNLIKELY(range->payload_type)) fill_payload(slot, range);
}

// Pieces of a payload from `offset` on, in slots of their own.
static COLD void write_pieces(struct writer *writer, u64 parent, const struct range *range,
                              size_t offset) {
    u64 handle;
    size_t bytes = range->payload_bytes, piece = sizeof((struct slot_range_payload *)0)->data;
    for (; offset < bytes; offset += piece) {
        union slot *slot = writer_take(writer, 1, RANGE_EVENT, &handle);
        if (!slot) return;
        memset(&slot->words[1], 0, SLOT_BYTES - 8);
        slot->range_payload.parent = parent;
        slot->range_payload.t0 = clock_ticks();
        slot->range_payload.schema = range->schema;
        slot->range_payload.bytes = (u16)bytes;
        slot->range_payload.offset = (u16)offset;
        size_t left = bytes - offset;
        memcpy(slot->range_payload.data, (const char *)range->payload + offset,
               left < piece ? left : piece);
        slot_commit(slot, head_word(KIND_range_payload, 0, 0, handle));
    }
}

static void write_unplaced(union slot *slot, const struct range *range, u64 handle) {
    size_t room = sizeof slot->range_text.text, bytes = range->unplaced_bytes;
    memset(slot->range_text.text, 0, room);
    memcpy(slot->range_text.text, range->unplaced, bytes < room ? bytes : room);
    slot_commit(slot, head_word(KIND_range_text, 0, 0, handle));
}

// A range's handle; 0: there was no room for it, and that was counted. `states`: of a mark.
static inline u64 write_range(struct writer *writer, const struct range *range, u64 around,
                              unsigned flags, unsigned states) {
    u64 handle;
    if (UNLIKELY(!writer->stream)) {
        count_dropped();
        return 0;
    }
    // Where memory is short a chunk may have room for one slot only.
    bool extends = !range->text && range->unplaced && !writer->low_priority_closed;
    union slot *slot = writer_take(writer, extends ? 2 : 1, RANGE_EVENT, &handle);
    if (UNLIKELY(!slot)) return 0;
    fill(&slot->range, range, around);
    slot->range.t0 = slot->range.t1 = clock_ticks();
    if (UNLIKELY(extends)) {
        arena_count(COUNTER_range_texts_dropped, 0);
        write_unplaced(slot + 1, range, handle + 1);
        flags |= FLAG_EXT;
    }
    slot_commit(slot,
                head_with_states(head_word(KIND_range, range->source, flags, handle), states));
    if (UNLIKELY(range->payload_bytes > 16)) write_pieces(writer, handle, range, 16);
    return handle;
}

// The slot of a range that this thread may edit; NULL: another thread's, or too old.
static union slot *find_range(const struct writer *writer, u64 handle, u64 *head) {
    if (UNLIKELY(!writer->stream)) return NULL;
    union slot *slot = writer_find(writer, handle, head);
    return slot && head_kind(*head) == KIND_range ? slot : NULL;
}

static COLD void store_payload(struct writer *writer, union slot *slot, u64 handle,
                               const struct range *range) {
    struct slot_range now = slot->range;
    fill_payload(&now, range);
    SLOT_STORE(slot->range.payload, now.payload);
    SLOT_STORE(slot->range.payload2, now.payload2);
    SLOT_STORE(slot->words[7], ((const union slot *)&now)->words[7]);  // type, bytes and schema
    if (range->payload_bytes > 16) write_pieces(writer, handle, range, 16);
}

static inline void close_range(struct writer *writer, u64 handle, const struct range *payload) {
    u64 head, now = clock_ticks();
    union slot *slot = find_range(writer, handle, &head);
    bool said = payload && payload->payload_type;
    if (LIKELY(slot)) {
        if (UNLIKELY(head_states(head) & STATE_STOPPED)) return;
        if (UNLIKELY(said)) store_payload(writer, slot, handle, payload);
        SLOT_STORE(slot->range.t1, now);
        slot_commit(slot, head_with_states(head, STATE_STOPPED));
        return;
    }
    if (said && writer->stream) write_pieces(writer, handle, payload, 0);
    event_append_state(handle, STATE_IS_STOP, 0, 0, 0);
}

// ---- before recording ----
static COLD void remember(struct range_nest *nest, const struct range *range) {
    if (!nest->remembered) nest->remembered = calloc(DEPTH, sizeof *nest->remembered);
    if (!nest->remembered) return;
    struct entry *entry = &nest->entries[nest->depth - 1];
    union slot *slot = &nest->remembered[nest->depth - 1];
    entry->remembered = true;
    entry->is_nccl_call = range->is_nccl_call;
    fill(&slot->range, range, 0);
    slot->range.t0 = slot->range.t1 = clock_ticks();
    slot->head = head_word(KIND_range, range->source, 0, 0);
}

static bool is_skipped(bool is_nccl_call) {
    return UNLIKELY(is_nccl_call) && __atomic_load_n(&calls_are_events, __ATOMIC_RELAXED);
}

void range_write_remembered(struct writer *writer) {
    struct range_nest *nest = writer->nest;
    if (!nest || !nest->remembered || use_of_ranges() != RANGES_RECORDED) return;
    u64 around = 0, handle;
    for (u32 i = 0; i < nest->depth; i++) {
        struct entry *entry = &nest->entries[i];
        bool due = entry->remembered && !is_skipped(entry->is_nccl_call);
        union slot *slot = due ? writer_take(writer, 1, RANGE_EVENT, &handle) : NULL;
        entry->remembered = false;
        entry->handle = slot ? handle : around;
        entry->recorded = slot != NULL;
        if (slot) {
            memcpy(&slot->words[1], &nest->remembered[i].words[1], SLOT_BYTES - 8);
            slot->range.parent = around;
            u8 source = head_chan(nest->remembered[i].head);
            slot_commit(slot, head_word(KIND_range, source, 0, handle));
        }
        around = entry->handle;
    }
    free(nest->remembered);
    nest->remembered = NULL;
}

// ---- what producers call ----
HOT int range_push(const struct range *range, unsigned stack) {
    u8 use = use_of_ranges();
    if (UNLIKELY(use == RANGES_OFF)) return -1;
    struct writer *writer = own_writer();
    if (UNLIKELY(!writer->stream) && use == RANGES_RECORDED) writer_of_thread();
    struct range_nest *nest = writer->nest;
    if (UNLIKELY(!nest || nest->depth == DEPTH)) nest = nest_with_room(writer);
    if (UNLIKELY(!nest)) {
        count_dropped();
        return -1;
    }
    u32 depth = nest->depth++;
    struct entry *entry = &nest->entries[depth];
    u64 around = depth ? entry[-1].handle : 0, handle = 0;
    if (LIKELY(use == RANGES_RECORDED) && !is_skipped(range->is_nccl_call))
        handle = write_range(writer, range, around, 0, 0);
    *entry = (struct entry){handle ? handle : around, (u16)stack, handle != 0, false, false};
    if (UNLIKELY(use != RANGES_RECORDED)) remember(nest, range);
    return (int)depth;
}

// The innermost range of a stack; the nest's depth: there is none.
static u32 find_entry(const struct range_nest *nest, unsigned stack) {
    for (u32 at = nest->depth; at-- > 0;)
        if (nest->entries[at].stack == stack) return at;
    return nest->depth;
}

HOT int range_pop(unsigned stack, const struct range *payload) {
    u8 use = use_of_ranges();
    if (UNLIKELY(use == RANGES_OFF)) return -1;
    struct writer *writer = own_writer();
    struct range_nest *nest = writer->nest;
    if (UNLIKELY(!nest || !nest->depth)) return -1;
    if (UNLIKELY(!writer->stream) && use == RANGES_RECORDED) writer_of_thread();
    u32 at = nest->depth - 1;
    if (UNLIKELY(nest->entries[at].stack != stack)) at = find_entry(nest, stack);
    if (UNLIKELY(at == nest->depth)) return -1;
    struct entry entry = nest->entries[at];
    if (LIKELY(at + 1 == nest->depth)) nest->depth = at;
    else remove_entries(nest, at, 1);
    if (LIKELY(entry.recorded) && LIKELY(use == RANGES_RECORDED))
        close_range(writer, entry.handle, payload);
    return (int)at;
}

static u64 write_alone(const struct range *range, unsigned flags, unsigned states) {
    if (use_of_ranges() != RANGES_RECORDED || is_skipped(range->is_nccl_call)) return 0;
    struct writer *writer = writer_of_thread();
    if (!writer) {
        count_dropped();
        return 0;
    }
    const struct range_nest *nest = writer->nest;
    u64 around = nest && nest->depth ? nest->entries[nest->depth - 1].handle : 0;
    return write_range(writer, range, around, flags, states);
}

void range_mark(const struct range *range) { write_alone(range, 0, STATE_FIRST | STATE_STOPPED); }

u64 range_start(const struct range *range) { return write_alone(range, FLAG_SEND, 0); }

void range_end(u64 number, const struct range *payload) {
    if (use_of_ranges() != RANGES_RECORDED || number >> HANDLE_BITS != callback_state.nonce) return;
    struct writer *writer = writer_of_thread();
    if (writer) close_range(writer, number, payload);
}

// ---- life ----
void range_expect(void) {
    pthread_once(&once, make_key);
    if (__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) return;
    pthread_once(&clock_once, clock_choose);
    u8 off = RANGES_OFF;
    __atomic_compare_exchange_n(&callback_state.ranges, &off, RANGES_REMEMBERED, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void range_begin(bool wanted) {
    __atomic_store_n(&begun, true, __ATOMIC_RELEASE);
    __atomic_store_n(&callback_state.ranges, wanted ? RANGES_RECORDED : RANGES_OFF,
                     __ATOMIC_RELEASE);
}

void range_know_interface(unsigned version) {
    if (version >= NCCL_FIRST_WITH_CALLS)
        __atomic_store_n(&calls_are_events, true, __ATOMIC_RELAXED);
}

void range_in_fork_child(void) {
    begun = true;
    callback_state.ranges = RANGES_OFF;
}
