// NCCL's string literals as one-byte ids. The text of a literal is read once; afterwards its
// address is enough.
#ifndef NCCLSCOPE_INTERN_H
#define NCCLSCOPE_INTERN_H

#include "callback_state.h"
#include "slot.h"

#define INTERN_SLOTS 1024u

// Address in the upper 56 bits, id in the lower 8; 0 is empty.
extern HIDDEN u64 intern_table[INTERN_SLOTS];

COLD u8 intern_slow(const char *literal);
// Forgets addresses, not ids: the library that held the literals may be unloaded and another take
// its place.
void intern_forget_addresses(void);

static inline unsigned intern_home(const char *literal) {
    return ((u32)(uintptr_t)literal * 0x9E3779B1u) >> 22;
}

// False: not at its first place.
static inline bool intern_find(const char *literal, u8 *id) {
    u64 entry = __atomic_load_n(&intern_table[intern_home(literal)], __ATOMIC_RELAXED);
    *id = (u8)entry;
    return entry >> 8 == (u64)(uintptr_t)literal;
}

static inline u8 intern(const char *literal) {
    u8 id;
    return LIKELY(intern_find(literal, &id)) ? id : intern_slow(literal);
}

#endif
