// Fields of many slots as columns: each slot is read once, whatever is wanted of it.
#include <math.h>
#include <string.h>

#include "arrays.h"

enum source { FROM_U8, FROM_U16, FROM_U32, FROM_I32, FROM_U64 };
enum sink { TO_I8, TO_I16, TO_I32, TO_I64 };
enum meaning {
    AS_NUMBER,
    AS_TIME,    // ticks become ns of the host's clock
    AS_KEY,     // a handle of this process becomes a key, any other NONE
    AS_NAME,    // a string's number; from 256 on, interface v1's numbers
    AS_CHOICE,  // whether the head is as `mask` and `want` say
    AS_LATER,   // ticks since the event began, as a time
};

// One column. Where the slot's first four bytes are not as `mask` and `want` say, the value is
// NONE, or left as it is where `keep` is set.
struct column {
    void *out;
    u32 mask;
    u32 want;
    u8 offset;
    u8 source;
    u8 sink;
    u8 meaning;
    u8 keep;
    u8 spare[7];
};

// A process's clock and the upper bits of its handles; capture/clock.py explains it.
struct reading {
    i64 origin_ticks;
    i64 base_ns;
    double ns_per_tick;
    double farthest_ns;
    u64 nonce;
    struct lines line;
};

static const union slot no_slot;

static double nearest(double value) {
    const double whole = 4503599627370496.0 * 1.5;  // adding it leaves no room for fractions
    return fabs(value) < 2251799813685248.0 ? (value + whole) - whole : value;
}

// The time of ticks that the piece asked for last does not reach.
static i64 far_time_of(const struct reading *reading, double x, struct piece *near) {
    const struct lines *line = &reading->line;
    i64 last = line->count - 1;
    double ns;
    if (x > line->x[last]) ns = line->y[last] + (x - line->x[last]) * reading->ns_per_tick;
    else if (x < line->x[0]) ns = line->y[0] + (x - line->x[0]) * reading->ns_per_tick;
    else ns = line_at(line, x, near);
    ns = ns > reading->farthest_ns ? reading->farthest_ns : ns;
    ns = ns < -reading->farthest_ns ? -reading->farthest_ns : ns;
    return (i64)nearest(ns) + reading->base_ns;
}

static inline i64 time_of(const struct reading *reading, u64 ticks, struct piece *near) {
    double x = (double)(i64)(ticks - (u64)reading->origin_ticks);
    if (!(near->low <= x && x < near->high)) return far_time_of(reading, x, near);
    return (i64)nearest(near->slope * (x - near->low) + near->y) + reading->base_ns;
}

enum { BATCH = 256 };  // slots and numbers of a batch stay in the nearest cache

#define READ_AS(type, to)                                            \
    for (i64 i = 0; i < count; i++) {                                \
        type value;                                                  \
        memcpy(&value, (const u8 *)slots[i] + offset, sizeof value); \
        numbers[i] = (to)value;                                      \
    }                                                                \
    break

static void read_numbers(const union slot **slots, i64 count, u32 offset, int source,
                         i64 *numbers) {
    switch (source) {
        case FROM_U8: READ_AS(u8, i64);
        case FROM_U16: READ_AS(u16, i64);
        case FROM_U32: READ_AS(u32, i64);
        case FROM_I32: READ_AS(i32, i64);
        default: READ_AS(u64, i64);
    }
}

static u32 head_of(const union slot *slot) {
    u32 head;
    memcpy(&head, slot, sizeof head);
    return head;
}

static int chosen(const struct column *column, const union slot *slot) {
    return (head_of(slot) & column->mask) == column->want;
}

static inline i64 key_of(const struct reading *reading, u64 handle) {
    i64 key = (i64)(handle & ((1ull << (STREAM_BITS + INDEX_BITS)) - 1));
    return handle >> (STREAM_BITS + INDEX_BITS) == reading->nonce ? key : NONE;
}

static void give_meaning(const struct column *column, const struct reading *reading,
                         const union slot **slots, i64 count, i64 *numbers, struct piece *near) {
    switch (column->meaning) {
        case AS_TIME:
            for (i64 i = 0; i < count; i++)
                if (!column->mask || chosen(column, slots[i]))
                    numbers[i] = time_of(reading, (u64)numbers[i], near);
            break;
        case AS_LATER:
            for (i64 i = 0; i < count; i++)
                if (!column->mask || chosen(column, slots[i]))
                    numbers[i] = time_of(reading, slots[i]->group.t0 + (u64)numbers[i], near);
            break;
        case AS_KEY:
            for (i64 i = 0; i < count; i++) numbers[i] = key_of(reading, (u64)numbers[i]);
            break;
        case AS_NAME:
            for (i64 i = 0; i < count; i++) numbers[i] += slots[i]->flags & FLAG_NUMBERS ? 256 : 0;
            break;
        case AS_CHOICE:
            for (i64 i = 0; i < count; i++) numbers[i] = chosen(column, slots[i]);
            break;
        default: break;
    }
}

