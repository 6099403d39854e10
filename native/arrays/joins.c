// Places of keys, and columns by places.
#include <stdlib.h>

#include "arrays.h"

// The first of some sorted keys that is not less than `key`, looked for around `near`: keys most
// often come in the order of those that they are looked for among.
static inline i64 first_not_less(const i64 *among, i64 count, i64 key, i64 near) {
    i64 low = near, high = near, step = 1;
    if (near < count && among[near] < key) {
        if (near + 1 == count || among[near + 1] >= key) return near + 1;
        for (; high < count && among[high] < key; step *= 2) low = high + 1, high += step;
        high = high < count ? high : count;
    } else {
        for (; low > 0 && among[low - 1] >= key; step *= 2)
            high = low - 1, low = low > step ? low - step : 0;
    }
    while (low < high) {
        i64 middle = low + (high - low) / 2;
        if (among[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Place of each key among sorted ones, NONE where it is not there.
EXPORT void ncclscope_positions_of(const i64 *among, i64 among_count, const i64 *keys, i64 count,
                                   i64 *out) {
    i64 near = 0;
    for (i64 i = 0; i < count; i++) {
        near = first_not_less(among, among_count, keys[i], near);
        out[i] = near < among_count && among[near] == keys[i] ? near : NONE;
    }
}

static int are_siblings(const struct children *a, i64 i, const struct children *b, i64 j) {
    return a->parent[i] == b->parent[j] && a->parent[i] != NONE && a->comm[i] == b->comm[j] &&
           a->key[i] >> INDEX_BITS == b->key[j] >> INDEX_BITS;
}

// Place of the last of some events, in the order of keys, before each of others, where that is its
// sibling: in one stream, of one parent and communicator. NONE for others.
EXPORT void ncclscope_sibling_before(const struct children *among, const struct children *others,
                                     i64 *out) {
    i64 near = 0;
    for (i64 i = 0; i < others->count; i++) {
        near = first_not_less(among->key, among->count, others->key[i], near);
        out[i] = near && are_siblings(among, near - 1, others, i) ? near - 1 : NONE;
    }
}

#define COALESCE(type)                                          \
    for (i64 row = 0; row < rows; row++) {                      \
        type value = (type)otherwise;                           \
        for (i64 p = 0; p < part_count; p++) {                  \
            i64 place = parts[p].places[row];                   \
            if (place >= 0 && place < parts[p].count) {         \
                value = ((const type *)parts[p].values)[place]; \
                break;                                          \
            }                                                   \
        }                                                       \
        ((type *)out)[row] = value;                             \
    }                                                           \
    break

// Whether each place is its own number.
EXPORT int ncclscope_is_identity(const i64 *places, i64 count) {
    enum { AT_ONCE = 1024 };  // looked at without a branch
    for (i64 first = 0; first < count; first += AT_ONCE) {
        i64 end = count - first < AT_ONCE ? count : first + AT_ONCE, differ = 0;
        for (i64 i = first; i < end; i++) differ |= places[i] ^ i;
        if (differ) return 0;
    }
    return 1;
}

// A column of `width` bytes a value: each row takes its value from the first part that has one.
EXPORT void ncclscope_coalesce(void *out, i64 rows, i64 width, const struct column_part *parts,
                               i64 part_count, i64 otherwise) {
    switch (width) {
        case 1: COALESCE(i8);
        case 2: COALESCE(i16);
        case 4: COALESCE(i32);
        default: COALESCE(i64);
    }
}

static u64 spread(u64 key) {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15ull;
    return key ^ key >> 29;
}

// A table of keys that are numbered as they come. It grows with the keys that differ.
struct entry {
    i64 key;
    i64 value;  // 0: free
};
struct table {
    struct entry *entries;
    u64 mask;
    u64 used;
};
enum { FIRST_SIZE = 64 };

static int open_table(struct table *table, u64 size) {
    *table = (struct table){calloc(size, sizeof *table->entries), size - 1, 0};
    return table->entries ? 0 : -1;
}

static struct entry *place_of(const struct table *table, i64 key) {
    u64 at = spread((u64)key) & table->mask;
    while (table->entries[at].value && table->entries[at].key != key) at = (at + 1) & table->mask;
    return &table->entries[at];
}

static int grow(struct table *table) {
    struct table larger;
    if (open_table(&larger, 2 * (table->mask + 1))) return -1;
    for (u64 i = 0; i <= table->mask; i++)
        if (table->entries[i].value) *place_of(&larger, table->entries[i].key) = table->entries[i];
    larger.used = table->used;
    free(table->entries);
    *table = larger;
    return 0;
}

// The entry of a key; a new one has the value that is given. NULL without memory.
static struct entry *entry_of(struct table *table, i64 key, i64 value) {
    struct entry *entry = place_of(table, key);
    if (entry->value) return entry;
    if (2 * ++table->used > table->mask) {
        if (grow(table)) return NULL;
        entry = place_of(table, key);
    }
    *entry = (struct entry){key, value};
    return entry;
}

// How often each key occurred before, by place. Returns 0, or -1 without memory.
EXPORT int ncclscope_running_count(const i64 *keys, i64 count, i64 *out) {
    struct table table;
    struct entry *entry = NULL;
    if (open_table(&table, FIRST_SIZE)) return -1;
    for (i64 i = 0; i < count; i++) {
        if (!entry || entry->key != keys[i]) entry = entry_of(&table, keys[i], 1);
        if (!entry) break;
        out[i] = entry->value++ - 1;
    }
    free(table.entries);
    return count && !entry ? -1 : 0;
}

// A number for each different key, in the order of first occurrence; NONE has none. Returns how
// many there are, or -1 without memory.
EXPORT i64 ncclscope_factorize(const i64 *keys, i64 count, i32 *out) {
    struct table table;
    if (open_table(&table, FIRST_SIZE)) return -1;
    i64 found = 0;
    for (i64 i = 0; i < count; i++) {
        out[i] = NONE;
        if (keys[i] == NONE) continue;
        struct entry *entry = entry_of(&table, keys[i], found + 1);
        if (!entry) {
            free(table.entries);
            return -1;
        }
        if (entry->value > found) found = entry->value;
        out[i] = (i32)(entry->value - 1);
    }
    free(table.entries);
    return found;
}

// Marks the places that occur, of `size` places.
EXPORT void ncclscope_mask_of(const i64 *places, i64 count, i8 *marks, i64 size) {
    for (i64 i = 0; i < count; i++)
        if (places[i] >= 0 && places[i] < size) marks[places[i]] = 1;
}

#define TAKE_SMALL(type, from)                                                                  \
    for (i64 i = 0; i < count; i++) {                                                           \
        i64 at = ((const from *)places)[i];                                                     \
        ((type *)out)[i] = at >= 0 && at < size ? ((const type *)values)[at] : (type)otherwise; \
    }                                                                                           \
    return

#define TAKE_SMALL_BY(from)             \
    switch (width) {                    \
        case 1: TAKE_SMALL(i8, from);   \
        case 4: TAKE_SMALL(i32, from);  \
        default: TAKE_SMALL(i64, from); \
    }

// values[places] of a small table; `otherwise` for places outside. Places have 1, 2 or 4 bytes.
EXPORT void ncclscope_take_small(void *out, i64 width, const void *values, i64 size,
                                 const void *places, i64 place_width, i64 count, i64 otherwise) {
    switch (place_width) {
        case 1: TAKE_SMALL_BY(i8);
        case 2: TAKE_SMALL_BY(i16);
        default: TAKE_SMALL_BY(i32);
    }
}
