// One 64-byte slot as the recorder's threads use it: the body is plain memory, the head word
// commits it.
//
// A slot's owner fills the body, then stores the head with release order. Whoever reads a slot
// loads the head first (acquire); the body is then at least as new as the head's state bits claim.
// Fields of a committed slot change only by single relaxed stores, each followed by a release store
// of the head.
#ifndef NCCLSCOPE_SLOT_H
#define NCCLSCOPE_SLOT_H

#include "ncclscope/format.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

// check repeats the low half of the slot's index (or handle: the same bits), so a recycled slot
// never validates.
static inline u64 head_word(unsigned kind, unsigned chan, unsigned flags, u64 index) {
    return kind | (u64)(chan & 0xFF) << 16 | (u64)flags << 24 | index << 32;
}
static inline u8 head_kind(u64 head) { return (u8)head; }
static inline u8 head_states(u64 head) { return (u8)(head >> 8); }
static inline u8 head_flags(u64 head) { return (u8)(head >> 24); }
static inline u8 head_chan(u64 head) { return (u8)(head >> 16); }
static inline u32 head_check(u64 head) { return (u32)(head >> 32); }
static inline u64 head_with_states(u64 head, unsigned states) { return head | (u64)states << 8; }
static inline int head_is_event(u64 head) { return (u8)(head_kind(head) - 1) < EVENT_KINDS; }
// May its owner still change it?
static inline int head_is_open(u64 head) {
    return (head_is_event(head) || head_kind(head) == KIND_state ||
            head_kind(head) == KIND_range) &&
           !(head_states(head) & STATE_STOPPED);
}

static inline u64 slot_head(const union slot *slot) {
    return __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE);
}
static inline u64 slot_head_own(const union slot *slot) {
    return __atomic_load_n(&slot->head, __ATOMIC_RELAXED);
}
static inline void slot_commit(union slot *slot, u64 head) {
    __atomic_store_n(&slot->head, head, __ATOMIC_RELEASE);
}

// Asks for a line that will be written. The helper thread has read it, maybe just now: without the
// w its store would wait until that core gives it up. Where the instruction is unknown it does
// nothing.
static inline void slot_prefetch_for_write(const void *place) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)place));
#else
    __builtin_prefetch(place, 1);
#endif
}

// A store into a committed slot.
#define SLOT_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

// Copies a slot whose head was just loaded.
static inline void slot_copy(union slot *to, const union slot *from, u64 head) {
    to->words[0] = head;
    for (int i = 1; i < 8; i++) to->words[i] = __atomic_load_n(&from->words[i], __ATOMIC_RELAXED);
}

#endif
