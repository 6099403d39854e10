// NCCL's string literals as one-byte ids. A literal's text is read once, on first sight; afterwards
// its address is enough.
#ifndef NCCLSCOPE_INTERN_H
#define NCCLSCOPE_INTERN_H

#include "slot.h"

#define INTERN_SLOTS 1024u

// Address in the lower 56 bits, id in the upper 8; 0 is empty.
extern u64 intern_table[INTERN_SLOTS];

u8 intern_unseen(const char *literal);
// Forgets addresses, not ids: the library that held the literals may be unloaded and another take
// its place.
void intern_forget_addresses(void);

static inline unsigned intern_place(const char *literal) {
    return (unsigned)(((u64)(uintptr_t)literal * 0x9E3779B97F4A7C15ull) >> 54);
}

static inline u8 intern(const char *literal) {
    u64 entry = __atomic_load_n(&intern_table[intern_place(literal)], __ATOMIC_RELAXED);
    if (LIKELY((entry & 0x00FFFFFFFFFFFFFFull) == (u64)(uintptr_t)literal))
        return (u8)(entry >> 56);
    return intern_unseen(literal);
}

#endif