#define STORE_AS(type)                                                   \
    for (i64 i = 0; i < count; i++)                                      \
        if (!select || chosen(column, slots[i]))                         \
            ((type *)column->out)[first + i] = (type)numbers[i];         \
        else if (!column->keep) ((type *)column->out)[first + i] = NONE; \
    break

static void store(const struct column *column, const union slot **slots, i64 first, i64 count,
                  const i64 *numbers) {
    int select = column->mask && column->meaning != AS_CHOICE;
    switch (column->sink) {
        case TO_I8: STORE_AS(i8);
        case TO_I16: STORE_AS(i16);
        case TO_I32: STORE_AS(i32);
        default: STORE_AS(i64);
    }
}

static u64 word_of(const union slot *slot, u32 offset) {
    u64 word;
    memcpy(&word, (const u8 *)slot + offset, sizeof word);
    return word;
}

#define COPY_AS(from, to)                                            \
    for (i64 i = 0; i < count; i++) {                                \
        from value;                                                  \
        memcpy(&value, (const u8 *)slots[i] + offset, sizeof value); \
        ((to *)column->out)[first + i] = (to)value;                  \
    }                                                                \
    return 1

#define COPY_FROM(from)                  \
    switch (column->sink) {              \
        case TO_I8: COPY_AS(from, i8);   \
        case TO_I16: COPY_AS(from, i16); \
        case TO_I32: COPY_AS(from, i32); \
        default: COPY_AS(from, i64);     \
    }

// What most columns are, in one loop each: numbers, names, keys and times. Returns 0 for others.
static int read_at_once(const struct column *column, const struct reading *reading,
                        const union slot **slots, i64 first, i64 count, struct piece *near) {
    u32 offset = column->offset;
    i64 *out = (i64 *)column->out;
    int words = column->source == FROM_U64 && column->sink == TO_I64;
    if (column->meaning == AS_TIME && words) {
        for (i64 i = 0; i < count; i++)
            if (!column->mask || chosen(column, slots[i]))
                out[first + i] = time_of(reading, word_of(slots[i], offset), near);
            else if (!column->keep) out[first + i] = NONE;
        return 1;
    }
    if (column->meaning == AS_NUMBER && words && column->mask) {
        for (i64 i = 0; i < count; i++)
            if (chosen(column, slots[i])) out[first + i] = (i64)word_of(slots[i], offset);
            else if (!column->keep) out[first + i] = NONE;
        return 1;
    }
    if (column->mask) return 0;
    if (column->meaning == AS_KEY && words) {
        for (i64 i = 0; i < count; i++) out[first + i] = key_of(reading, word_of(slots[i], offset));
        return 1;
    }
    if (column->meaning == AS_NAME && column->sink == TO_I16) {
        for (i64 i = 0; i < count; i++) {
            int numbers = slots[i]->flags & FLAG_NUMBERS ? 256 : 0;
            ((i16 *)column->out)[first + i] = (i16)(numbers + ((const u8 *)slots[i])[offset]);
        }
        return 1;
    }
    if (column->meaning != AS_NUMBER) return 0;
    switch (column->source) {
        case FROM_U8: COPY_FROM(u8);
        case FROM_U16: COPY_FROM(u16);
        case FROM_U32: COPY_FROM(u32);
        case FROM_I32: COPY_FROM(i32);
        default: COPY_FROM(u64);
    }
}

void read_fields(const u64 *addresses, i64 first, i64 end, const struct reading *reading,
                 const struct wanted *wanted, struct piece *near) {
    const struct column *columns = wanted->columns;
    const union slot *slots[BATCH];
    i64 numbers[BATCH];
    if (!wanted->count) return;
    for (; first < end; first += BATCH) {
        i64 some = end - first < BATCH ? end - first : BATCH;
        for (i64 i = 0; i < some; i++) {
            u64 address = addresses[first + i];
            slots[i] = address ? (const union slot *)(uintptr_t)address : &no_slot;
        }
        i64 next = first + BATCH, last = next + BATCH < end ? next + BATCH : end;
        for (i64 c = 0; c < wanted->count; c++) {
            // The next batch comes while this one is worked on, some slots with each column: there
            // is no waiting for memory as long as it is not asked for too much at once.
            for (i64 most = next + (BATCH + wanted->count - 1) / wanted->count;
                 next < last && next < most; next++)
                __builtin_prefetch((const void *)(uintptr_t)addresses[next]);
            if (read_at_once(&columns[c], reading, slots, first, some, near)) continue;
            read_numbers(slots, some, columns[c].offset, columns[c].source, numbers);
            give_meaning(&columns[c], reading, slots, some, numbers, near);
            store(&columns[c], slots, first, some, numbers);
        }
    }
}

// Columns of `count` slots, given by their addresses; 0 stands for a slot of zeros.
EXPORT void ncclscope_fields(const u64 *addresses, i64 count, const struct reading *reading,
                             const struct wanted *wanted) {
    struct piece near = NO_PIECE;
    read_fields(addresses, 0, count, reading, wanted, &near);
}
