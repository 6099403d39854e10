// The table of string literals. Lock-free: callbacks of several threads may bring a new literal at
// the same time.
#include "intern.h"

#include <string.h>

#include "meta.h"

#define TEXT_BYTES 48
#define OVERFLOW_ID 255u  // the 255th distinct text and all after it

u64 intern_table[INTERN_SLOTS];

static struct {
    char text[TEXT_BYTES];
    u32 ready;
} texts[OVERFLOW_ID];
static u32 text_count;  // ids given out; id 0 is NULL

static u32 find_text(const char *text) {
    u32 known = __atomic_load_n(&text_count, __ATOMIC_ACQUIRE);
    for (u32 i = 0; i < known && i < OVERFLOW_ID - 1; i++)
        if (__atomic_load_n(&texts[i].ready, __ATOMIC_ACQUIRE) &&
            strncmp(texts[i].text, text, TEXT_BYTES) == 0)
            return i + 1;
    return 0;
}

// Two threads may give one text two ids; both lead to the same text.
static u32 add_text(const char *text, size_t length) {
    u32 place = __atomic_fetch_add(&text_count, 1, __ATOMIC_ACQ_REL);
    if (place >= OVERFLOW_ID - 1) {
        __atomic_store_n(&text_count, OVERFLOW_ID - 1, __ATOMIC_RELEASE);
        return OVERFLOW_ID;
    }
    memcpy(texts[place].text, text, length);
    __atomic_store_n(&texts[place].ready, 1, __ATOMIC_RELEASE);
    meta_text(TEXT_STRING, place + 1, text, length);
    return place + 1;
}

u8 intern_slow(const char *literal) {
    if (!literal) return 0;
    u64 address = (u64)(uintptr_t)literal;
    for (unsigned probe = 0; probe < INTERN_SLOTS; probe++) {  // it may be behind a collision
        u64 *place = &intern_table[(intern_home(literal) + probe) % INTERN_SLOTS];
        u64 entry = __atomic_load_n(place, __ATOMIC_RELAXED);
        if (entry >> 8 == address) return (u8)entry;
        if (entry != 0) continue;
        char text[TEXT_BYTES] = "";
        size_t length = strnlen(literal, TEXT_BYTES - 1);
        memcpy(text, literal, length);
        u32 id = find_text(text);
        if (id == 0) id = add_text(text, length);
        // Lost to another thread: this one keeps its id, the literal is looked up again next time.
        __atomic_compare_exchange_n(place, &entry, address << 8 | id, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
        return (u8)id;
    }
    return OVERFLOW_ID;
}

void intern_forget_addresses(void) {
    for (unsigned i = 0; i < INTERN_SLOTS; i++)
        __atomic_store_n(&intern_table[i], 0, __ATOMIC_RELAXED);
}
