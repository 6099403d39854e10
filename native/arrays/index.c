// Finds the slots of each kind, in the order of their keys.
#include <string.h>

#include "../src/nccl_abi.h"
#include "arrays.h"

_Static_assert((KIND_block | 1) == KIND_updates, "one comparison finds both");

#define LATEST_STAMP_NS (1ull << 62)  // GPUs count from 1970
#define NCCL_KERNEL_CH_STOP 22        // NCCL_KERNEL_CH_STOP

#define INDEX_LIMIT (1ull << 48)

enum { AHEAD = 64 };  // slots on their way from memory, a page: it stops at pages on its own

// Finds the heads of blocks in a log segment, and how many slots there are of each kind. Slots of
// blocks that are not what their place says are blanked: their kind becomes 0. Returns the number
// of heads.
EXPORT i64 ncclscope_scan(union slot *slots, i64 count, i64 *heads, i64 *kinds, i64 *misplaced) {
    i64 found = 0, left = 0;  // slots that the block still has
    u32 check = 0;            // of the block's next slot
    memset(kinds, 0, 256 * sizeof *kinds);
    *misplaced = 0;
    for (i64 row = 0; row < count; row++) {
        union slot *slot = &slots[row];
        __builtin_prefetch(slot + AHEAD);
        if ((slot->kind | 1) == KIND_updates) {
            heads[found++] = row;
            int sound = slot->kind == KIND_block && slot->block.stream < CONTEXT_STREAM &&
                        slot->block.first < INDEX_LIMIT;
            left = sound ? (i64)slot->block.count : 0;
            check = (u32)slot->block.first;
        } else if (left) {
            left--;
            if (slot->check != check++) {
                slot->kind = 0;
                ++*misplaced;
            }
        }
        kinds[slot->kind]++;
    }
    return found;
}

const union slot *block_slots(const struct slot_log *log, i64 block, i64 *count) {
    i64 row = log->row[block], low = 0, high = log->segments;
    *count = 0;
    if (!high || row < 0 || row >= log->first_row[high] || log->count[block] < 0) return NULL;
    while (high - low > 1) {
        i64 middle = low + (high - low) / 2;
        if (log->first_row[middle] <= row) low = middle;
        else high = middle;
    }
    i64 room = log->first_row[low + 1] - row;
    *count = log->count[block] < room ? log->count[block] : room;
    return (const union slot *)(uintptr_t)log->base[low] + (row - log->first_row[low]);
}

// How many slots there are of each kind.
EXPORT void ncclscope_count_kinds(const struct slot_log *log, i64 *counts) {
    memset(counts, 0, 256 * sizeof *counts);
    for (i64 block = 0; block < log->blocks; block++) {
        i64 count;
        const union slot *slots = block_slots(log, block, &count);
        for (i64 i = 0; i < count; i++) counts[slots[i].kind]++;
    }
}

static int covers(const struct slot_log *log, u64 ticks) {
    return ticks >= log->low_ticks && ticks <= log->high_ticks;
}

int possible(const struct slot_log *log, const union slot *slot) {
    if (!covers(log, slot->group.t0)) return 0;
    if (slot->kind == KIND_state)
        return slot->state.state != NCCL_KERNEL_CH_STOP || slot->state.arg < LATEST_STAMP_NS;
    if ((slot->states & STATE_STOPPED) && !covers(log, slot->group.t1)) return 0;
    if (slot->kind != KIND_kernel_ch) return 1;
    if ((slot->states & STATE_FIRST) && !covers(log, slot->kernel_ch.t_stop)) return 0;
    return slot->kernel_ch.gpu_start < LATEST_STAMP_NS &&
           slot->kernel_ch.gpu_stop < LATEST_STAMP_NS;
}

enum { AT_ONCE = 2048 };  // slots that are still near when their columns are read

// Reads the columns of what was found since the last time. An event that the next slot may extend
// waits for it.
static void read_found(struct event_list *lists, i64 list_count,
                       const struct tick_converter *converter,
                       const struct event_list *extensible) {
    for (i64 l = 0; l < list_count; l++) {
        struct event_list *list = &lists[l];
        i64 end = list->count - (list == extensible);
        read_fields(list->slot, list->read, end, converter, &list->own, &list->near);
        read_fields(list->extended, list->read, end, converter, &list->behind, &list->near);
        list->read = end;
    }
}

// Fills the lists of those kinds that `list_of` (by kind) does not give NONE for.
EXPORT void ncclscope_index(const struct slot_log *log, const i8 *list_of, struct event_list *lists,
                            i64 list_count, const struct tick_converter *converter) {
    struct event_list *extensible = NULL;  // whose last event the next slot may extend
    i64 left = AT_ONCE;
    for (i64 l = 0; l < list_count; l++) lists[l].near = NO_PIECE;
    for (i64 block = 0; block < log->blocks; block++) {
        i64 count;
        const union slot *slots = block_slots(log, block, &count);
        for (i64 i = 0; i < count; i++) {
            const union slot *slot = &slots[i];
            __builtin_prefetch(slot + AHEAD);
            if (!left--) {
                read_found(lists, list_count, converter, extensible);
                left = AT_ONCE;
            }
            u64 address = (u64)(uintptr_t)slot;
            if (extensible && slot->kind == extensible->extension)
                extensible->extended[extensible->count - 1] = address;
            extensible = NULL;
            int number = list_of[slot->kind];
            if (number == NONE) continue;
            struct event_list *list = &lists[number];
            if (!possible(log, slot)) {
                list->impossible++;
                continue;
            }
            if (list->count == list->room) {  // it was another slot when they were counted
                list->impossible++;
                continue;
            }
            i64 place = list->count++;
            list->slot[place] = address;
            list->key[place] = log->key[block] + i;
            list->thread[place] = (i32)log->tid[block];
            u32 numbers = slot->flags & FLAG_NUMBERS ? 256 : 0;
            for (u32 f = 0; f < list->names; f++)
                list->seen[512 * f + numbers + ((const u8 *)slot)[list->offset[f]]] = 1;
            if (list->extension) {
                list->extended[place] = 0;
                extensible = list;
            }
        }
    }
    read_found(lists, list_count, converter, NULL);
}

// Stops and kernel stops that came from another thread, as if they stood in their events. `place`:
// each State's event among `count` events, NONE for another kind's.
EXPORT void ncclscope_apply_states(const u64 *states, const i64 *place, i64 state_count,
                                   const u64 *events, i64 count) {
    for (i64 i = state_count - 1; i >= 0; i--) {  // the last stop counts
        const union slot *state = (const union slot *)(uintptr_t)states[i];
        if (place[i] < 0 || place[i] >= count || state->state.state != STATE_IS_STOP) continue;
        union slot *event = (union slot *)(uintptr_t)events[place[i]];
        if (!(event->states & STATE_STOPPED)) {
            event->group.t1 = state->state.t0;
            event->states |= STATE_STOPPED;
        }
    }
    for (i64 i = 0; i < state_count; i++) {
        const union slot *state = (const union slot *)(uintptr_t)states[i];
        if (place[i] < 0 || place[i] >= count || state->state.state != NCCL_KERNEL_CH_STOP)
            continue;
        union slot *event = (union slot *)(uintptr_t)events[place[i]];
        if (event->kind == KIND_kernel_ch) {
            event->kernel_ch.gpu_stop = state->state.arg;
            event->kernel_ch.t_stop = state->state.t0;
            event->states |= STATE_FIRST;
        }
    }
}
