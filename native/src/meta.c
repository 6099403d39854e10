// The ring of metadata slots in the arena.
#include "meta.h"

#include <string.h>

#include "arena.h"

static u64 next_index;     // of the next slot to reserve
static u64 drained_index;  // repeated in the arena's header for salvage

static union slot *slot_at(u64 index) {
    return (union slot *)(arena.base + ARENA_META) + index % META_SLOTS;
}

bool meta_append(enum slot_kind kind, const union slot *body) {
    if (!arena.base || arena.is_foreign) return false;
    u64 index = __atomic_load_n(&next_index, __ATOMIC_RELAXED);
    do {
        if (index - __atomic_load_n(&drained_index, __ATOMIC_ACQUIRE) >= META_SLOTS) {
            arena_count(COUNTER_meta_dropped, 0);
            return false;
        }
    } while (!__atomic_compare_exchange_n(&next_index, &index, index + 1, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    union slot *slot = slot_at(index);
    memcpy(&slot->words[1], &body->words[1], SLOT_BYTES - 8);
    slot_commit(slot, head_word(kind, 0, 0, index));
    return true;
}

bool meta_has_spare_room(void) {
    u64 next = __atomic_load_n(&next_index, __ATOMIC_RELAXED);
    return next - __atomic_load_n(&drained_index, __ATOMIC_ACQUIRE) < META_SLOTS / 2;
}

void meta_text(enum text_owner what, unsigned owner, const char *text, size_t length) {
    union slot slot;
    size_t piece = sizeof slot.text.text, offset = 0;
    do {
        memset(&slot, 0, sizeof slot);
        size_t bytes = length - offset < piece ? length - offset : piece;
        slot.text.what = (u16)what;
        slot.text.owner = (u16)owner;
        slot.text.offset = (u16)offset;
        slot.text.length = (u16)length;
        memcpy(slot.text.text, text + offset, bytes);
        if (!meta_append(KIND_text, &slot)) return;
        offset += bytes;
    } while (offset < length);
}

void meta_sync(const struct clock_pair *pair, u64 slots_written, u64 bytes_written) {
    union slot slot = {0};
    slot.sync.ticks_before = pair->ticks_before;
    slot.sync.ticks_after = pair->ticks_after;
    slot.sync.monotonic_ns = pair->monotonic_ns;
    slot.sync.realtime_ns = pair->realtime_ns;
    slot.sync.slots_written = slots_written;
    slot.sync.bytes_written = bytes_written;
    meta_append(KIND_sync, &slot);
}

size_t meta_peek(union slot *out, size_t room) {
    u64 first = drained_index;
    size_t taken = 0;
    for (; taken < room; taken++) {
        u64 index = first + taken;
        if (index - first >= META_SLOTS) break;
        union slot *slot = slot_at(index);
        u64 head = slot_head(slot);
        if (head == 0 || head_check(head) != (u32)index) break;  // not committed yet
        slot_copy(&out[taken], slot, head);
    }
    return taken;
}

void meta_release(size_t slots) {
    u64 first = drained_index;
    for (size_t i = 0; i < slots; i++)
        __atomic_store_n(&slot_at(first + i)->head, 0, __ATOMIC_RELAXED);
    ((struct file_header *)arena.base)->meta_drained = first + slots;
    __atomic_store_n(&drained_index, first + slots, __ATOMIC_RELEASE);
}

bool meta_is_empty(void) { return __atomic_load_n(&next_index, __ATOMIC_ACQUIRE) == drained_index; }
