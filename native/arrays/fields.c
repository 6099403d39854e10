// Fields of many slots as columns: each slot is read once, whatever is list of it.
#include <math.h>
#include <string.h>

#include "arrays.h"

static const union slot no_slot;

static double nearest(double value) {
    const double whole = 4503599627370496.0 * 1.5;  // adding it leaves no room for fractions
    return fabs(value) < 2251799813685248.0 ? (value + whole) - whole : value;
}

// The time of ticks that the piece asked for last does not reach.
static i64 far_time_of(const struct tick_converter *converter, double x, struct line_piece *near) {
    const struct lines *line = &converter->line;
    i64 last = line->count - 1;
    double ns;
    if (x > line->x[last]) ns = line->y[last] + (x - line->x[last]) * converter->ns_per_tick;
    else if (x < line->x[0]) ns = line->y[0] + (x - line->x[0]) * converter->ns_per_tick;
    else ns = line_at(line, x, near);
    ns = ns > converter->farthest_ns ? converter->farthest_ns : ns;
    ns = ns < -converter->farthest_ns ? -converter->farthest_ns : ns;
    return (i64)nearest(ns) + converter->base_ns;
}

static inline i64 near_time_of(const struct tick_converter *converter, u64 ticks,
                               struct line_piece *near) {
    double x = (double)(i64)(ticks - (u64)converter->origin_ticks);
    if (!(near->low <= x && x < near->high)) return far_time_of(converter, x, near);
    return (i64)nearest(near->slope * (x - near->low) + near->y) + converter->base_ns;
}

i64 time_of(const struct tick_converter *converter, u64 ticks, struct line_piece *near) {
    return near_time_of(converter, ticks, near);
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

static void give_meaning(const struct column *column, const struct tick_converter *converter,
                         const union slot **slots, i64 count, i64 *numbers,
                         struct line_piece *near) {
    switch (column->meaning) {
        case AS_TIME:
            for (i64 i = 0; i < count; i++)
                if (!column->mask || chosen(column, slots[i]))
                    numbers[i] = near_time_of(converter, (u64)numbers[i], near);
            break;
        case AS_ELAPSED:
            for (i64 i = 0; i < count; i++)
                if (!column->mask || chosen(column, slots[i]))
                    numbers[i] =
                        near_time_of(converter, slots[i]->group.t0 + (u64)numbers[i], near);
            break;
        case AS_KEY:
            for (i64 i = 0; i < count; i++) numbers[i] = key_of(converter, (u64)numbers[i]);
            break;
        case AS_NAME:
            for (i64 i = 0; i < count; i++) numbers[i] += slots[i]->flags & FLAG_NUMBERS ? 256 : 0;
            break;
        case AS_FLAG:
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
    int select = column->mask && column->meaning != AS_FLAG;
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
static int read_at_once(const struct column *column, const struct tick_converter *converter,
                        const union slot **slots, i64 first, i64 count, struct line_piece *near) {
    u32 offset = column->offset;
    i64 *out = (i64 *)column->out;
    int words = column->source == FROM_U64 && column->sink == TO_I64;
    if (column->meaning == AS_TIME && words) {
        for (i64 i = 0; i < count; i++)
            if (!column->mask || chosen(column, slots[i]))
                out[first + i] = near_time_of(converter, word_of(slots[i], offset), near);
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
        for (i64 i = 0; i < count; i++)
            out[first + i] = key_of(converter, word_of(slots[i], offset));
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

void read_fields(const u64 *addresses, i64 first, i64 end, const struct tick_converter *converter,
                 const struct column_list *list, struct line_piece *near) {
    const struct column *columns = list->columns;
    const union slot *slots[BATCH];
    i64 numbers[BATCH];
    if (!list->count) return;
    for (; first < end; first += BATCH) {
        i64 some = end - first < BATCH ? end - first : BATCH;
        for (i64 i = 0; i < some; i++) {
            u64 address = addresses[first + i];
            slots[i] = address ? (const union slot *)(uintptr_t)address : &no_slot;
        }
        i64 next = first + BATCH, last = next + BATCH < end ? next + BATCH : end;
        for (i64 c = 0; c < list->count; c++) {
            // The next batch comes while this one is worked on, some slots with each column: there
            // is no waiting for memory as long as it is not asked for too much at once.
            for (i64 most = next + (BATCH + list->count - 1) / list->count;
                 next < last && next < most; next++)
                __builtin_prefetch((const void *)(uintptr_t)addresses[next]);
            if (read_at_once(&columns[c], converter, slots, first, some, near)) continue;
            read_numbers(slots, some, columns[c].offset, columns[c].source, numbers);
            give_meaning(&columns[c], converter, slots, some, numbers, near);
            store(&columns[c], slots, first, some, numbers);
        }
    }
}

// Columns of `count` slots, given by their addresses; 0 stands for a slot of zeros.
EXPORT void ncclscope_fields(const u64 *addresses, i64 count,
                             const struct tick_converter *converter,
                             const struct column_list *list) {
    struct line_piece near = NO_PIECE;
    read_fields(addresses, 0, count, converter, list, &near);
}
