// Places of keys, and columns by places.
#include <stdlib.h>
#include <string.h>

#include "columns.h"

// Place of each key among sorted ones, NONE where it is not there. Children most often come in the
// order of their parents, so the search begins where the last one ended.
EXPORT void ncclscope_find(const i64 *among, i64 among_count, const i64 *keys, i64 count,
                           i64 *out) {
    i64 near = 0;
    for (i64 i = 0; i < count; i++) {
        i64 key = keys[i], place = near;
        if (!among_count || key == NONE) {
            out[i] = NONE;
            continue;
        }
        if (among[place] != key && place + 1 < among_count && among[place + 1] == key) place++;
        if (among[place] != key) {
            i64 low = 0, high = among_count;  // the first that is not less
            while (low < high) {
                i64 middle = low + (high - low) / 2;
                if (among[middle] < key) low = middle + 1;
                else high = middle;
            }
            place = low < among_count ? low : among_count - 1;
        }
        near = place;
        out[i] = among[place] == key ? place : NONE;
    }
}

// Place of the last of some sorted keys that is less than each key, NONE where none is.
EXPORT void ncclscope_last_before(const i64 *among, i64 among_count, const i64 *keys, i64 count,
                                  i64 *out) {
    i64 next = 0;  // the first that is not less than the last key
    for (i64 i = 0; i < count; i++) {
        if (i && keys[i] < keys[i - 1]) next = 0;
        for (int step = 0; step < 8 && next < among_count && among[next] < keys[i]; step++) next++;
        if (next < among_count && among[next] < keys[i]) {
            i64 high = among_count;
            while (next < high) {
                i64 middle = next + (high - next) / 2;
                if (among[middle] < keys[i]) next = middle + 1;
                else high = middle;
            }
        }
        out[i] = next - 1;
    }
}

// Where the values of a column come from: `values[places[row]]`. Without places, a value a row.
struct part {
    const void *values;
    const i64 *places;  // NONE: this part has none for the row
    i64 count;          // of values
};

#define COALESCE(type)                                                \
    for (i64 row = 0; row < rows; row++) {                            \
        type value = (type)otherwise;                                 \
        for (i64 p = 0; p < part_count; p++) {                        \
            i64 place = parts[p].places ? parts[p].places[row] : row; \
            if (place >= 0 && place < parts[p].count) {               \
                value = ((const type *)parts[p].values)[place];       \
                break;                                                \
            }                                                         \
        }                                                             \
        ((type *)out)[row] = value;                                   \
    }                                                                 \
    break

// A column of `width` bytes a value: each row takes its value from the first part that has one.
EXPORT void ncclscope_coalesce(void *out, i64 rows, i64 width, const struct part *parts,
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

// How often each key occurred before, by place. Returns 0, or -1 without memory.
EXPORT int ncclscope_number(const i64 *keys, i64 count, i64 *out) {
    struct entry {
        i64 key;
        i64 next;  // 0: free
    };
    u64 size = 64;
    while (size < 2 * (u64)count) size *= 2;
    struct entry *entries = calloc(size, sizeof *entries);  // pages that no key needs stay unused
    if (!entries) return -1;
    struct entry *entry = entries;
    for (i64 i = 0; i < count; i++) {
        if (entry->key != keys[i] || !entry->next) {
            u64 at = spread((u64)keys[i]) & (size - 1);
            while (entries[at].next && entries[at].key != keys[i]) at = (at + 1) & (size - 1);
            entry = &entries[at];
            entry->key = keys[i];
        }
        out[i] = entry->next++;
    }
    free(entries);
    return 0;
}
